package chat

import (
	"context"
	"time"

	"atoll/internal/cli/client"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
)

// offerTime is how long a category is opened by default (T8).
const offerTime = time.Hour

// offer tells which categories the turn found closed and lets the owner open them. It is a line, not a dialog: whoever
// goes on typing has said no. It reports whether the message should be asked again.
func (c *Chat) offer(ctx context.Context, offers []client.Offer) (again bool, err error) {
	for _, o := range offers {
		if c.cfg.Terminal == nil {
			c.host(offerWords(o)...)
			c.host(c.offerHint(o) + " opens it for an hour.")
			continue
		}
		opened, err := c.offerOne(ctx, o)
		if err != nil {
			return false, err
		}
		again = again || opened
	}
	return again, nil
}

func offerWords(o client.Offer) []string {
	where := "What it reads is sent to " + term.Clean(o.Host) + "."
	if o.Host == "" || o.Host == "this machine" {
		where = "What it reads stays on this machine."
	}
	lines := []string{"The category " + term.Clean(o.Category) + " is closed to the assistant. " + where}
	if len(o.Tools) > 0 {
		lines = append(lines, "It would also open what changes something, each asked first: "+list(o.Tools)+".")
	}
	return lines
}

// offerOne waits for one key.
func (c *Chat) offerOne(ctx context.Context, o client.Offer) (opened bool, err error) {
	c.flush()
	pad := keypad{timing: c.cfg.Timing, letters: "hp", opened: time.Now()}
	c.host(offerWords(o)...)
	awake := false
	for {
		now := time.Now()
		if !awake && !now.Before(pad.awake()) {
			awake = true
			c.drawRow(term.ClearRow + term.Gutter + "Open it? [h] for an hour  [p] for good  any other key: no ")
		}
		timer := time.NewTimer(max(0, c.offerDue(&pad, now).Sub(now)))
		var ch choice
		select {
		case <-ctx.Done():
			timer.Stop()
			c.drawRow(term.ClearRow)
			return false, ctx.Err()
		case ev := <-c.listener.events:
			c.onIdleEvent(ev)
		case <-timer.C:
			ch = pad.tick(time.Now())
		case k := <-c.keys():
			if !c.cfg.Terminal.Fresh(k) {
				break
			}
			if ch = pad.key(k, time.Now()); k.Kind == term.HangUp || ch != noChoice && ch != 'h' && ch != 'p' {
				c.closed = k.Kind == term.HangUp
				return false, c.offerDone(o)
			}
			if ch == noChoice && pad.held == 0 && awake { // somebody types a message
				c.typeAhead(pad.ignored...)
				return false, c.offerDone(o)
			}
		}
		timer.Stop()
		if ch != noChoice {
			return c.open(ctx, o.Category, ch == 'p')
		}
	}
}

// offerDue is when the offer's loop has to look again.
func (c *Chat) offerDue(pad *keypad, now time.Time) time.Time {
	if at := pad.next(now); !at.IsZero() {
		return at
	}
	return now.Add(time.Hour)
}

func (c *Chat) offerDone(o client.Offer) error {
	c.drawRow(term.ClearRow)
	c.host("Left closed. " + c.offerHint(o) + " opens it later.")
	return nil
}

// offerHint is the command that opens the category.
func (c *Chat) offerHint(o client.Offer) string {
	if c.talking {
		return "/open " + term.Clean(o.Category)
	}
	return "`atoll grants open " + term.Clean(o.Category) + " --for 1h`"
}

func (c *Chat) open(ctx context.Context, category string, forGood bool) (bool, error) {
	c.drawRow(term.ClearRow)
	d := offerTime
	if forGood {
		d = 0
	}
	if err := c.setGrant(ctx, category, true, d); err != nil {
		c.host("Not opened: " + words(err) + ".")
		if fault.Is(err, fault.Unauthenticated) {
			return false, err
		}
		return false, nil
	}
	return true, nil
}

// setGrant opens a category for d (0: for good) or closes it, and says so.
func (c *Chat) setGrant(ctx context.Context, category string, granted bool, d time.Duration) error {
	s := client.Grant{Granted: granted}
	if granted && d > 0 {
		s.ExpiresAt = time.Now().Add(d).UTC().Truncate(time.Second)
	}
	params := map[string]map[string]client.Grant{"grants": {category: s}}
	if err := c.cfg.Client.Call(ctx, "assistant.grants-set", params, nil); err != nil {
		return err
	}
	name := term.Clean(category)
	switch {
	case !granted:
		c.host("Closed: " + name + ".")
	case d == 0:
		c.host("Open until you close it: " + name + ".")
	default:
		c.host("Open until " + s.ExpiresAt.Local().Format("15:04") + ": " + name + ".")
	}
	return nil
}
