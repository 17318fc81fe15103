package sequence

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"atoll/internal/assistant"
	"atoll/internal/caller"
	"atoll/internal/confirm"
	"atoll/internal/eval/rules"
	"atoll/internal/event"
	"atoll/internal/fault"
	"atoll/internal/grant"
	"atoll/internal/secret"
)

// live is one turn on the real node, beside the one the rules foresee.
type live struct {
	name, message string // the conversation as scripts call it
	peer          bool
	want          *rules.Turn
	settled       bool // compared

	// guarded by bench.mu
	done, acked  bool // acked: the answer was there before the node died
	conversation string
	answer       assistant.Answer
	outcome      string // all that a peer learns
	err          error
}

// player plays one script on both.
type player struct {
	b       *bench
	w       *rules.World
	base    context.Context
	ctx     context.Context // of the node's life
	cancel  context.CancelFunc
	talks   map[string]string // conversations as scripts call them → as the node does
	live    []*live
	subs    map[string]*event.Sub
	seen    int               // questions compared so far
	keys    map[string]string // action keys → actions
	kept    []*live           // answered well: they must be there after any crash (H1)
	mixed   map[string]bool   // conversations that the present step changes otherwise than by a turn
	permits bool              // somebody allowed something for a time
	killing bool
	waiting []*rules.Pending
}

func code(err error) rules.Code {
	if err == nil {
		return ""
	}
	return rules.Code(fault.Of(err).Code)
}

// play runs a script on a node that is fresh. Its error says at which step the two part.
func play(ctx context.Context, b *bench, s Script) error {
	p := &player{b: b, w: rules.New(), base: ctx, talks: map[string]string{}, subs: map[string]*event.Sub{}, keys: map[string]string{}}
	p.ctx, p.cancel = context.WithCancel(ctx)
	defer func() { p.end() }()
	if err := p.listen(); err != nil {
		return err
	}
	for i, line := range s {
		if err := p.step(line); err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, line, err)
		}
	}
	return nil
}

// end lets everything go that the script left running.
func (p *player) end() {
	p.b.assistant.CancelAll()
	p.cancel()
	synctest.Wait()
	<-time.After(endTime)
	synctest.Wait()
}

// endTime is how long a node that goes takes, so that a handler is given up.
const endTime = 2 * time.Second

// listen opens the streams that the rules say are open.
func (p *player) listen() error {
	for _, session := range []string{"ada1", "ada2", "mel1", "mel2", "max1", "max2", "vic1", "vic2"} {
		if p.w.Listening(session) {
			if err := p.subscribe(session); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *player) subscribe(session string) error {
	c, err := p.b.who(p.ctx, session)
	if err == nil {
		p.subs[session], err = p.b.bus.Subscribe(c.Account(), c.May(caller.Owner), session, 0)
	}
	return err
}

// pass lets time go by on both, from one moment at which something ends to the next.
func (p *player) pass(d time.Duration) {
	for d > 0 {
		s := max(min(d, p.w.Next()), time.Nanosecond)
		<-time.After(s)
		synctest.Wait()
		p.w.Pass(s)
		d -= s
	}
}

func (p *player) step(line string) error {
	p.pass(time.Millisecond)
	var before rules.Durable
	if p.killing {
		before = p.w.Durable.Copy()
	}
	p.mixed, p.waiting = map[string]bool{}, nil
	for _, q := range p.w.Questions {
		if q.State == "waiting" {
			p.waiting = append(p.waiting, q)
		}
	}
	err := p.do(strings.Fields(line))
	synctest.Wait()
	p.w.Settled()
	if p.b.isDead() {
		if before.Ran == nil {
			before = p.w.Durable.Copy()
		}
		if err = p.crashed(before); err != nil {
			return fmt.Errorf("after the kill: %w", err)
		}
	}
	if err != nil {
		return err
	}
	err = p.compare()
	if p.b.isDead() { // comparing looks, and looking can write
		return p.crashed(p.w.Durable.Copy())
	}
	return err
}

// same compares the answers to a step.
func same(got error, want rules.Code) error {
	if code(got) != want {
		return fmt.Errorf("the node says %q (%v), the rules say %q", code(got), got, want)
	}
	return nil
}

// do takes one step on both.
func (p *player) do(f []string) error {
	b, w := p.b, p.w
	word := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	rpc := func(session, method, params string) error {
		_, err := b.call(p.ctx, session, method, params, nil)
		return err
	}
	switch f[0] {
	case "chat":
		return p.chat(f[1], f[2], Plan(f[3:]))
	case "peer":
		return p.ask(f[1], f[2], Plan(f[3:]))
	case "approve", "decline":
		return p.decide(f)
	case "cancel":
		return same(rpc(f[1], "assistant.cancel", p.conversation(f[1], f[2])), w.Cancel(f[1], f[2]))
	case "undo":
		name := strings.TrimRight(f[1], "12") + " " + f[2]
		p.mixed[name] = true
		p.kept = slices.DeleteFunc(p.kept, func(l *live) bool { return l.name == name })
		return same(rpc(f[1], "assistant.undo", p.conversation(f[1], f[2])), w.Undo(f[1], f[2]))
	case "fill":
		return p.fill(f[1], f[2], word(3))
	case "blank":
		n, _ := strconv.Atoi(f[2])
		for range n {
			if err := same(rpc(f[1], "assistant.chat", `{"message":" "}`), w.Blank(f[1])); err != nil {
				return err
			}
		}
	case "grant":
		d, _ := time.ParseDuration(word(3))
		params := fmt.Sprintf(`{"grants":{%q:{"granted":true}}}`, f[2])
		if d > 0 {
			params = fmt.Sprintf(`{"grants":{%q:{"granted":true,"expires_at":%q}}}`, f[2], b.clock().Now().Add(d).Format(time.RFC3339Nano))
		}
		return same(rpc(f[1], "assistant.grants-set", params), w.SetGrant(f[1], f[2], true, d))
	case "close":
		return same(rpc(f[1], "assistant.grants-set", fmt.Sprintf(`{"grants":{%q:{"granted":false}}}`, f[2])), w.SetGrant(f[1], f[2], false, 0))
	case "mode":
		return same(rpc(f[1], "assistant.mode-set", fmt.Sprintf(`{"mode":%q}`, f[2])), w.SetMode(f[1], f[2]))
	case "role":
		return same(rpc(f[1], "users.set-role", fmt.Sprintf(`{"username":%q,"role":%q}`, f[2], f[3])), w.SetRole(f[1], f[2], role(f[3])))
	case "revoke":
		return same(rpc(f[1], "auth.revoke", fmt.Sprintf(`{"id":%q}`, f[2])), w.Revoke(f[1], f[2]))
	case "password":
		return same(b.accounts.SetPassword(p.ctx, f[1], secret.New(password+strconv.Itoa(len(p.live)))), w.SetPassword(f[1]))
	default:
		return p.world(f, word)
	}
	return nil
}

// world takes the steps that no answer comes of.
func (p *player) world(f []string, word func(int) string) error {
	b, w := p.b, p.w
	switch f[0] {
	case "listen":
		return p.stream(f[1], f[2] == "on")
	case "let":
		p.let(f[1], word(2) == "asking", strings.Split(strings.TrimSpace(word(len(f)-1)), ","))
	case "swap", "set":
		b.out.mu.Lock()
		a := b.out.apps[f[1]]
		if f[0] == "swap" {
			a.Print++
			w.Swap(f[1])
		} else {
			a.State = f[2]
			w.Set(f[1], f[2])
		}
		b.out.apps[f[1]] = a
		b.out.mu.Unlock()
	case "handler":
		how := strings.TrimSuffix(f[1], "well")
		b.out.mu.Lock()
		b.out.handler = how
		b.out.mu.Unlock()
		w.Handler(how)
	case "summaries":
		b.mu.Lock()
		b.byHost = f[1] == "host"
		b.mu.Unlock()
	case "pass", "wall":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			return err
		}
		if f[0] == "pass" {
			p.pass(d)
			return nil
		}
		b.mu.Lock()
		b.drift += d
		b.mu.Unlock()
		w.Wall(d)
	case "kill":
		p.killing = true
		if n, _ := strconv.Atoi(word(2)); n > 0 {
			b.arm(n)
		} else {
			b.die()
		}
	case "restart":
		return p.restart()
	default:
		return fmt.Errorf("no such step")
	}
	return nil
}

func (p *player) conversation(session, talk string) string {
	id := p.talks[strings.TrimRight(session, "12")+" "+talk]
	if id == "" {
		id = "1-none"
	}
	return fmt.Sprintf(`{"conversation":%q}`, id)
}

// chat begins a turn of a person on both, and waits until it asks, hangs or ends.
func (p *player) chat(session, talk string, plan []rules.Round) error {
	b := p.b
	l := &live{name: strings.TrimRight(session, "12") + " " + talk}
	params, emit := p.begin(l, plan)
	want, refusal := p.w.Chat(session, talk, plan)
	go func() {
		res, err := b.call(p.ctx, session, "assistant.chat", params, emit)
		answer, _ := res.(assistant.Answer)
		b.point()
		b.mu.Lock()
		defer b.mu.Unlock()
		l.done, l.acked, l.answer, l.err = true, !b.kill.dead, answer, err
		if err == nil {
			b.note("answered", l.name, l.message, l.conversation)
		}
	}()
	return p.started(l, want, refusal)
}

// ask begins a turn of a peer.
func (p *player) ask(peer, talk string, plan []rules.Round) error {
	if p.w.Running(peer, talk) {
		return nil // a peer does not know the name of a conversation yet
	}
	b := p.b
	l := &live{name: peer + " " + talk, peer: true}
	_, _ = p.begin(l, plan)
	question := assistant.PeerQuestion{Conversation: p.talks[l.name], Text: l.message}
	want, refusal := p.w.Ask(peer, talk, plan)
	go func() {
		answer, err := b.assistant.Ask(p.ctx, caller.Peer(peer, "Peer"), question, func(string) error { b.point(); return nil })
		b.point()
		b.mu.Lock()
		defer b.mu.Unlock()
		l.done, l.acked, l.err, l.outcome, l.conversation = true, !b.kill.dead, err, answer.Outcome, answer.Conversation
	}()
	return p.started(l, want, refusal)
}

func (p *player) begin(l *live, plan []rules.Round) (params string, emit func(string, any) error) {
	b := p.b
	l.message = "turn " + strconv.Itoa(len(p.live)+1)
	b.mu.Lock()
	b.plans[l.message] = plan
	b.mu.Unlock()
	p.live = append(p.live, l)
	return fmt.Sprintf(`{"conversation":%q,"message":%q}`, p.talks[l.name], l.message), func(event string, data any) error {
		b.point()
		if event != "start" {
			return nil
		}
		raw, err := json.Marshal(data)
		var start struct {
			Conversation string `json:"conversation"`
		}
		if err == nil {
			err = json.Unmarshal(raw, &start)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		l.conversation = start.Conversation
		return err
	}
}

func (p *player) started(l *live, want *rules.Turn, refusal rules.Code) error {
	synctest.Wait()
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if l.want = want; want == nil {
		l.settled = true
		if !l.done {
			return fmt.Errorf("the turn runs, and the rules say %q", refusal)
		}
		return same(l.err, refusal)
	}
	if l.conversation != "" && !l.peer {
		p.talks[l.name] = l.conversation
	}
	return nil
}

// fill makes a conversation longer by n quiet turns, so that what is older is folded into the summary (H2).
func (p *player) fill(session, talk, count string) error {
	n, _ := strconv.Atoi(count)
	for range n {
		p.mixed[strings.TrimRight(session, "12")+" "+talk] = true
		p.pass(10 * time.Second)
		if err := p.chat(session, talk, nil); err != nil {
			return err
		}
		if p.b.isDead() {
			return nil
		}
		p.w.Settled()
		if err := p.compare(); err != nil {
			return err
		}
	}
	return nil
}

func (p *player) decide(f []string) error {
	a, atOnce, err := answer(f[0], f[3:])
	if err != nil {
		return err
	}
	if !atOnce {
		p.pass(time.Second) // to read the dialog (C8)
	}
	p.permits = p.permits || a.Allow > 0
	n := question(f[2], len(p.w.Questions))
	q := confirm.Pending{Nonce: "00", ActionKey: "00"}
	if asked := p.questions(); n >= 1 && n <= len(asked) {
		q = asked[n-1]
	}
	if a.WrongKey {
		q.ActionKey = strings.Repeat("0", 64)
	}
	if n >= 1 && n <= len(p.w.Questions) && p.w.Questions[n-1].State == "gone" {
		_, err := p.b.call(p.ctx, f[1], "assistant.confirm", fmt.Sprintf(`{"nonce":%q,"action_key":%q,"decision":%q}`, q.Nonce, q.ActionKey, f[0]), nil)
		_ = err // what it is told depends on the moment of the crash; that nothing runs is compared after the step (C2, C3)
		return nil
	}
	params := fmt.Sprintf(`{"nonce":%q,"action_key":%q,"decision":%q,"allow_for_s":%d}`, q.Nonce, q.ActionKey, f[0], int(a.Allow.Seconds()))
	_, err = p.b.call(p.ctx, f[1], "assistant.confirm", params, nil)
	want := p.w.Decide(f[1], n, a)
	synctest.Wait()
	return same(err, want)
}

func (p *player) stream(session string, on bool) error {
	refused := p.w.Listen(session, on)
	if s := p.subs[session]; s != nil {
		s.Close()
		delete(p.subs, session)
	}
	if !on || refused != "" {
		return nil
	}
	return p.subscribe(session)
}

func (p *player) let(peer string, asking bool, cats []string) {
	var list []grant.Category
	for _, c := range cats {
		if slices.Contains(grant.Categories(), grant.Category(c)) {
			list = append(list, grant.Category(c))
		}
	}
	p.b.mu.Lock()
	p.b.ceilings[peer], p.b.asking[peer] = list, asking
	p.b.mu.Unlock()
	p.b.assistant.CancelPeer(peer)
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = string(c)
	}
	p.w.Peer(peer, names, asking)
}

// restart stops the node in order and starts it on its directory.
func (p *player) restart() error {
	p.b.assistant.CancelAll()
	p.w.Stop()
	p.pass(endTime)
	if err := p.b.reopen(p.ctx, p.b.dir); err != nil {
		return err
	}
	p.w.Restart()
	if n := len(p.b.left.Dropped) + len(p.b.left.Unknown); n > 0 && !p.b.isDead() {
		return fmt.Errorf("%d actions were left behind by a stop in order", n)
	}
	return p.listen()
}

// reopen closes the files and starts a node on a directory; the outside stays what it is.
func (b *bench) reopen(ctx context.Context, dir string) error {
	old := b.out
	if err := b.close(); err != nil {
		return err
	}
	synctest.Wait()
	if dir != b.dir {
		if err := os.RemoveAll(b.dir); err != nil {
			return err
		}
	}
	b.out, b.dir = newOutside(), dir
	b.out.apps, b.out.theme, b.out.handler, b.out.ran = old.apps, old.theme, old.handler, old.ran
	return b.open(ctx)
}
