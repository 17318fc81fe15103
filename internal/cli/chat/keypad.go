package chat

import (
	"strings"
	"time"

	"atoll/internal/cli/term"
)

// keypad decides which key press is a decision. A finger that was typing something else decides nothing: keys are
// ignored for a time after the prompt opened, after other keys, and when others come with or right after them.
type keypad struct {
	timing  Timing
	letters string // the letters that mean something
	opened  time.Time
	noise   time.Time // the last key that was ignored
	held    rune      // a letter that decides unless another key follows
	heldAt  time.Time
	ignored []term.Key
}

// choice is a decision: one of the letters, or one of these.
type choice rune

const (
	noChoice choice = 0
	enter    choice = '\r'
	escaped  choice = 0x1b
	stopped  choice = 0x03
)

// awake is when keys begin to count.
func (p *keypad) awake() time.Time { return p.opened.Add(p.timing.Inert) }

// key takes a key press.
func (p *keypad) key(k term.Key, now time.Time) choice {
	held := p.held
	p.held = 0
	quiet := !now.Before(p.awake()) && (p.noise.IsZero() || now.Sub(p.noise) >= p.timing.Quiet)
	switch {
	case now.Before(p.awake()):
	case k.Kind == term.Esc:
		return escaped
	case k.Kind == term.CtrlC:
		return stopped
	case k.Kind == term.Enter && held != 0 && !k.More:
		return choice(held)
	case held != 0:
		p.ignored = append(p.ignored, term.Key{Kind: term.Rune, Rune: held})
	case k.Kind == term.Enter && quiet && !k.More:
		return enter
	case k.Kind == term.Rune && quiet && strings.ContainsRune(p.letters, k.Rune):
		p.held, p.heldAt = k.Rune, now
		return noChoice
	}
	p.noise = now
	if len(p.ignored) < maxAhead {
		p.ignored = append(p.ignored, k)
	}
	return noChoice
}

// tick is called as time passes.
func (p *keypad) tick(now time.Time) choice {
	if p.held == 0 || now.Sub(p.heldAt) < p.timing.Settle {
		return noChoice
	}
	held := p.held
	p.held = 0
	return choice(held)
}

// next is when tick should be called; zero if only a key can change something.
func (p *keypad) next(now time.Time) time.Time {
	switch {
	case p.held != 0:
		return p.heldAt.Add(p.timing.Settle)
	case now.Before(p.awake()):
		return p.awake()
	}
	return time.Time{}
}
