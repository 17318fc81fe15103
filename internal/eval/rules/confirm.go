package rules

import (
	"slices"
	"strings"
	"time"
)

// call takes one call through the choke point in the order of T2.
func (w *World) call(t *Turn, c Call, index int, cut bool) {
	t.judged = append(t.judged, 0)
	tool, known := find(c.Tool)
	refuse := func(code Code, judged int) {
		t.judged[index] = judged
		t.out(c, "refused", code)
	}
	switch {
	case cut:
		refuse("truncated", 0)
		return
	case index >= 32:
		refuse("too_many_calls", 0)
		return
	case !known:
		refuse("unknown_tool", -1)
		return
	}
	if code := w.offered(t, tool); code != "" {
		if code == "not_granted" && !w.open(t, tool.Category) && !t.outside && !t.earlier && !slices.Contains(t.met, tool.Category) {
			t.met = append(t.met, tool.Category)
		}
		t.recent = append(t.recent, c.signature())
		refuse(code, 0)
		return
	}
	t.touched[tool.Category] = true
	if c.Bad {
		refuse("invalid_arguments", -1)
		return
	}
	t.judged[index] = 1
	t.recent = append(t.recent, c.signature())
	if code := w.rule(tool, c); code != "" {
		refuse(code, 1)
		return
	}
	if !tool.Destructive {
		w.Ran[c.key()]++
		t.outside = t.outside || tool.Outside
		t.out(c, "done", "")
		return
	}
	if code := w.confirmed(t, tool, c); code != "" {
		refuse(code, 1)
	}
}

// signature is what makes two calls the same as the model wrote them; key is the action itself, names resolved.
func (c Call) signature() string { return c.Tool + " " + c.Arg }

func (c Call) key() string {
	if c.Arg == "jelly" {
		c.Arg = "jellyfin"
	}
	return strings.TrimSpace(c.Tool + " " + c.Arg)
}

func (c Call) target() string { _, app, _ := strings.Cut(c.key(), " "); return app }

// rule refuses what could not succeed: nobody is asked about it.
func (w *World) rule(tool Tool, c Call) Code {
	_, there := w.Apps[c.target()]
	if strings.HasPrefix(c.Arg, "!") || tool.Category == "apps" && tool.Name != "app_list" && !there {
		return "rule"
	}
	return ""
}

// offered is T1, A3, A4, A5 and M3.
func (w *World) offered(t *Turn, tool Tool) Code {
	switch {
	case w.Mode == "off":
		return "off"
	case t.Peer && (!tool.Peers || tool.Destructive && !w.asking[t.Who]), !t.Peer && t.role < tool.Role, !w.open(t, tool.Category):
		return "not_granted"
	case w.Mode == "read-only" && tool.Destructive:
		return "read_only"
	}
	return ""
}

// before is the state that a dialog shows (C7); print is what else makes the target the one that was shown.
func (w *World) before(c Call) (state string, print int) {
	if c.Tool == "settings_set" {
		return w.Theme, 0
	}
	a := w.Apps[c.target()]
	return a.State, a.Print
}

// confirmed is C5, T10, C10, C11, M3: it refuses, lets pass, or asks.
func (w *World) confirmed(t *Turn, tool Tool, c Call) Code {
	key := c.key()
	switch {
	case t.declined[key], t.declines >= 2:
		return "declined"
	case t.dialogs >= 5:
		return "too_many_calls"
	}
	tainted := t.outside || t.earlier
	at, unsure := w.Unknown[key]
	unsure = unsure && w.wall()-at < keptTime
	state, print := w.before(c)
	if tool.Allowable && !tainted && !t.Peer && !unsure && w.use(t.Who, key, print) {
		w.dispatch(t, c)
		return ""
	}
	t.dialogs++
	if !w.listener(t) {
		return "nobody_to_ask"
	}
	left := min(pendingTime, t.wallBegun+t.time()-w.wall()-margin)
	if left <= 0 {
		return "expired"
	}
	p := &Pending{Tool: c.Tool, Key: key, Before: state, Untrusted: tainted, MayAllow: tool.Allowable && !tainted && !t.Peer, MaybeRan: unsure,
		State: "waiting", turn: t, who: t.Who, span: w.span(left), print: print}
	if t.Peer {
		if mute, ok := w.Mutes[t.Who]; ok && w.now-mute.start < mute.length { // only time ends it
			t.declined[key], t.declines = true, t.declines+1
			return "declined"
		}
		if slices.ContainsFunc(w.turns, func(o *Turn) bool { return o.Peer && o.Who == t.Who && o.waiting != nil }) {
			return "busy"
		}
		p.who = ""
	}
	w.Questions = append(w.Questions, p)
	t.waiting = p
	return ""
}

// listener is C10: a stream of somebody who may decide.
func (w *World) listener(t *Turn) bool {
	for s, on := range w.listening {
		if on && (w.Roles[person(s)] == Owner || !t.Peer && person(s) == t.Who) {
			return true
		}
	}
	return false
}

// use spends one use of a standing permission, where there is one: three an hour, this target only.
func (w *World) use(who, key string, print int) bool {
	for i, p := range w.Permits {
		if p.Who != who || p.Key != key || p.print != print || w.over(p.span) {
			continue
		}
		recent := slices.DeleteFunc(slices.Clone(p.uses), func(at time.Duration) bool { return w.wall()-at >= time.Hour })
		if len(recent) >= 3 {
			continue
		}
		w.Permits[i].uses = append(recent, w.wall())
		return true
	}
	return false
}

// Uses is how often a permission was used within the last hour.
func (w *World) Uses(p Permission) int {
	return len(slices.DeleteFunc(slices.Clone(p.uses), func(at time.Duration) bool { return w.wall()-at >= time.Hour }))
}

// Answer is what somebody says to a question.
type Answer struct {
	Approve  bool
	WrongKey bool
	Allow    time.Duration
}

// Decide is C1, C2, C4, C8, C11: who may answer, to what, until when.
func (w *World) Decide(session string, n int, a Answer) Code {
	if code := w.may(session, Member); code != "" {
		return code
	}
	if n < 1 || n > len(w.Questions) {
		return "not_found"
	}
	p := w.Questions[n-1]
	forgotten := p.State == "forgotten"
	mine := p.who != "" && p.who == person(session) || w.Roles[person(session)] == Owner
	switch {
	case forgotten:
		return "not_found"
	case !mine:
		return "forbidden"
	case a.WrongKey:
		return "invalid_params"
	case p.State != "waiting":
		return p.afterwards(a)
	case w.over(p.span):
		w.answered(p, "expired")
		return "expired"
	case !a.Approve:
		w.dropPermits(func(q Permission) bool { return q.Who == p.who && q.Key == p.Key })
		w.answered(p, "declined")
		return ""
	case w.now-p.span.start < inert:
		return "too_soon"
	case a.Allow > 0 && !p.MayAllow:
		return "rule"
	}
	p.allow = a.Allow
	w.answered(p, "approved")
	return ""
}

// afterwards says how it ended; the same answer again is fine and runs nothing (C2).
func (p *Pending) afterwards(a Answer) Code {
	switch {
	case p.State == "approved" && a.Approve, p.State == "declined" && !a.Approve:
		return ""
	case p.State == "approved":
		return "rule"
	}
	return p.State
}

func (w *World) close(p *Pending, how Code) {
	p.State, p.ended = how, w.wall()
	p.turn.waiting = nil
}

// answered ends the question and takes its turn on.
func (w *World) answered(p *Pending, how Code) {
	t := p.turn
	c := t.plan[t.round].Calls[t.at]
	w.close(p, how)
	switch how {
	case "approved":
		if code := w.again(p, c); code != "" {
			p.State = code
			t.out(c, "refused", code)
			break
		}
		if p.allow > 0 {
			w.permit(p)
		}
		if w.dispatch(t, c); t.hanging > 0 {
			return
		}
	case "declined":
		t.declined[p.Key], t.declines = true, t.declines+1
		if t.Peer {
			w.Mutes[t.Who] = w.span(muteTime)
		}
		fallthrough
	default:
		t.out(c, "refused", how)
	}
	t.at++
	w.run(t)
}

// again is T2's second look: what changed while the question stood is not run.
func (w *World) again(p *Pending, c Call) Code {
	tool, _ := find(c.Tool)
	state, print := w.before(c)
	if w.offered(p.turn, tool) != "" || state != p.Before || print != p.print {
		return "changed"
	}
	return ""
}

// permit keeps the permission that came with an approval, in the place of an older one, whose uses still count.
func (w *World) permit(p *Pending) {
	next := Permission{Who: p.who, Key: p.Key, print: p.print, span: w.span(min(p.allow, 24*time.Hour))}
	for _, q := range w.Permits {
		if q.Who == p.who && q.Key == p.Key {
			next.uses = append(next.uses, q.uses...)
		}
	}
	w.dropPermits(func(q Permission) bool { return q.Who == p.who && q.Key == p.Key })
	w.Permits = append(w.Permits, next)
}

// dispatch runs the handler: the world changes here and nowhere else.
func (w *World) dispatch(t *Turn, c Call) {
	w.Ran[c.key()]++
	switch w.handler {
	case "hang":
		t.hanging = w.now + handlerTime
		return
	case "fail":
		w.ran(t, c, "failed", "failed")
		return
	}
	switch {
	case c.Tool == "settings_set":
		w.Theme = c.Arg
	case c.Tool == "app_stop":
		w.Set(c.target(), "stopped")
	default:
		w.Set(c.target(), "running")
	}
	w.ran(t, c, "done", "")
}

func (w *World) ran(t *Turn, c Call, outcome string, code Code) {
	delete(w.Unknown, c.key())
	if outcome == "unknown" {
		w.Unknown[c.key()] = w.wall()
	}
	t.out(c, outcome, code)
	t.Changes, t.recent = append(t.Changes, c.Tool+" "+outcome), nil
}

// unknown gives a silent handler up (T14).
func (w *World) unknown(t *Turn) {
	c := t.plan[t.round].Calls[t.at]
	t.hanging = 0
	w.ran(t, c, "unknown", "outcome_unknown")
	if t.dead != "" {
		w.end(t, t.dead)
		return
	}
	t.at++
	w.run(t)
}
