package sequence

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/confirm"
	"atoll/internal/eval/rules"
	"atoll/internal/history"
)

var errLost = errors.New("an answer that was given is not in the history (H1)")

func (p *player) questions() []confirm.Pending {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	return slices.Clone(p.b.asked)
}

// compare holds the node against the rules: what ran, what is asked, what is open, how the turns stand.
func (p *player) compare() error {
	return errors.Join(p.compareRan(), p.compareQuestions(), p.compareTurns(), p.compareOpen(), p.comparePermits())
}

func (p *player) compareRan() error {
	o := p.b.out
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(o.ran)) {
		if o.ran[key] > p.w.Ran[key] {
			return fmt.Errorf("%s ran %d times, by the rules %d", key, o.ran[key], p.w.Ran[key])
		}
	}
	if !maps.Equal(o.ran, p.w.Ran) || !maps.Equal(o.apps, p.w.Apps) || o.theme != p.w.Theme {
		return fmt.Errorf("ran %v, by the rules %v; apps %v, %v; theme %s, %s", o.ran, p.w.Ran, o.apps, p.w.Apps, o.theme, p.w.Theme)
	}
	return nil
}

// action is what a question is about, as the rules name it.
func action(q confirm.Pending) string {
	var args map[string]any
	if json.Unmarshal(q.Arguments, &args) != nil {
		return q.Tool + " ?"
	}
	if q.Tool == "settings_set" {
		return fmt.Sprint(q.Tool, " ", args["value"])
	}
	return fmt.Sprint(q.Tool, " ", args["app"])
}

func (p *player) compareQuestions() error {
	asked := p.questions()
	if len(asked) != len(p.w.Questions) {
		return fmt.Errorf("%d questions were asked, by the rules %d", len(asked), len(p.w.Questions))
	}
	for ; p.seen < len(asked); p.seen++ {
		q, want := asked[p.seen], p.w.Questions[p.seen]
		p.keys[q.ActionKey] = action(q)
		got := rules.Pending{Tool: q.Tool, Key: action(q), Before: q.Before, Untrusted: len(q.Untrusted) > 0, MayAllow: q.MayAllow, MaybeRan: q.MaybeRan}
		if got.Tool != want.Tool || got.Key != want.Key || got.Before != want.Before || got.Untrusted != want.Untrusted ||
			got.MayAllow != want.MayAllow || got.MaybeRan != want.MaybeRan {
			return fmt.Errorf("question #%d: %s\nby the rules: %s", p.seen+1, got, *want)
		}
	}
	waits := map[string]bool{}
	for _, q := range p.b.confirms.Waiting(caller.Operator(1, "ada", caller.Owner, "ada1", "")) {
		waits[q.Nonce] = true
	}
	for i, q := range p.w.Questions {
		if waits[asked[i].Nonce] != (q.State == "waiting") {
			return fmt.Errorf("question #%d waits: %v, by the rules it is %q", i+1, waits[asked[i].Nonce], q.State)
		}
	}
	return nil
}

func (p *player) compareTurns() error {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	for _, l := range p.live {
		if l.settled {
			continue
		}
		if l.done != l.want.Done {
			return fmt.Errorf("%s (%s): ended %v (%v), by the rules %v %q", l.message, l.name, l.done, l.err, l.want.Done, l.want.Code)
		}
		if !l.done {
			continue
		}
		l.settled = true
		if err := same(l.err, l.want.Code); err != nil {
			return fmt.Errorf("%s (%s): %w", l.message, l.name, err)
		}
		if l.err != nil {
			continue
		}
		if l.peer {
			p.talks[l.name] = l.conversation
		}
		p.kept = append(p.kept, l)
		if got, want := told(l), foreseen(l.want); got != want {
			return fmt.Errorf("%s (%s): %s\nby the rules: %s", l.message, l.name, got, want)
		}
	}
	return nil
}

// told is all that an answer says beside the model's words; foreseen is the same by the rules.
func told(l *live) string {
	if l.peer {
		return l.outcome
	}
	a := l.answer
	var calls, changes, offers []string
	for _, o := range a.Tools {
		calls = append(calls, fmt.Sprintf("%s %s %s", o.Tool, o.Outcome, o.Code))
	}
	for _, c := range a.Changes {
		changes = append(changes, c.Tool+" "+c.Outcome)
	}
	for _, o := range a.Offers {
		offers = append(offers, string(o.Category))
	}
	slices.Sort(offers) // refused reads overlap
	return fmt.Sprint(calls, changes, offers, a.Rounds)
}

func foreseen(t *rules.Turn) string {
	var calls []string
	for _, o := range t.Outcomes {
		calls = append(calls, fmt.Sprintf("%s %s %s", o.Tool, o.Outcome, o.Code))
	}
	if !t.Peer {
		return fmt.Sprint(calls, t.Changes, slices.Sorted(slices.Values(t.Offers)), t.Rounds)
	}
	out := "done"
	for _, c := range t.Changes {
		switch {
		case strings.HasSuffix(c, " unknown"):
			return "unknown"
		case strings.HasSuffix(c, " done"):
			out = "changed"
		}
	}
	return out
}

func (p *player) open() []string {
	var open []string
	for cat, s := range p.b.grants.States() {
		if s.Granted {
			open = append(open, string(cat))
		}
	}
	slices.Sort(open)
	return open
}

func (p *player) compareOpen() error {
	if got, want := p.open(), slices.Sorted(maps.Keys(p.w.Grants)); !slices.Equal(got, want) {
		return fmt.Errorf("open are %v, by the rules %v", got, want)
	}
	if got := string(p.b.grants.Mode()); got != p.w.Mode {
		return fmt.Errorf("the mode is %s, by the rules %s", got, p.w.Mode)
	}
	return nil
}

// permissions lists the standing permissions with their uses, as the owner sees them.
func (p *player) permissions() (map[string]int, error) {
	session := "ada1"
	if !p.w.Sessions[session] {
		session = "ada2"
	}
	res, err := p.b.call(p.ctx, session, "assistant.permissions-list", "{}", nil)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(res)
	if err != nil {
		return nil, err
	}
	var list struct {
		Permissions []confirm.Permission `json:"permissions"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	who, err := p.names()
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, v := range list.Permissions {
		out[who[v.Account]+" "+p.keys[v.ActionKey]] = v.UsedLastH
	}
	return out, nil
}

// names are the accounts' names, also of those without a session.
func (p *player) names() (map[int64]string, error) {
	rows, err := p.b.db.Reader().QueryContext(p.ctx, "SELECT id, name FROM account")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[int64]string{}
	for rows.Next() {
		var id int64
		var name string
		if err := rows.Scan(&id, &name); err != nil {
			return nil, err
		}
		out[id] = name
	}
	return out, rows.Err()
}

func (p *player) comparePermits() error {
	if !p.permits || !p.w.Sessions["ada1"] && !p.w.Sessions["ada2"] {
		return nil
	}
	got, err := p.permissions()
	if err != nil {
		return err
	}
	want := map[string]int{}
	for _, v := range p.w.Permits {
		want[v.Who+" "+v.Key] = p.w.Uses(v)
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("standing permissions %v, by the rules %v", got, want)
	}
	return nil
}

// crashed starts a node on what the dead one left, and holds it against what the rules allow there: each write happened or
// did not, nothing waits, nothing runs again, what was answered is there.
func (p *player) crashed(before rules.Durable) error {
	b := p.b
	for _, q := range p.questions() {
		p.keys[q.ActionKey] = action(q)
	}
	p.end()
	k := b.kill
	b.mu.Lock()
	b.kill = killer{}
	ran := p.mixed
	for _, l := range p.live {
		if !l.acked {
			ran[l.name], l.settled = true, true
		} else if !l.settled && l.err == nil {
			l.settled = true
			p.kept = append(p.kept, l)
			ran[l.name] = ran[l.name] || l.peer
		}
	}
	b.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	p.ctx, p.cancel = context.WithCancel(p.base)
	if err := b.reopen(p.ctx, k.dir); err != nil {
		return err
	}
	b.out.apps, b.out.theme, b.out.ran = k.apps, k.theme, k.ran
	if err := p.afterCrash(before, ran); err != nil {
		return err
	}
	p.killing = false
	return nil
}

func (p *player) afterCrash(before rules.Durable, ran map[string]bool) error {
	b := p.b
	if n := len(b.confirms.Waiting(caller.Operator(1, "ada", caller.Owner, "ada1", ""))); n > 0 {
		return fmt.Errorf("%d questions survived (C3)", n)
	}
	still := 0
	for _, q := range p.waiting {
		if q.State == "waiting" {
			still++
		}
	}
	if n := len(b.left.Dropped); n < still {
		return fmt.Errorf("%d questions stood, and the person is told of %d (C3)", still, n)
	}
	if err := p.audited(); err != nil {
		return err
	}
	seen, err := p.sees()
	if err != nil {
		return err
	}
	if err := p.w.Crash(before, seen); err != nil {
		return err
	}
	p.w.Forget(ran)
	for name := range ran {
		delete(p.talks, name)
	}
	// What was asked in the dying step may not be known to the rules, and the other way round.
	asked := p.questions()
	b.mu.Lock()
	b.asked = b.asked[:min(len(asked), len(p.w.Questions))]
	p.w.Questions = p.w.Questions[:len(b.asked)]
	p.seen = len(b.asked)
	b.mu.Unlock()
	if err := p.answersKept(); err != nil {
		return err
	}
	return p.listen()
}

func (p *player) mutes() (map[string]bool, error) {
	rows, err := p.b.db.Reader().QueryContext(p.ctx, "SELECT peer FROM mute")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]bool{}
	for rows.Next() {
		var peer string
		if err := rows.Scan(&peer); err != nil {
			return nil, err
		}
		out[peer] = true
	}
	return out, rows.Err()
}

func (p *player) sees() (s rules.Seen, err error) {
	b := p.b
	s = rules.Seen{Mode: string(b.grants.Mode()), Grants: p.open(), Roles: map[string]int{}, Sessions: map[string]bool{}, Ran: maps.Clone(b.out.ran),
		Apps: maps.Clone(b.out.apps), Theme: b.out.theme, Down: endTime}
	for _, u := range b.accounts.Users() {
		s.Roles[u.Username] = role(u.Role)
	}
	for session := range rules.New().Sessions {
		if _, err := b.who(p.ctx, session); err == nil {
			s.Sessions[session] = true
		}
	}
	if s.Mutes, err = p.mutes(); err != nil {
		return s, err
	}
	for _, l := range b.left.Unknown {
		if p.keys[l.ActionKey] == "" {
			return s, fmt.Errorf("an action that nobody was asked about was left unknown")
		}
		s.Unknown = append(s.Unknown, p.keys[l.ActionKey])
	}
	if !p.permits || !s.Sessions["ada1"] && !s.Sessions["ada2"] {
		return s, nil
	}
	p.w.Sessions = s.Sessions // of which the list is asked
	s.Permits, err = p.permissions()
	return s, err
}

// audited is C2 and N2 after a crash: the record is whole, no action ran without its intent written before, and each intent
// has its outcome, if only that it is unknown.
func (p *player) audited() error {
	rep, err := p.b.log.Verify(p.ctx, p.b.key.Public().(ed25519.PublicKey), "")
	if err != nil || !rep.OK {
		return fmt.Errorf("the audit does not verify: %+v %w", rep, err)
	}
	records, err := p.b.log.List(p.ctx, audit.Filter{Kind: "tool", Limit: 100000})
	if err != nil {
		return err
	}
	intents, outcomes := map[string]int{}, map[string]int{}
	for _, r := range records {
		key := p.keys[r.ActionKey]
		switch {
		case key == "":
		case r.Event == "intent":
			intents[key]++
		case r.Event == "outcome":
			outcomes[key]++
		}
	}
	for _, key := range p.keys {
		if n := p.b.out.ran[key]; n > intents[key] {
			return fmt.Errorf("%s ran %d times on %d intents (C2)", key, n, intents[key])
		}
		if intents[key] != outcomes[key] {
			return fmt.Errorf("%s has %d intents and %d outcomes (C2)", key, intents[key], outcomes[key])
		}
	}
	return nil
}

// answersKept is H1.
func (p *player) answersKept() error {
	for _, l := range p.kept {
		who, _, _ := strings.Cut(l.name, " ")
		c := caller.Peer(who, "Peer")
		if !l.peer {
			var err error
			if c, err = p.b.who(p.ctx, who+"1"); err != nil {
				continue // the account's sessions have ended; its file is not asked for
			}
		}
		past, err := p.b.history.History(p.ctx, c, l.conversation, history.Span{Limit: 1000})
		if err != nil {
			return fmt.Errorf("%w: %s: %w", errLost, l.message, err)
		}
		if !slices.ContainsFunc(past.Entries, func(t history.TurnView) bool { return t.Message == l.message && t.Outcome == history.Done }) {
			return fmt.Errorf("%w: %s", errLost, l.message)
		}
	}
	return nil
}
