package chat

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/cli/client"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
	"atoll/internal/fence"
)

// allowFor is how long the prompt's standing permission lasts (C11).
const allowFor = time.Hour

// redrawEvery is how often the time left is drawn again.
const redrawEvery = 15 * time.Second

// prompt is the terminal's own question about one pending action. What it shows comes from the host alone (C6); it ends
// by the person's key or by what the node says, never by anything else.
type prompt struct {
	pending client.Pending
	pad     keypad
	stage   stage
	reason  term.Editor
	drawn   time.Time // when the row was last drawn
	mine    bool      // the decision was made here
}

type stage uint8

const (
	waking  stage = iota // keys do not count yet
	open                 // waiting for a key
	writing              // the reason is being typed
	sending              // the decision is on its way
)

// openPrompt shows the question. What was typed ahead is thrown away first.
func (c *Chat) openPrompt(p client.Pending, now time.Time) *prompt {
	letters := "ynr"
	if p.MayAllow {
		letters += "p"
	}
	c.flush()
	c.asked[p.Nonce] = true
	lines := question(p, c.cfg.Terminal.Width(), now)
	if _, rows := c.cfg.Terminal.Size(); len(lines)+4 > rows {
		lines = append(lines, "! This is longer than the screen: scroll up to read all of it before you decide.")
	}
	c.host(append(lines, "Read it first: keys count in a moment.")...)
	return &prompt{pending: p, pad: keypad{timing: c.cfg.Timing, letters: letters, opened: now}}
}

// question is the whole of what a person needs to decide (C6, C7).
func question(p client.Pending, columns int, now time.Time) []string {
	lines := []string{"", "──── Your decision ────", term.Clean(p.Summary)}
	field := func(name, value string) {
		const indent = 13
		for i, part := range term.Chunks(value, columns-len("│ ")-indent) {
			if i > 0 {
				name = ""
			}
			lines = append(lines, fmt.Sprintf("  %-10s %s", name, part))
		}
	}
	field("tool", term.Clean(p.Tool))
	shown, warnings := arguments(p.Arguments)
	for _, a := range shown {
		field(a.name, a.value)
	}
	if p.Target != "" {
		field("acts on", term.Clean(p.Target))
	}
	field("now", term.Clean(p.Before))
	field("then", term.Clean(p.After))
	if p.MaybeRan {
		lines = append(lines, "! This may already have run: the last time its outcome was not seen.")
	}
	if len(p.Untrusted) > 0 {
		lines = append(lines, "! The assistant has read text that others can write, from: "+list(p.Untrusted)+". It may have been led to ask this.")
	}
	for _, w := range slices.Concat(p.Warnings, warnings) {
		lines = append(lines, "! "+term.Clean(w))
	}
	return append(lines, fmt.Sprintf("Asked until %s. Nothing happens before you approve.", p.ExpiresAt.In(now.Location()).Format("15:04:05")))
}

type argument struct{ name, value string }

// arguments are the exact arguments in their order, with everything invisible made visible, and what there is to say
// about them.
func arguments(raw jsontext.Value) (shown []argument, warnings []string) {
	visible := func(s string) string {
		v, notes := fence.Visible(s)
		for _, n := range notes {
			warnings = append(warnings, "In "+v+": "+n)
		}
		return v
	}
	dec := jsontext.NewDecoder(strings.NewReader(string(raw)))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return []argument{{"arguments", visible(string(raw))}}, warnings
	}
	for dec.PeekKind() != '}' {
		tok, err := dec.ReadToken()
		if err != nil {
			break
		}
		name := tok.String() // before the decoder goes on: the token does not outlive that
		value, err := dec.ReadValue()
		if err != nil {
			break
		}
		var text string
		if s, err := jsontext.AppendUnquote(nil, value); err == nil && value.Kind() == '"' {
			text = `"` + visible(string(s)) + `"`
		} else {
			text = visible(string(value)) // digits stay as they are
		}
		shown = append(shown, argument{visible(name), text})
	}
	if _, err := dec.ReadToken(); err != nil {
		return []argument{{"arguments", visible(string(raw))}}, append(warnings, "the arguments could not be read: decline")
	}
	return shown, warnings
}

func list(words []string) string {
	clean := make([]string, len(words))
	for i, w := range words {
		clean[i] = term.Clean(w)
	}
	return strings.Join(clean, ", ")
}

// wake tells which keys there are, once they count.
func (c *Chat) wake(p *prompt) {
	keys := "[y] approve   [n] or Enter decline   [r] decline and say why"
	if p.pending.MayAllow {
		keys += "   [p] approve, and allow exactly this for 1 hour without asking"
	}
	c.host(keys)
	p.stage = open
}

// draw draws the prompt's row.
func (c *Chat) drawPrompt(p *prompt, now time.Time) {
	p.drawn = now
	left := max(0, p.pending.ExpiresAt.Sub(now)).Round(time.Second)
	clock := fmt.Sprintf("%d:%02d", int(left.Minutes()), int(left.Seconds())%60)
	switch p.stage {
	case open:
		c.drawRow(term.ClearRow + term.Gutter + "Decide with one key (" + clock + " left): ")
	case writing:
		c.drawRow(p.reason.Row(term.Gutter+"Why not? ", c.cfg.Terminal.Width()))
	case sending:
		c.drawRow(term.ClearRow + term.Gutter + "Sending your decision …")
	}
}

// closePrompt ends the question with the host's words.
func (c *Chat) closePrompt(words string) {
	c.flush() // keys meant for the question are no message
	c.drawRow(term.ClearRow)
	c.host(words)
}

// endedWords says how a question ended.
func endedWords(outcome fault.Code, mine bool) string {
	elsewhere := " elsewhere"
	if mine {
		elsewhere = ""
	}
	switch outcome {
	case client.Approved:
		return "Approved" + elsewhere + "."
	case fault.Declined:
		return "Declined" + elsewhere + "; nothing was changed."
	case fault.Expired:
		return "Nobody decided in time; nothing was changed."
	case fault.Cancelled:
		return "The turn was stopped; nothing was changed."
	case fault.Dropped:
		return "The node was restarted; nothing was changed."
	}
	return "The question has ended (" + term.Clean(string(outcome)) + "); it was not approved here."
}
