package rules

import (
	"slices"
	"time"
)

// Call is what a model asks for. Arg names an app or a theme; Bad says that the arguments do not fit the schema.
type Call struct {
	Tool, Arg string
	Bad       bool
}

// Round is one answer of the model; a Cut one met the token limit (T12).
type Round struct {
	Calls []Call
	Cut   bool
}

// Outcome is what came of one call.
type Outcome struct {
	Tool, Outcome string
	Code          Code
}

// Turn is one message and what its model does, whatever it is told.
type Turn struct {
	Who, Session, Talk string
	Peer               bool
	Done               bool
	Code               Code // how it ended
	Outcomes           []Outcome
	Changes            []string // "app_restart done" (T11)
	Offers             []string // T8
	Rounds             int

	role              int
	plan              []Round
	round, at         int
	judged            []int // of this round: 1 fits, -1 does not (T6)
	begun, wallBegun  time.Duration
	conv              *conversation
	earlier, outside  bool // third parties' text from before, and of this turn
	declined          map[string]bool
	declines, dialogs int
	invalid           map[string]int
	recent            []string
	met               []string
	touched           map[string]bool
	waiting           *Pending
	hanging           time.Duration // when a silent handler is given up; zero is none
	dead              Code          // why it ends once its handler is given up
	last              bool
}

// Chat begins a turn of a person (G4, A4). The turn goes on until it asks or ends.
func (w *World) Chat(session, talk string, plan []Round) (*Turn, Code) {
	if code := w.may(session, Member); code != "" {
		return nil, code
	}
	if !w.allow(session, 60) || !w.allow(person(session), 120) {
		return nil, "rate_limited"
	}
	if w.Mode == "off" {
		return nil, "off"
	}
	return w.begin(&Turn{Who: person(session), Session: session, Talk: talk, role: w.Roles[person(session)], plan: plan})
}

// Blank is a chat that is counted and then refused for want of a message.
func (w *World) Blank(session string) Code {
	if code := w.may(session, Member); code != "" {
		return code
	}
	if !w.allow(session, 60) || !w.allow(person(session), 120) {
		return "rate_limited"
	}
	return "invalid_params"
}

func (w *World) allow(key string, most int) bool {
	recent := slices.DeleteFunc(w.chats[key], func(at time.Duration) bool { return w.now-at >= 5*time.Minute })
	ok := len(recent) < most
	if ok {
		recent = append(recent, w.now)
	}
	w.chats[key] = recent
	return ok
}

// Ask begins a turn of a peer (A5, M2): nothing open, no turn.
func (w *World) Ask(peer, talk string, plan []Round) (*Turn, Code) {
	t := &Turn{Who: peer, Talk: talk, Peer: true, plan: plan, outside: true}
	if n := len(slices.DeleteFunc(slices.Clone(w.turns), func(o *Turn) bool { return !o.Peer || o.Who != peer })); n >= 2 {
		return nil, "busy"
	}
	if code := w.leak(t); code != "" {
		return nil, code
	}
	if c := w.talks[peer+" "+talk]; c != nil && w.closed(t, c.touched) {
		delete(w.talks, peer+" "+talk) // what holds closed things is not continued
	}
	return w.begin(t)
}

func (w *World) begin(t *Turn) (*Turn, Code) {
	name := t.Who + " " + t.Talk
	c := w.talks[name]
	switch {
	case c == nil:
		c = &conversation{touched: map[string]bool{}, offered: map[string]bool{}}
		w.talks[name] = c
	case c.running != nil:
		return nil, "busy"
	}
	c.running, t.conv, t.earlier = t, c, slices.Contains(c.outside, true)
	t.begun, t.wallBegun = w.now, w.wall()
	t.declined, t.invalid, t.touched = map[string]bool{}, map[string]int{}, map[string]bool{}
	w.turns = append(w.turns, t)
	w.run(t)
	return t, ""
}

func (t *Turn) time() time.Duration {
	if t.Peer {
		return peerTime
	}
	return turnTime
}

// closed reports whether something of it is not open to the turn's peer any more; leak is A5 whenever words would leave.
func (w *World) closed(t *Turn, used map[string]bool) bool {
	for cat := range used {
		if !w.open(t, cat) {
			return true
		}
	}
	return false
}

func (w *World) leak(t *Turn) Code {
	if !t.Peer {
		return ""
	}
	any := false
	for cat := range w.ceilings[t.Who] {
		any = any || w.open(t, cat)
	}
	switch {
	case w.Mode == "off":
		return "off"
	case !any || w.closed(t, t.touched) || t.conv != nil && w.closed(t, t.conv.touched):
		return "not_granted"
	}
	return ""
}

// run takes the turn on until it waits or ends.
func (w *World) run(t *Turn) {
	for !t.Done {
		if code := w.leak(t); code != "" && t.at == 0 {
			w.end(t, code)
			return
		}
		if t.round == len(t.plan) {
			t.Rounds++
			w.end(t, "")
			return
		}
		r := t.plan[t.round]
		if t.at == 0 {
			t.Rounds, t.judged = t.Rounds+1, nil
			if t.last || t.Rounds == maxRounds { // T7, T13: whatever it still asks for is not run
				for _, c := range r.Calls {
					t.out(c, "refused", "loop")
				}
				w.end(t, "")
				return
			}
		}
		for ; t.at < len(r.Calls); t.at++ {
			if w.call(t, r.Calls[t.at], t.at, r.Cut); t.waiting != nil || t.hanging > 0 {
				return
			}
		}
		w.verdict(t, r)
	}
}

func (t *Turn) out(c Call, outcome string, code Code) {
	t.Outcomes = append(t.Outcomes, Outcome{c.Tool, outcome, code})
}

// verdict is T6 and T13, after a round.
func (w *World) verdict(t *Turn, r Round) {
	t.round, t.at = t.round+1, 0
	for i, c := range r.Calls {
		switch t.judged[i] {
		case 1:
			t.invalid[c.Tool] = 0
		case -1:
			t.invalid[c.Tool]++
		}
		if t.invalid[c.Tool] > 2 {
			w.end(t, "")
			return
		}
	}
	s, n := t.recent, len(t.recent)
	t.last = n >= 3 && s[n-1] == s[n-2] && s[n-2] == s[n-3] ||
		n >= 4 && s[n-1] == s[n-3] && s[n-2] == s[n-4] && s[n-1] != s[n-2]
}

// end closes the turn. Its changes are told only in an answer; what it read stays with the conversation (U3).
func (w *World) end(t *Turn, code Code) {
	for cat := range t.touched {
		t.conv.touched[cat] = true
	}
	if barred := w.leak(t); barred != "" {
		code = barred
	}
	t.Done, t.Code = true, code
	t.conv.running = nil
	if t.Peer && code != "" && len(t.conv.outside) == 0 {
		delete(w.talks, t.Who+" "+t.Talk) // a peer learns a conversation's name with its first answer
	}
	t.conv.outside = append(t.conv.outside, t.outside || t.earlier && len(t.Changes) > 0)
	w.turns = slices.DeleteFunc(w.turns, func(o *Turn) bool { return o == t })
	if code != "" || t.role != Owner || t.outside || t.earlier {
		return
	}
	for _, cat := range t.met { // T8: once a category and conversation
		if !t.conv.offered[cat] {
			t.conv.offered[cat] = true
			t.Offers = append(t.Offers, cat)
		}
	}
}

// Stop cancels every turn: the node is about to stop in order.
func (w *World) Stop() { w.stop(func(*Turn) bool { return true }) }

// stop cancels turns, and with them what they ask (C9). A handler that was started is looked after for a moment.
func (w *World) stop(which func(*Turn) bool) {
	for _, t := range slices.Clone(w.turns) {
		if which(t) {
			w.cancel(t, "cancelled")
		}
	}
}

func (w *World) cancel(t *Turn, why Code) {
	if t.hanging > 0 {
		if t.dead == "" {
			t.hanging, t.dead = min(t.hanging, w.now+time.Second), why
		}
		return
	}
	if t.waiting != nil {
		w.close(t.waiting, "cancelled")
	}
	w.end(t, why)
}

// Cancel stops the turn of one's own conversation.
func (w *World) Cancel(session, talk string) Code {
	if code := w.may(session, Member); code != "" {
		return code
	}
	c := w.talks[person(session)+" "+talk]
	if c == nil || c.running == nil {
		return "not_found"
	}
	w.cancel(c.running, "cancelled")
	return ""
}

// Undo takes the last turn out of the conversation, not out of the world (H7).
func (w *World) Undo(session, talk string) Code {
	if code := w.may(session, Member); code != "" {
		return code
	}
	c := w.talks[person(session)+" "+talk]
	switch {
	case c == nil:
		return "not_found"
	case c.running != nil:
		return "busy"
	case len(c.outside) == 0:
		return "rule"
	}
	c.outside = c.outside[:len(c.outside)-1]
	return ""
}

// Running reports whether a turn runs in the conversation.
func (w *World) Running(who, talk string) bool {
	c := w.talks[who+" "+talk]
	return c != nil && c.running != nil
}

// moments are the times at which something of the turn ends by itself.
func (t *Turn) moments() []time.Duration {
	if t.hanging > 0 {
		if t.dead == "" && t.begun+t.time() < t.hanging {
			return []time.Duration{t.begun + t.time()}
		}
		return []time.Duration{t.hanging}
	}
	out := []time.Duration{t.begun + t.time()}
	if t.waiting != nil {
		out = append(out, t.waiting.span.start+t.waiting.span.length)
	}
	return out
}

// due ends what is over by the clock that only runs forward.
func (w *World) due(t *Turn) {
	switch {
	case t.hanging > 0 && w.now >= t.hanging:
		w.unknown(t)
	case w.now >= t.begun+t.time():
		w.cancel(t, "model_failed")
	case t.waiting != nil && w.now >= t.waiting.span.start+t.waiting.span.length:
		w.answered(t.waiting, "expired")
	}
}
