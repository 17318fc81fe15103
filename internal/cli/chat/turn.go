package chat

import (
	"context"
	"strings"
	"sync"
	"time"

	"atoll/internal/cli/client"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
)

// turn is one message on its way to the answer. It lives on one goroutine, which is its loop; the others only deliver.
type turn struct {
	c            *Chat
	ctx          context.Context
	cancel       context.CancelFunc // gives the chat call up; the node ends the turn and its questions (C9)
	conversation string
	prompt       *prompt
	waiting      []client.Pending   // questions to put next
	held         []client.ChatEvent // what streamed while a question stood
	stops        int                // how often Ctrl-C was pressed
	sent         chan sendResult
	helpers      sync.WaitGroup // calls beside the chat call
	err          error
}

type turnResult struct {
	answer client.Answer
	err    error
}

// turn says one message and returns the answer, or how the turn ended.
func (c *Chat) turn(ctx context.Context, message string) (client.Answer, error) {
	if c.listener != nil {
		if err := c.listener.wait(ctx); err != nil && ctx.Err() == nil {
			c.host("Nobody can be asked now, so nothing will be changed: " + words(err) + ".")
		}
	}
	turnCtx, cancel := context.WithCancel(ctx)
	t := &turn{c: c, ctx: turnCtx, cancel: cancel, conversation: c.conversation, sent: make(chan sendResult)}
	events, done := make(chan client.ChatEvent), make(chan turnResult, 1)
	t.helpers.Go(func() { // waited for below
		answer, err := c.cfg.Client.Chat(turnCtx, client.ChatRequest{Conversation: c.conversation, Message: message}, func(ev client.ChatEvent) {
			select {
			case events <- ev:
			case <-turnCtx.Done():
			}
		})
		done <- turnResult{answer, err}
	})
	r := t.loop(events, done)
	cancel()
	t.helpers.Wait()
	if t.conversation != "" {
		c.conversation = t.conversation
	}
	if c.cfg.Text != nil {
		c.cfg.Text.EndOther()
	}
	if t.err != nil {
		return r.answer, t.err
	}
	return r.answer, r.err
}

func (t *turn) loop(events <-chan client.ChatEvent, done <-chan turnResult) turnResult {
	var news <-chan client.Event
	if t.c.listener != nil {
		news = t.c.listener.events
	}
	var end *turnResult
	for {
		now := time.Now()
		t.advance(now)
		timer := t.timer(now)
		select {
		case ev := <-events:
			t.onChat(ev)
		case ev := <-news:
			t.onEvent(ev)
		case k := <-t.c.keys():
			if t.c.cfg.Terminal.Fresh(k) {
				t.onKey(k, time.Now())
			}
		case r := <-t.sent:
			t.onSent(r)
		case <-timer.C:
		case r := <-done:
			end, done = &r, nil
		}
		timer.Stop()
		// A decision on its way is waited for: the turn can be over before its reply is here.
		if end != nil && (t.prompt == nil || t.prompt.stage != sending || t.ctx.Err() != nil) {
			t.finish(*end)
			return *end
		}
	}
}

// timer wakes the loop when the prompt has something to do. Without a prompt it is far away.
func (t *turn) timer(now time.Time) *time.Timer {
	next := now.Add(redrawEvery)
	if p := t.prompt; p != nil {
		if at := p.pad.next(now); !at.IsZero() && p.stage <= open {
			next = at
		}
	}
	return time.NewTimer(next.Sub(now))
}

// advance does what time alone brings: opens the next question, lets keys count, decides a letter that stood alone.
func (t *turn) advance(now time.Time) {
	if t.prompt == nil {
		t.nextPrompt(now)
	}
	p := t.prompt
	if p == nil {
		return
	}
	switch {
	case p.stage == waking && !now.Before(p.pad.awake()):
		t.c.wake(p)
		t.c.drawPrompt(p, now)
	case p.stage == open:
		if ch := p.pad.tick(now); ch != noChoice {
			t.decide(ch, now)
		} else if now.Sub(p.drawn) >= redrawEvery {
			t.c.drawPrompt(p, now)
		}
	}
}

// nextPrompt opens the first waiting question of this conversation. One that came before the conversation's name was
// known waits for it.
func (t *turn) nextPrompt(now time.Time) {
	for i, p := range t.waiting {
		if t.conversation != "" && p.Conversation == t.conversation {
			t.waiting = append(t.waiting[:i:i], t.waiting[i+1:]...)
			if t.c.cfg.Text != nil {
				t.c.cfg.Text.EndOther()
			}
			t.prompt = t.c.openPrompt(p, now)
			return
		}
	}
}

// onChat shows what the turn does. While a question stands, it waits, so that nothing is drawn over the question.
func (t *turn) onChat(ev client.ChatEvent) {
	if ev.Conversation != "" && t.conversation == "" {
		t.conversation = ev.Conversation
	}
	if t.prompt == nil {
		t.c.showEvent(ev)
		return
	}
	if len(t.held) < maxHeld && ev.State != "waiting" { // the question says that already
		t.held = append(t.held, ev)
	}
	if p := t.prompt; ev.Name == "tool" && ev.Tool == p.pending.Tool && ev.State != "waiting" && ev.State != "started" && p.stage != sending {
		t.close(endedWords(toolOutcome(ev), p.mine)) // the node went on: the question has ended
	}
}

// maxHeld bounds the events held back; a node sends a handful while it waits for a person.
const maxHeld = 10000

func toolOutcome(ev client.ChatEvent) fault.Code {
	if ev.State == "done" && ev.Code == "" {
		return client.Approved
	}
	return ev.Code
}

// onEvent takes an event of the stream for trusted chrome.
func (t *turn) onEvent(ev client.Event) {
	switch ev.Name {
	case "confirm":
		p, ok := decode[client.Pending](ev)
		if ok && p.Nonce != "" && p.ActionKey != "" && !t.c.asked[p.Nonce] && len(t.waiting) < maxWaiting {
			t.waiting = append(t.waiting, p)
		}
	case "confirm-ended":
		if e, ok := decode[client.Ended](ev); ok {
			t.onEnded(e)
		}
	case "notice":
		t.c.onNotice(ev)
	}
}

// maxWaiting bounds the questions of one turn; a node asks five at most.
const maxWaiting = 64

func (t *turn) onEnded(e client.Ended) {
	t.c.asked[e.Nonce] = true
	for i, p := range t.waiting {
		if p.Nonce == e.Nonce {
			t.waiting = append(t.waiting[:i:i], t.waiting[i+1:]...)
			break
		}
	}
	if p := t.prompt; p != nil && p.pending.Nonce == e.Nonce {
		t.close(endedWords(e.Outcome, p.mine))
	}
}

func (t *turn) onKey(k term.Key, now time.Time) {
	p := t.prompt
	switch {
	case k.Kind == term.HangUp:
		t.c.closed = true
		t.leave()
	case p == nil && k.Kind == term.CtrlC:
		t.stop()
	case p == nil:
		t.c.typeAhead(k)
	case p.stage == waking || p.stage == open:
		if ch := p.pad.key(k, now); ch != noChoice {
			t.decide(ch, now)
		}
	case p.stage == writing:
		t.onReasonKey(k, now)
	case p.stage == sending && k.Kind == term.CtrlC:
		t.stop()
	}
}

func (t *turn) onReasonKey(k term.Key, now time.Time) {
	p := t.prompt
	switch p.reason.Key(k) {
	case term.Submitted:
		t.send(client.Decision{Decision: "decline", Reason: cutReason(p.reason.Take())}, now)
		return
	case term.Interrupted, term.Closed:
		t.send(client.Decision{Decision: "decline"}, now)
		return
	case term.Escaped:
		p.reason.Clear()
		p.stage, p.pad.noise = open, now
	}
	t.c.drawPrompt(p, now)
}

// maxReason bounds a decline's reason in characters; the node takes no longer one.
const maxReason = 500

func cutReason(s string) string {
	r := []rune(strings.TrimSpace(s))
	return string(r[:min(len(r), maxReason)])
}

// decide turns a key into a decision. Whatever is not an approval is a decline.
func (t *turn) decide(ch choice, now time.Time) {
	switch {
	case ch == 'y':
		t.send(client.Decision{Decision: "approve"}, now)
	case ch == 'p' && t.prompt.pending.MayAllow:
		t.send(client.Decision{Decision: "approve", AllowForS: int64(allowFor / time.Second)}, now)
	case ch == 'r':
		t.prompt.stage = writing
		t.c.drawPrompt(t.prompt, now)
	default:
		t.send(client.Decision{Decision: "decline"}, now)
	}
}

// send sends the decision; the loop goes on meanwhile.
func (t *turn) send(d client.Decision, now time.Time) {
	p := t.prompt
	p.stage, p.mine = sending, true
	t.c.drawPrompt(p, now)
	d.Nonce, d.ActionKey = p.pending.Nonce, p.pending.ActionKey
	t.helpers.Go(func() { // waited for in Chat.turn
		var ended client.Ended
		err := t.c.cfg.Client.Call(t.ctx, "assistant.confirm", d, &ended)
		select {
		case t.sent <- sendResult{d.Nonce, ended.Outcome, err}:
		case <-t.ctx.Done():
		}
	})
}

// sendResult is how the sending of one decision went.
type sendResult struct {
	nonce   string
	outcome fault.Code
	err     error
}

// onSent closes the question if the node took the decision or says that it has ended; otherwise it still stands.
func (t *turn) onSent(r sendResult) {
	p := t.prompt
	if p == nil || p.pending.Nonce != r.nonce {
		return // it has ended by the node's own word meanwhile
	}
	if r.err == nil {
		t.close(endedWords(r.outcome, true))
		return
	}
	switch f := fault.Of(r.err); f.Code {
	case fault.Expired, fault.Declined, fault.Cancelled, fault.Dropped, fault.NotFound, fault.Forbidden, fault.Rule, fault.Unauthenticated:
		t.close("Not taken: " + words(f) + ".")
	default:
		now := time.Now()
		p.mine, p.stage, p.pad.noise = false, open, now
		t.c.drawRow(term.ClearRow)
		t.c.host("Not taken: " + words(f) + ". The question still stands.")
		t.c.drawPrompt(p, now)
	}
}

// close ends the question and shows what happened meanwhile.
func (t *turn) close(words string) {
	t.prompt = nil
	t.c.closePrompt(words)
	held := t.held
	t.held = nil
	for _, ev := range held {
		t.c.showEvent(ev)
	}
}

// stop is Ctrl-C: the first cancels the turn on the node, the second leaves.
func (t *turn) stop() {
	if t.stops++; t.stops > 1 {
		t.leave()
		return
	}
	t.c.host("Stopping … (Ctrl-C again leaves)")
	t.c.ahead = nil
	if t.conversation == "" {
		t.cancel()
		return
	}
	conversation := t.conversation
	t.helpers.Go(func() { // waited for in Chat.turn
		err := t.c.cfg.Client.Call(t.ctx, "assistant.cancel", map[string]string{"conversation": conversation}, nil)
		if err != nil {
			t.cancel() // the node ends a turn whose client is gone
		}
	})
}

// leave gives the turn up and then the chat.
func (t *turn) leave() {
	t.err = errLeave
	t.cancel()
}

// finish ends a question that the turn's end left standing, and shows what was held back.
func (t *turn) finish(r turnResult) {
	if t.prompt != nil {
		t.close("The turn has ended; nothing more was approved.")
	}
	if r.answer.Conversation != "" {
		t.conversation = r.answer.Conversation
	}
}
