package radio

import (
	"slices"
	"time"
)

// modem is how a LoRa radio modulates: what a packet's time on air follows from.
type modem struct {
	name     string
	sf       int // spreading factor, 7 to 12
	hz       int // bandwidth
	cr       int // coding rate's denominator: 5 for 4/5, to 8
	preamble int // symbols
}

const preamble = 16 // symbols, in all of Meshtastic's presets

// presetOf is the modem of a ModemPreset (numbers and values: Meshtastic's protobufs and documentation). One that is not
// known here, a later one say, is taken for the slowest: it then costs too much, never too little.
func presetOf(n uint32) modem {
	table := [...]modem{
		{"LongFast", 11, 250_000, 5, preamble},
		{"LongSlow", 12, 125_000, 8, preamble},
		{"VeryLongSlow", 12, 62_500, 8, preamble},
		{"MediumSlow", 10, 250_000, 5, preamble},
		{"MediumFast", 9, 250_000, 5, preamble},
		{"ShortSlow", 8, 250_000, 5, preamble},
		{"ShortFast", 7, 250_000, 5, preamble},
		{"LongModerate", 11, 125_000, 8, preamble},
		{"ShortTurbo", 7, 500_000, 5, preamble},
		{"LongTurbo", 11, 500_000, 8, preamble},
		{"LiteFast", 9, 125_000, 5, preamble},
		{"LiteSlow", 10, 125_000, 5, preamble},
		{"NarrowFast", 7, 62_500, 6, preamble},
		{"NarrowSlow", 8, 62_500, 6, preamble},
	}
	if int(n) >= len(table) || n > 1<<10 {
		return slowest("a preset unknown here")
	}
	return table[n]
}

func slowest(name string) modem { return modem{name, 12, 62_500, 8, preamble} }

// custom is the modem of settings made by hand: kHz, where six figures stand for one with a fraction.
func custom(khz, sf, cr uint32) modem {
	m := modem{"custom", int(sf), int(khz) * 1000, int(cr), preamble}
	switch khz {
	case 31:
		m.hz = 31_250
	case 62:
		m.hz = 62_500
	case 200:
		m.hz = 203_125
	case 400:
		m.hz = 406_250
	case 800:
		m.hz = 812_500
	case 1600:
		m.hz = 1_625_000
	}
	if khz < 7 || khz > 1625 || sf < 5 || sf > 12 || cr < 5 || cr > 8 {
		return slowest("custom, with settings unknown here")
	}
	return m
}

// airtime is how long a packet of n bytes, header included, is on the air: Semtech AN1200.13, with an explicit header
// and CRC, and the low data rate optimisation where a symbol takes more than 16 ms.
func (m modem) airtime(n int) time.Duration {
	symbol := time.Second * time.Duration(1<<m.sf) / time.Duration(m.hz)
	de := 0
	if symbol > 16*time.Millisecond {
		de = 1
	}
	bits, each := 8*n-4*m.sf+28+16, 4*(m.sf-2*de)
	symbols := 8
	if bits > 0 {
		symbols += (bits + each - 1) / each * m.cr
	}
	return time.Duration(symbols+m.preamble)*symbol + symbol*17/4
}

// What the air carries more than a message's data: the packet's header, a bit field of the firmware's, and the code and
// nonce of public key encryption, which the device uses where it can.
const overhead = 16 + 2 + 12

// onAir is the time on air of one transmission of d.
func (m modem) onAir(d *data) time.Duration { return m.airtime(overhead + len(d.encode())) }

// deviceSends is how often the device itself sends a packet with want_ack before it gives up, the first time included:
// firmware up to 2.7 three times, later five.
const deviceSends = 5

// retryAfter is the least time between two of them.
func retryAfter(onAir time.Duration) time.Duration { return 2*onAir + 4500*time.Millisecond }

// sent is how often the device can have sent a packet by now; never less than it has.
func sent(onAir, elapsed time.Duration) int {
	return min(deviceSends, 1+int(elapsed/retryAfter(onAir)))
}

// ackWait is how long an acknowledgement may take: the device's own sends, with a contention window before each, and the
// way of the last one there and back.
func ackWait(onAir time.Duration) time.Duration {
	return deviceSends*(retryAfter(onAir)+2*time.Second) + 15*time.Second
}

// window is an exact sliding sum: at no time does what counts in the last span come to more than max. It is not safe
// for concurrent use.
type window struct {
	span   time.Duration
	max    int64
	sum    int64
	events []*charge
}

// charge is one event of a window.
type charge struct {
	at time.Time
	n  int64
}

func (w *window) prune(now time.Time) {
	w.events = slices.DeleteFunc(w.events, func(c *charge) bool {
		gone := !now.Before(c.at.Add(w.span))
		if gone {
			w.sum -= c.n
		}
		return gone
	})
}

func (w *window) used(now time.Time) int64 {
	w.prune(now)
	return w.sum
}

func (w *window) left(now time.Time) int64 { return w.max - w.used(now) }

// take counts n, or gives nil where that would be too much.
func (w *window) take(now time.Time, n int64) *charge {
	if n > w.left(now) {
		return nil
	}
	c := &charge{now, n}
	w.events, w.sum = append(w.events, c), w.sum+n
	return c
}

// settle says what a charge really was: n, at most what was taken. It counts from now.
func (w *window) settle(c *charge, now time.Time, n int64) {
	w.prune(now)
	if slices.Contains(w.events, c) {
		w.sum += n - c.n
		c.n, c.at = n, now
	}
}
