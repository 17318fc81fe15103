package radio

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"atoll/internal/fault"
	"atoll/internal/mesh/radio/radiotest"
)

// says answers every question with the same words.
func says(words string) func(context.Context, uint32, string) (string, error) {
	return func(context.Context, uint32, string) (string, error) { return words, nil }
}

func long(parts int) string { return strings.Repeat("x", parts*(maxPart-numberLen)) }

func number(p radiotest.Packet) string { return string(p.Payload[:3]) }

// M5: parts go out in order, each after the one before was acknowledged, and nothing beyond the cap.
func TestPartsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{Answer: func(int, radiotest.Packet) radiotest.Answer { return radiotest.Answer{After: 7 * time.Second} }},
			Config{Ask: says(long(10))})
		defer b.stop()
		b.up()
		id := b.dev.Deliver(signed(boris, "tell me"))
		var last time.Time
		for i, want := range []string{"1/4", "2/4", "3/4", "4/4"} {
			p := b.sent()
			if number(p) != want || len(p.Payload) != maxPart || p.Reply != id || !p.PKI {
				t.Errorf("part %d: %+v", i, p)
			}
			if i > 0 && p.At.Sub(last) < 7*time.Second {
				t.Errorf("part %d came %v after the one before, which was not acknowledged", i, p.At.Sub(last))
			}
			if last = p.At; i == 3 && !strings.HasSuffix(string(p.Payload), "x"+cutMark) {
				t.Errorf("the end is %q", p.Payload)
			}
		}
		b.silent(time.Minute)
		if s := b.Status(); s.Answered != 1 || s.Resent != 0 || s.Used != 4*2033664*time.Microsecond {
			t.Errorf("status %+v", s)
		}
	})
}

// A part without an acknowledgement is sent again under a new id, and its airtime counts for all the sends that the
// device made of it.
func TestLostAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{Answer: func(n int, _ radiotest.Packet) radiotest.Answer {
			return radiotest.Answer{Silent: n == 1, Passed: n == 2}
		}},
			Config{Ask: says(long(2)), Share: 0.1})
		defer b.stop()
		b.up()
		b.dev.Deliver(text(anna, "tell me"))
		var ids []uint32
		for i, want := range []string{"1/2", "1/2", "1/2", "2/2"} {
			p := b.sent()
			if number(p) != want {
				t.Errorf("packet %d is %q", i, number(p))
			}
			for _, id := range ids {
				if p.ID == id {
					t.Errorf("packet %d has the id of another", i)
				}
			}
			ids = append(ids, p.ID)
		}
		synctest.Wait()
		const full = 2033664 * time.Microsecond
		if s := b.Status(); s.Answered != 1 || s.Resent != 2 || s.Used != (2*deviceSends+2)*full {
			t.Errorf("status %+v, want %v used", s, (2*deviceSends+2)*full)
		}
	})
}

// After three tries the rest is dropped, which is counted; the node can ask again.
func TestNeverAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{Answer: func(n int, _ radiotest.Packet) radiotest.Answer { return radiotest.Answer{Silent: n <= tries} }},
			Config{Ask: says(long(2)), Share: 0.1})
		defer b.stop()
		b.up()
		b.dev.Deliver(text(anna, "tell me"))
		for range tries {
			if p := b.sent(); number(p) != "1/2" {
				t.Errorf("%q", p.Payload)
			}
		}
		b.silent(10 * time.Minute)
		if s := b.Status(); s.Dropped != 1 || s.Answered != 0 || s.Resent != tries-1 || len(b.waiting) != 0 {
			t.Errorf("status %+v, %d waiting", s, len(b.waiting))
		}
		if !strings.Contains(b.log.String(), "not delivered to its end") {
			t.Errorf("log: %s", b.log.String())
		}
		b.dev.Deliver(text(anna, "tell me"))
		if p := b.sent(); number(p) != "1/2" {
			t.Errorf("%q", p.Payload)
		}
		if p := b.sent(); number(p) != "2/2" {
			t.Errorf("%q", p.Payload)
		}
	})
}

// What the device says about a packet: some errors will be the same the next time, others not.
func TestDeviceRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		a    radiotest.Answer
		want int // packets in all
	}{
		{"duty cycle", radiotest.Answer{Error: 9}, 1},
		{"no key", radiotest.Answer{Error: 39}, 1},
		{"too large", radiotest.Answer{Error: 7}, 1},
		{"its queue", radiotest.Answer{Refuse: 33}, 1},
		{"nobody acknowledged", radiotest.Answer{Error: 5}, tries},
		{"no interface", radiotest.Answer{Error: 4}, tries},
		{"an error unknown here", radiotest.Answer{Error: 99}, tries},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, radiotest.Config{Answer: func(int, radiotest.Packet) radiotest.Answer { return tt.a }}, Config{Ask: says("short"), Share: 0.1})
				defer b.stop()
				b.up()
				b.dev.Deliver(text(anna, "tell me"))
				for range tt.want {
					b.sent()
				}
				b.silent(5 * time.Minute)
				if s := b.Status(); s.Dropped != 1 || s.Answered != 0 {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
}

// Acknowledgements that come twice, late, from another node or for another packet do not move a reply on.
func TestForeignAcknowledgements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{Answer: func(n int, _ radiotest.Packet) radiotest.Answer {
			return radiotest.Answer{Twice: n == 1, Silent: n == 2 || n == 3, After: time.Second}
		}}, Config{Ask: says(long(3)), Share: 0.1})
		defer b.stop()
		b.up()
		b.dev.Deliver(text(anna, "tell me"))
		first := b.sent()
		second := b.sent()
		if number(first) != "1/3" || number(second) != "2/3" {
			t.Fatalf("%q, %q", first.Payload, second.Payload)
		}
		ack := func(from, request, reason uint32) {
			b.dev.Deliver(radiotest.Packet{From: from, Port: routingApp, Request: request, Payload: []byte{0x18, byte(reason)}})
		}
		ack(anna, first.ID, 0)                                                                                                 // late
		ack(boris, second.ID, 0)                                                                                               // another's
		ack(boris, second.ID, 9)                                                                                               // another's refusal
		ack(anna, second.ID+1, 0)                                                                                              // another packet
		ack(own, second.ID, 0)                                                                                                 // passed on
		b.dev.Deliver(radiotest.Packet{From: anna, Port: routingApp, Request: second.ID})                                      // no error_reason
		b.dev.Deliver(radiotest.Packet{From: anna, Port: 3, Request: second.ID, Payload: []byte{0x18, 0}})                     // another application
		b.dev.Deliver(radiotest.Packet{From: anna, To: boris, Port: routingApp, Request: second.ID, Payload: []byte{0x18, 0}}) // another receiver
		b.silent(ackWait(2033664*time.Microsecond) - time.Minute)
		third := b.sent()
		if number(third) != "2/3" || third.ID == second.ID {
			t.Errorf("then %q", third.Payload)
		}
		// The end of the first try means nothing for the second; its acknowledgement, late as it is, does.
		ack(own, second.ID, 9)
		b.silent(time.Second)
		ack(anna, second.ID, 0)
		if p := b.sent(); number(p) != "3/3" {
			t.Errorf("then %q", p.Payload)
		}
	})
}

// A device that reboots in the middle of a reply gets the part again when it is back.
func TestRebootInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{Answer: func(n int, _ radiotest.Packet) radiotest.Answer { return radiotest.Answer{Reboot: n == 2} }},
			Config{Ask: says(long(3))})
		defer b.stop()
		b.up()
		b.dev.Deliver(text(anna, "tell me"))
		began := time.Now()
		for i, want := range []string{"1/3", "2/3", "2/3", "3/3"} {
			if p := b.sent(); number(p) != want {
				t.Errorf("packet %d is %q", i, number(p))
			}
		}
		synctest.Wait()
		if took := time.Since(began); took > 2*tryPause+firstWait {
			t.Errorf("it took %v: the lost connection was not noticed", took)
		}
		if setups, _ := b.dev.Seen(); setups != 2 || b.Status().Answered != 1 {
			t.Errorf("%d setups, status %+v", setups, b.Status())
		}
	})
}

// M5: the share of an hour is kept, retries included; a question beyond it gets a short word while that fits, then none,
// and neither is asked. An hour later there is room again.
func TestAirtimeBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{}, Config{Ask: says(long(9)), Questions: 60})
		defer b.stop()
		b.up()
		var total time.Duration
		answers, refusals, cut := 0, 0, 0
		m := presetOf(0)
		for range 30 {
			b.dev.Deliver(text(anna, "tell me"))
			synctest.Wait()
			for more := true; more; {
				select {
				case p := <-b.dev.Sent():
					total += m.onAir(&data{port: textApp, payload: p.Payload})
					switch {
					case string(p.Payload) == airWords:
						refusals++
					case strings.HasSuffix(string(p.Payload), cutMark):
						answers++
						if !strings.HasPrefix(string(p.Payload), "4/4") {
							cut++
						}
					}
				default:
					more = false
				}
			}
			if s := b.Status(); s.Used != total || s.Used > s.Allowed {
				t.Fatalf("%v sent, %v used of %v", total, s.Used, s.Allowed)
			}
		}
		s := b.Status()
		if answers != 4 || cut != 1 || refusals == 0 || int(s.Refused[NoAirtime]) != 30-answers || refusals >= 30-answers || b.questions() != answers {
			t.Errorf("%d answers, %d of them short, %d refusals, asked %d: %+v", answers, cut, refusals, b.questions(), s)
		}
		if left := s.Allowed - s.Used; left >= deviceSends*m.onAir(&data{port: textApp, payload: []byte(airWords)}) {
			t.Errorf("%v left unused", left)
		}
		b.silent(hour)
		if b.Status().Used != 0 {
			t.Errorf("an hour later %v are used", b.Status().Used)
		}
		b.dev.Deliver(text(anna, "tell me"))
		if p := b.sent(); number(p) != "1/4" {
			t.Errorf("an hour later: %q", p.Payload)
		}
	})
}

// Where retries use the share up, the rest of a reply is dropped.
func TestRetriesUseTheShareUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{Answer: func(n int, _ radiotest.Packet) radiotest.Answer { return radiotest.Answer{Silent: n != 1} }},
			Config{Ask: says(long(4))})
		defer b.stop()
		b.up()
		b.dev.Deliver(text(anna, "tell me"))
		for i, want := range []string{"1/4", "2/4", "2/4", "2/4"} {
			if p := b.sent(); number(p) != want {
				t.Errorf("packet %d is %q", i, number(p))
			}
		}
		b.silent(30 * time.Minute)
		b.dev.Deliver(text(anna, "tell me more"))
		b.silent(10 * time.Minute) // not even a refusal fits
		if s := b.Status(); s.Used > s.Allowed || s.Dropped != 1 || s.Refused[NoAirtime] != 1 || b.questions() != 1 {
			t.Errorf("status %+v", s)
		}
	})
}

// A preset that is too slow for the share is never used, and that is said.
func TestTooSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{Preset: 2}, Config{})
		defer b.stop()
		b.up()
		b.dev.Deliver(text(anna, "tell me"))
		b.silent(10 * time.Minute)
		if b.questions() != 0 || b.count(NoAirtime) != 1 || !strings.Contains(b.log.String(), "too slow") {
			t.Errorf("asked %q; log %s", b.asked, b.log.String())
		}
	})
}

// What goes out where there is no answer: an error's public words, never its cause.
func TestNoAnswer(t *testing.T) {
	for _, tt := range []struct {
		name string
		ask  func(context.Context, uint32, string) (string, error)
		want string
	}{
		{"blank", says(" \n"), noWords},
		{"a fault", func(context.Context, uint32, string) (string, error) {
			return "", fault.Wrap(errors.New("secret"), fault.Budget, "The budget of today is used up.")
		}, "The budget of today is used up."},
		{"another error", func(context.Context, uint32, string) (string, error) { return "", errors.New("secret") },
			"something went wrong inside the node; its log says what"},
		{"no end", func(ctx context.Context, _ uint32, _ string) (string, error) {
			<-ctx.Done()
			return "", fault.New(fault.Expired, "It took too long.")
		}, "It took too long."},
		{"a long fault", func(context.Context, uint32, string) (string, error) {
			return "", fault.New(fault.Failed, "%s", long(3))
		}, long(3)[:maxPart-len(cutMark)] + cutMark},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, radiotest.Config{}, Config{Ask: tt.ask})
				defer b.stop()
				b.up()
				b.dev.Deliver(text(anna, "tell me"))
				if p := b.sent(); string(p.Payload) != tt.want {
					t.Errorf("%q", p.Payload)
				}
				b.silent(time.Minute)
			})
		})
	}
}

// Two replies at a time take turns: the parts of one are not mixed with the other's.
func TestRepliesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{Answer: func(int, radiotest.Packet) radiotest.Answer { return radiotest.Answer{After: time.Second} }},
			Config{Ask: says(long(3))})
		defer b.stop()
		b.up()
		b.dev.Deliver(text(anna, "tell me"))
		b.dev.Deliver(text(carla, "and me"))
		var to []uint32
		for i := range 6 {
			p := b.sent()
			if want := string(rune('1'+i%3)) + "/3"; number(p) != want {
				t.Errorf("packet %d is %q, want %q", i, number(p), want)
			}
			to = append(to, p.To)
		}
		if to[0] != to[1] || to[1] != to[2] || to[3] != to[4] || to[4] != to[5] || to[0] == to[3] {
			t.Errorf("sent to %x", to)
		}
	})
}

// Two questions were taken while there was room for one answer: the second gets the short word.
func TestAirIsUsedUpMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		b := start(t, radiotest.Config{Answer: func(int, radiotest.Packet) radiotest.Answer { return radiotest.Answer{After: time.Second} }},
			Config{Share: 10.3 / 3600, Ask: func(context.Context, uint32, string) (string, error) { <-hold; return long(1), nil }})
		defer b.stop()
		b.up()
		b.dev.Deliver(text(anna, "tell me"))
		b.dev.Deliver(text(carla, "and me"))
		synctest.Wait()
		close(hold)
		first, second := b.sent(), b.sent()
		if string(first.Payload) != long(1) || string(second.Payload) != airWords || first.To == second.To {
			t.Errorf("%q, %q", first.Payload, second.Payload)
		}
		b.silent(10 * time.Minute)
		if s := b.Status(); s.Used > s.Allowed || s.Questions != 2 || s.Answered != 1 || s.Dropped != 1 || s.Refused[NoAirtime] != 1 {
			t.Errorf("status %+v", s)
		}
	})
}

// A queue that says a packet is no longer its own has not refused it.
func TestReleasedIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{Answer: func(int, radiotest.Packet) radiotest.Answer { return radiotest.Answer{Refuse: released} }}, Config{})
		defer b.stop()
		b.up()
		b.dev.Deliver(text(anna, "tell me one"))
		p := b.sent()
		b.dev.Deliver(radiotest.Packet{From: anna, Port: routingApp, Request: p.ID, Payload: []byte{0x18, 0}})
		b.silent(10 * time.Minute)
		if s := b.Status(); s.Answered != 1 {
			t.Errorf("status %+v", s)
		}
	})
}
