package radio

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The figures of Semtech's own calculator for LoRaWAN's settings, and this package's for Meshtastic's.
func TestAirtime(t *testing.T) {
	for _, tt := range []struct {
		m    modem
		n    int
		want time.Duration
	}{
		{modem{"", 7, 125_000, 5, 8}, 10, 41216 * time.Microsecond},
		{modem{"", 7, 125_000, 5, 8}, 20, 56576 * time.Microsecond},
		{modem{"", 12, 125_000, 5, 8}, 10, 991232 * time.Microsecond}, // low data rate optimisation
		{modem{"", 12, 125_000, 5, 8}, 20, 1318912 * time.Microsecond},
		{presetOf(0), 240, 2033664 * time.Microsecond},
	} {
		if got := tt.m.airtime(tt.n); got != tt.want {
			t.Errorf("%+v, %d bytes: %v, want %v", tt.m, tt.n, got, tt.want)
		}
	}
}

// A part of 200 bytes in LongFast, encrypted, with all that goes around it: two seconds.
func TestAirtimeOfAFullPart(t *testing.T) {
	d := &data{port: textApp, payload: make([]byte, maxPart), reply: 1}
	if got := presetOf(0).onAir(d); got != 2033664*time.Microsecond {
		t.Errorf("a full part takes %v", got)
	}
	if n := overhead + len(d.encode()); n > 255 {
		t.Errorf("a full part is %d bytes on the air, which a radio cannot send", n)
	}
}

// What is not known costs the most, never less.
func TestUnknownModemsAreTheSlowest(t *testing.T) {
	worst := slowest("").airtime(100)
	for n := range uint32(14) {
		if m := presetOf(n); m.airtime(100) > worst {
			t.Errorf("%s is slower than the slowest", m.name)
		}
	}
	for name, m := range map[string]modem{
		"later preset": presetOf(14), "far preset": presetOf(1<<32 - 1), "no settings": custom(0, 0, 0), "sf": custom(250, 13, 5), "sf low": custom(250, 4, 5),
		"cr": custom(250, 9, 9), "bandwidth": custom(1626, 9, 5), "huge": custom(1<<32-1, 9, 5),
	} {
		if m.airtime(100) != worst {
			t.Errorf("%s: %+v", name, m)
		}
	}
	for khz, hz := range map[uint32]int{31: 31_250, 62: 62_500, 125: 125_000, 200: 203_125, 400: 406_250, 800: 812_500, 1600: 1_625_000} {
		if m := custom(khz, 9, 7); m.hz != hz {
			t.Errorf("%d kHz: %+v", khz, m)
		}
	}
	if m := custom(62, 9, 7); m.hz != 62_500 || m.sf != 9 || m.cr != 7 {
		t.Errorf("custom: %+v", m)
	}
}

// The budget is exact: against a list of everything that was ever sent, no hour holds more than the most, and nothing is
// refused that would fit.
func TestWindowIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 100
		w := window{span: time.Hour, max: most}
		now := time.Unix(1_700_000_000, 0)
		var all []*charge // as they were settled
		sum := func() (s int64) {
			for _, c := range all {
				if now.Before(c.at.Add(time.Hour)) {
					s += c.n
				}
			}
			return s
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "minutes")) * time.Minute)
			n := int64(rapid.IntRange(1, 60).Draw(t, "cost"))
			before := sum()
			c := w.take(now, n)
			if (c != nil) != (before+n <= most) {
				t.Fatalf("%d of %d used, %d more: taken %v", before, most, n, c != nil)
			}
			if c != nil {
				mine := &charge{now, n}
				all = append(all, mine)
				if rapid.Bool().Draw(t, "settle") {
					now = now.Add(time.Duration(rapid.IntRange(0, 70).Draw(t, "later")) * time.Minute)
					gone := !now.Before(mine.at.Add(time.Hour))
					less := int64(rapid.IntRange(0, int(n)).Draw(t, "less"))
					w.settle(c, now, less)
					if !gone {
						mine.at, mine.n = now, less
					}
				}
			}
			if got := w.used(now); got != sum() || got > most {
				t.Fatalf("used %d, want %d, at most %d", got, sum(), most)
			}
		}
	})
}

func TestSentIsNeverTooFew(t *testing.T) {
	on := 2 * time.Second
	for _, tt := range []struct {
		elapsed time.Duration
		want    int
	}{{0, 1}, {8 * time.Second, 1}, {8500 * time.Millisecond, 2}, {17 * time.Second, 3}, {time.Hour, deviceSends}} {
		if got := sent(on, tt.elapsed); got != tt.want {
			t.Errorf("after %v: %d sends, want %d", tt.elapsed, got, tt.want)
		}
	}
	if wait := ackWait(on); wait < deviceSends*retryAfter(on) {
		t.Errorf("an acknowledgement is waited for %v, while the device still sends", wait)
	}
}

// The slower the preset, the shorter the part, down to nothing.
func TestPartSize(t *testing.T) {
	const share = 36 * time.Second
	for preset, want := range map[uint32]int{0: 200, 8: 200, 1: 70, 2: 0} {
		if got := partSize(presetOf(preset), share); got != want {
			t.Errorf("%s: %d bytes, want %d", presetOf(preset).name, got, want)
		}
	}
}
