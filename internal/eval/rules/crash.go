package rules

import (
	"fmt"
	"slices"
	"time"
)

// Restart is the start after Stop: nothing waits, nothing runs (C3).
func (w *World) Restart() { w.started() }

// started is what a start does to what was kept.
func (w *World) started() {
	w.chats = map[string][]time.Duration{}
	for _, c := range w.talks {
		c.offered = map[string]bool{}
	}
	for _, p := range w.Questions {
		if w.wall()-p.ended > keptTime && p.State != "gone" {
			p.State = "forgotten"
		}
	}
	for key, at := range w.Unknown {
		if w.wall()-at > keptTime {
			delete(w.Unknown, key)
		}
	}
	for cat, g := range w.Grants {
		if g.Span.length > 0 {
			w.Grants[cat] = Grant{w.resumed(g.Span)}
		}
	}
	for i := range w.Permits {
		w.Permits[i].span = w.resumed(w.Permits[i].span)
	}
	for peer, s := range w.Mutes {
		left := min(s.until-w.wall(), muteTime)
		if w.wall()+setBack < s.since {
			left = muteTime // the clock was set back: that opens nothing
		}
		w.Mutes[peer] = w.span(max(left, 0))
	}
	w.Settled()
}

// resumed goes on with a time from what is written down of it: two readings of the wall's clock.
func (w *World) resumed(s Span) Span {
	left := s.until - w.wall()
	if w.wall()+setBack < s.since {
		left = 0
	}
	return Span{start: w.now, drift: w.drift, length: max(left, 1), since: s.since, until: s.until}
}

// Seen is what a node says of itself after it was killed and started again.
type Seen struct {
	Mode     string
	Grants   []string
	Roles    map[string]int
	Sessions map[string]bool
	Permits  map[string]int // "who key" → uses within the last hour
	Mutes    map[string]bool
	Unknown  []string       // the actions that it reported as unknown
	Ran      map[string]int // of the world: what had run when it died
	Apps     map[string]App
	Theme    string
	Down     time.Duration // from the kill to the start
}

// Crash is kill -9 somewhere within a step, and a start. Each thing is as it was before the step, or as after it, and what
// was dispatched is spent. before is the state ahead of the step; the World itself is the one after it.
func (w *World) Crash(before Durable, s Seen) error {
	for _, t := range w.turns {
		t.conv.running = nil
	}
	w.now += s.Down
	after := w.Durable
	if s.Mode != before.Mode && s.Mode != after.Mode {
		return fmt.Errorf("the mode is %s, neither %s nor %s", s.Mode, before.Mode, after.Mode)
	}
	if err := w.crashedGrants(before, s); err != nil {
		return err
	}
	for who, role := range s.Roles {
		if role != before.Roles[who] && role != after.Roles[who] {
			return fmt.Errorf("the role of %s is %d", who, role)
		}
	}
	for session := range before.Sessions {
		if !s.Sessions[session] && after.Sessions[session] {
			return fmt.Errorf("the session %s is lost", session)
		}
	}
	if err := w.crashedPermits(before, s); err != nil {
		return err
	}
	for key, n := range s.Ran {
		if n < before.Ran[key] || n > after.Ran[key] {
			return fmt.Errorf("%s ran %d times, not %d to %d times", key, n, before.Ran[key], after.Ran[key])
		}
	}
	for key, n := range s.Ran {
		if at, was := before.Unknown[key]; was && n == before.Ran[key] {
			w.Unknown[key] = at
		}
	}
	for peer := range w.Mutes {
		if _, was := before.Mutes[peer]; !was && !s.Mutes[peer] {
			delete(w.Mutes, peer)
		}
	}
	for session := range w.listening {
		w.listening[session] = w.listening[session] && s.Sessions[session]
	}
	w.Mode, w.Roles, w.Sessions, w.Ran, w.Apps, w.Theme = s.Mode, s.Roles, s.Sessions, s.Ran, s.Apps, s.Theme
	for _, key := range s.Unknown {
		w.Unknown[key] = w.wall()
	}
	w.turns = nil
	w.started()
	return nil
}

func (w *World) crashedGrants(before Durable, s Seen) error {
	next := map[string]Grant{}
	for _, cat := range s.Grants {
		g, ok := w.Grants[cat]
		if !ok {
			g, ok = before.Grants[cat]
		}
		if !ok {
			return fmt.Errorf("%s is open, and was opened by nobody", cat)
		}
		next[cat] = g
	}
	for cat := range w.Grants {
		if _, was := before.Grants[cat]; was && !slices.Contains(s.Grants, cat) && w.granted(cat) {
			return fmt.Errorf("the grant of %s is lost", cat)
		}
	}
	w.Grants = next
	return nil
}

func (w *World) crashedPermits(before Durable, s Seen) error {
	var next []Permission
	for name, uses := range s.Permits {
		is := func(p Permission) bool { return p.Who+" "+p.Key == name }
		both := slices.DeleteFunc(slices.Concat(w.Permits, before.Permits), func(p Permission) bool { return !is(p) })
		i := slices.IndexFunc(both, func(p Permission) bool { return w.Uses(p) >= uses }) // it may have died before the step's last use
		if i < 0 {
			return fmt.Errorf("there is a permission of %s with %d uses, which nobody gave", name, uses)
		}
		p := both[i]
		if s.Roles[p.Who] != before.Roles[p.Who] {
			return fmt.Errorf("a permission of %s outlived the change of role", name)
		}
		p.uses = p.uses[:len(p.uses)-(w.Uses(p)-uses)]
		next = append(next, p)
	}
	slices.SortFunc(next, func(a, b Permission) int { return int(a.span.start - b.span.start) })
	w.Permits = next
	return nil
}

// Forget takes out what a crash left uncertain: the questions, and of each conversation in which a turn ran what cannot be
// told: such a conversation is not continued under its name.
func (w *World) Forget(ran map[string]bool) {
	for _, p := range w.Questions {
		if p.State == "waiting" || p.turn != nil && ran[p.turn.Who+" "+p.turn.Talk] {
			p.State = "gone"
		}
	}
	for name := range ran {
		delete(w.talks, name)
	}
}
