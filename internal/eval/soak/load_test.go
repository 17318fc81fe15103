package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"atoll/internal/confirm"
	"atoll/internal/eval"
)

// perAccount is how many sessions one account has.
const perAccount = 4

// team is one account: the session that decides, and those that chat. What it was told is kept to be looked up.
type team struct {
	load    *load
	decider *person
	chats   []*person

	mu    sync.Mutex // guards the rest
	id    string     // of the decider's session, which nobody revokes
	acked map[string][]kept
}

// kept is one acknowledged answer.
type kept struct{ message, text string }

// load is everything that chats.
type load struct {
	think time.Duration // between two turns of a session, on average
	brief bool          // a short run: nobody waits for what takes a minute
	teams []*team
	tally *tally
}

// run lets a session chat until ctx ends.
func (t *team) run(ctx context.Context, n int, p *person) {
	rng := rand.New(rand.NewPCG(*seed, uint64(n)))
	s := &sitting{team: t, p: p, rng: rng, n: n}
	for i := 0; pause(ctx, t.load.think/2+rand.N(t.load.think)); i++ {
		s.step(ctx, i)
	}
}

// sitting is one session's place in its conversation.
type sitting struct {
	team  *team
	p     *person
	rng   *rand.Rand
	n     int
	conv  string
	turns int
}

// step is one thing that a person does.
func (s *sitting) step(ctx context.Context, i int) {
	id := fmt.Sprintf("%d-%d", s.n, i)
	fault := faults[s.rng.IntN(len(faults))]
	switch k := s.rng.IntN(100); {
	case k < 36:
		s.chat(ctx, "say", id)
	case k < 46:
		s.chat(ctx, "look", id)
	case k < 52:
		s.chat(ctx, "machine", id)
	case k < 61:
		s.chat(ctx, "do:"+[...]string{"steady", "second"}[s.rng.IntN(2)], id)
	case k < 63:
		s.chat(ctx, "weird", id)
	case k < 70:
		s.chat(ctx, "flaky:"+fault, id)
	case k < 75:
		s.chat(ctx, "fault:"+fault, id)
	case k < 80:
		s.leave(ctx, id, false)
	case k < 84:
		s.leave(ctx, id, true)
	case k < 88:
		s.cancel(ctx, id)
	case k < 97:
		s.tidy(ctx, k)
	default:
		s.revoke(ctx)
	}
	if s.turns >= 16 {
		s.conv, s.turns = "", 0
	}
}

// patience is how long a person waits for an answer before going away.
func (s *sitting) patience() time.Duration {
	if s.team.load.brief {
		return 4 * time.Second
	}
	return confirm.ClientTime
}

// chat sends a message in one of both ways, and keeps what was acknowledged.
func (s *sitting) chat(ctx context.Context, kind, id string) {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	message := "[" + kind + " " + id + "] how is it going?"
	params := map[string]any{"conversation": s.conv, "message": message}
	var a answer
	var err error
	if s.rng.IntN(2) == 0 {
		a, err = s.p.stream(ctx, "assistant.chat", params, nil)
	} else {
		a, err = s.p.call(ctx, "assistant.chat", params)
	}
	s.turns++
	s.heard(ctx, a, err, message)
}

func (s *sitting) heard(ctx context.Context, a answer, err error, message string) {
	switch {
	case err != nil:
	case a.code == "unauthenticated":
		_, _ = s.p.login(ctx)
	case a.code == "not_found":
		s.conv, s.turns = "", 0
	case a.code == "":
		var got eval.Answer
		if json.Unmarshal(a.result, &got) != nil || got.Conversation == "" {
			s.team.load.tally.add("an answer that cannot be read: broken")
			return
		}
		s.conv = got.Conversation
		s.team.mu.Lock()
		defer s.team.mu.Unlock()
		s.team.acked[s.conv] = append(s.team.acked[s.conv], kept{message, got.Answer})
	}
}

// leave goes away in the middle of an answer.
func (s *sitting) leave(ctx context.Context, id string, stream bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.rng.IntN(1500))*time.Millisecond)
	defer cancel()
	params := map[string]any{"conversation": s.conv, "message": "[slow " + id + "] take your time"}
	s.turns++
	if !stream {
		a, err := s.p.call(ctx, "assistant.chat", params)
		s.heard(ctx, a, err, params["message"].(string))
		return
	}
	left := s.rng.IntN(4)
	_, _ = s.p.stream(ctx, "assistant.chat", params, func(eval.Event) bool { left--; return left > 0 })
}

// cancel stops a turn by the call made for it.
func (s *sitting) cancel(ctx context.Context, id string) {
	if s.conv == "" {
		return
	}
	conv, wait := s.conv, time.Duration(s.rng.IntN(1000))*time.Millisecond
	var side sync.WaitGroup
	side.Go(func() {
		if pause(ctx, wait) {
			_, _ = s.p.call(ctx, "assistant.cancel", map[string]any{"conversation": conv})
		}
	})
	s.chat(ctx, "slow", id)
	side.Wait()
}

// tidy looks at what was said, or takes the last word back.
func (s *sitting) tidy(ctx context.Context, k int) {
	if s.conv == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conv := map[string]any{"conversation": s.conv}
	switch k % 5 {
	case 0:
		_, _ = s.p.call(ctx, "assistant.rename", map[string]any{"conversation": s.conv, "title": fmt.Sprint("of ", s.n)})
	case 1:
		_, _ = s.p.call(ctx, "assistant.search", map[string]any{"query": "answer"})
	case 2:
		_, _ = s.p.call(ctx, "assistant.export", map[string]any{"conversation": s.conv, "format": "markdown"})
		_, _ = s.p.call(ctx, "assistant.conversations", nil)
	case 3:
		// An undo whose answer is lost may have been done: what it would take back is no longer looked up.
		s.team.mu.Lock()
		list := s.team.acked[s.conv]
		s.team.acked[s.conv] = list[:max(0, len(list)-1)]
		s.team.mu.Unlock()
		_, _ = s.p.call(ctx, "assistant.undo", conv)
	case 4:
		s.team.mu.Lock()
		delete(s.team.acked, s.conv)
		s.team.mu.Unlock()
		_, _ = s.p.call(ctx, "assistant.clear-history", conv)
		s.conv, s.turns = "", 0
	}
}

// revoke ends a session of the same account, perhaps in the middle of its turn; or this one.
func (s *sitting) revoke(ctx context.Context) {
	list := listSessions(ctx, s.p)
	s.team.mu.Lock()
	spared := s.team.id
	s.team.mu.Unlock()
	s.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	for _, one := range list {
		if one.ID == spared {
			continue
		}
		if one.Current {
			_, _ = s.p.call(ctx, "auth.logout", nil)
			_, _ = s.p.login(ctx)
		} else {
			_, _ = s.p.call(ctx, "auth.revoke", map[string]any{"id": one.ID})
		}
		return
	}
}

type sessionRow struct {
	ID      string `json:"id"`
	Current bool   `json:"current"`
}

func listSessions(ctx context.Context, p *person) []sessionRow {
	a, err := p.call(ctx, "auth.sessions", nil)
	var list struct {
		Sessions []sessionRow `json:"sessions"`
	}
	if err != nil || json.Unmarshal(a.result, &list) != nil {
		return nil
	}
	return list.Sessions
}

// decide listens, and approves, declines, is too quick, or says nothing.
func (t *team) decide(ctx context.Context) {
	var deciding sync.WaitGroup
	defer deciding.Wait()
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, "GET", t.decider.base+"/events", nil)
		if err != nil {
			return
		}
		t.decider.sign(req.Header)
		res, err := t.decider.client.Do(req)
		if err == nil && res.StatusCode == http.StatusOK {
			_ = eval.Stream(res.Body, func(e eval.Event) bool {
				var q confirm.Pending
				if e.Name == "confirm" && json.Unmarshal(e.Data, &q) == nil {
					deciding.Go(func() { t.answer(ctx, q) })
				}
				return true
			})
		}
		if err == nil {
			_ = res.Body.Close()
		}
		if ctx.Err() == nil {
			t.load.tally.add("the stream of the deciding session: broken")
			pause(ctx, time.Second)
		}
	}
}

func (t *team) answer(ctx context.Context, q confirm.Pending) {
	params := map[string]any{"nonce": q.Nonce, "action_key": q.ActionKey, "decision": "approve"}
	k := rand.N(100)
	switch {
	case k < 20: // it expires, or the one who asked goes away
		return
	case k < 50:
		params["decision"], params["reason"] = "decline", "not today"
	case k < 60:
		_, _ = t.decider.call(ctx, "assistant.confirm", params) // too soon
	case k < 65:
		params["allow_for_s"] = 60
	}
	if pause(ctx, confirm.Inert+rand.N(2*time.Second)) {
		_, _ = t.decider.call(ctx, "assistant.confirm", params)
	}
}

// rule is the owner: opens and closes, reads the records, takes permissions back.
func rule(ctx context.Context, owner *person, every time.Duration) {
	for i := 0; pause(ctx, every); i++ {
		switch i % 6 {
		case 0:
			_, _ = owner.call(ctx, "assistant.grants-set", map[string]any{"grants": map[string]any{"content": map[string]any{"granted": i%4 == 0}}})
		case 1:
			_, _ = owner.call(ctx, "audit.list", nil)
		case 2:
			_, _ = owner.call(ctx, "notices.list", nil)
		case 3:
			a, err := owner.call(ctx, "assistant.permissions-list", nil)
			var list struct {
				Permissions []struct {
					ID string `json:"id"`
				} `json:"permissions"`
			}
			if err == nil && json.Unmarshal(a.result, &list) == nil && len(list.Permissions) > 0 {
				_, _ = owner.call(ctx, "assistant.permissions-revoke", map[string]any{"id": list.Permissions[0].ID})
			}
		case 4:
			_, _ = owner.call(ctx, "audit.verify", nil)
		case 5:
			_, _ = owner.call(ctx, "system.history", nil)
		}
	}
}

// crash kills an app's process now and then.
func crash(ctx context.Context, owner *person, every time.Duration) {
	for pause(ctx, every) {
		a, err := owner.call(ctx, "apps.list", nil)
		var list struct {
			Apps []struct {
				App string `json:"app"`
				PID int    `json:"pid"`
			} `json:"apps"`
		}
		if err != nil || json.Unmarshal(a.result, &list) != nil || len(list.Apps) == 0 {
			continue
		}
		if one := list.Apps[rand.N(len(list.Apps))]; one.PID > 1 && !strings.Contains(one.App, ":") {
			_ = syscall.Kill(one.PID, syscall.SIGKILL)
		}
	}
}
