package sequence

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"atoll/internal/app/process"
	"atoll/internal/confirm"
	"atoll/internal/eval"
	"atoll/internal/eval/rules"
	"atoll/internal/model"
)

var visits = flag.Int("visits", 25, "how many histories TestVisits plays on a whole node, over HTTP")

// TestMain lets this binary be the program that a whole node's apps are launched by.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case process.LaunchArg:
			os.Exit(process.Launch())
		case process.SampleArg:
			os.Exit(process.Sample(os.Args[2:], os.Stdout, os.Stderr))
		}
	}
	os.Exit(m.Run())
}

// house is a whole node with its people; scripts visit it one after the other.
type house struct {
	t      *testing.T
	h      *eval.House
	people map[string]*eval.Person // by session
	puppet *bench                  // holds the plans of the model, and nothing else
	turns  int

	mu    sync.Mutex // guards asked
	asked []confirm.Pending
}

func newHouse(t *testing.T) *house {
	s := &house{t: t, people: map[string]*eval.Person{}, puppet: &bench{}}
	s.puppet.forget()
	s.h = eval.Open(t, eval.Options{Model: puppet{s.puppet}})
	s.people["ada1"] = s.h.Owner()
	if r := s.people["ada1"].Call("users.add", map[string]any{"username": "mel", "role": "member", "password": password}); r.Code != "" {
		t.Fatal(r.Message)
	}
	for _, session := range []string{"ada2", "mel1", "mel2"} {
		s.people[session] = s.h.Login(strings.TrimRight(session, "12"))
	}
	events := s.people["ada1"].Listen() // an owner is told of every question
	s.people["mel1"].Listen()
	go func() { // ends with the stream, which the test's end closes
		for e := range events {
			var q confirm.Pending
			if e.Name == "confirm" && json.Unmarshal(e.Data, &q) == nil {
				s.mu.Lock()
				s.asked = append(s.asked, q)
				s.mu.Unlock()
			}
		}
	}()
	return s
}

func (s *house) questions() []confirm.Pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]confirm.Pending{}, s.asked...)
}

// visit plays one script.
type visit struct {
	s     *house
	w     *rules.World
	talks map[string]string
	live  []*live
	mu    sync.Mutex // guards the talks, and the lives' fields that a bench's would
	first int        // of this visit's questions
}

// play plays a script on the house as it is at the start again.
func (s *house) play(script Script) (err error) {
	v := &visit{s: s, w: rules.New(), talks: map[string]string{}, first: len(s.questions())}
	v.w.Set("sample", "exited")
	s.h.Advance(6 * time.Minute) // so that no rate is used up
	for _, line := range []string{"mode ada1 confirm", "close ada1 settings", "close ada1 apps"} {
		if err := v.step(line); err != nil {
			return err
		}
	}
	if r := s.people["ada1"].Call("settings.set", map[string]any{"key": "ui.theme", "value": "auto"}); r.Code != "" {
		return fmt.Errorf("settings.set: %s", r.Message)
	}
	defer func() { err = errors.Join(err, v.leave()) }()
	for i, line := range script {
		if err := v.step(line); err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, line, err)
		}
	}
	return nil
}

// leave cancels what the script left running.
func (v *visit) leave() error {
	for _, l := range v.live {
		who, talk, _ := strings.Cut(l.name, " ")
		if l.want != nil && !l.want.Done {
			v.w.Cancel(who+"1", talk)
			if r := v.s.people[who+"1"].Call("assistant.cancel", map[string]any{"conversation": v.talk(l.name)}); r.Code != "" {
				return fmt.Errorf("cancelling %s (%s) at the end: %s", l.message, l.name, r.Code)
			}
		}
	}
	return v.settled()
}

func (v *visit) talk(name string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.talks[name]
}

func (v *visit) step(line string) error {
	v.s.h.Advance(time.Millisecond)
	v.w.Pass(time.Millisecond)
	f := strings.Fields(line)
	p, w := v.s.people[f[1]], v.w
	var got eval.Reply
	var want rules.Code
	switch f[0] {
	case "chat":
		return v.chat(f[1], f[2], Plan(f[3:]))
	case "approve", "decline":
		return v.decide(f)
	case "grant", "close":
		got = p.Call("assistant.grants-set", map[string]any{"grants": map[string]any{f[2]: map[string]any{"granted": f[0] == "grant"}}})
		want = w.SetGrant(f[1], f[2], f[0] == "grant", 0)
	case "mode":
		got = p.Call("assistant.mode-set", map[string]any{"mode": f[2]})
		want = w.SetMode(f[1], f[2])
	case "cancel", "undo":
		id := v.talk(strings.TrimRight(f[1], "12") + " " + f[2])
		if id == "" {
			id = "1-none"
		}
		if got = p.Call("assistant."+f[0], map[string]any{"conversation": id}); f[0] == "undo" {
			want = w.Undo(f[1], f[2])
		} else {
			want = w.Cancel(f[1], f[2])
		}
	case "blank":
		n, _ := strconv.Atoi(f[2])
		for range n {
			got, want = p.Call("assistant.chat", map[string]any{"message": " "}), w.Blank(f[1])
		}
	}
	if rules.Code(got.Code) != want {
		return fmt.Errorf("the node says %q, the rules say %q", got.Code, want)
	}
	return v.settled()
}

// chat sends a message as the web interface does, as a stream, whose first event names the conversation.
func (v *visit) chat(session, talk string, plan []rules.Round) error {
	s := v.s
	s.turns++
	l := &live{name: strings.TrimRight(session, "12") + " " + talk, message: "turn " + strconv.Itoa(s.turns)}
	s.puppet.mu.Lock()
	s.puppet.plans[l.message] = plan
	s.puppet.mu.Unlock()
	want, refusal := v.w.Chat(session, talk, plan)
	l.want = want
	v.live = append(v.live, l)
	id := v.talk(l.name)
	go func() { // ends with the turn, which leave cancels at the latest
		a, r, err := s.people[session].ChatStream(context.Background(), id, l.message, func(e eval.Event) {
			var start struct {
				Conversation string `json:"conversation"`
			}
			if e.Name == "start" && json.Unmarshal(e.Data, &start) == nil {
				v.mu.Lock()
				v.talks[l.name], l.conversation = start.Conversation, start.Conversation
				v.mu.Unlock()
			}
		})
		v.mu.Lock()
		defer v.mu.Unlock()
		l.done, l.err, l.outcome = true, err, string(r.Code)
		if err == nil && r.Code == "" {
			l.outcome = "answer " + answered(a)
		}
	}()
	if want == nil {
		l.want = &rules.Turn{Done: true, Code: refusal}
	}
	return v.settled()
}

// answered is what an answer says beside the model's words, in the form of foreseen.
func answered(a eval.Answer) string {
	var calls, changes, offers []string
	for _, o := range a.Tools {
		calls = append(calls, fmt.Sprintf("%s %s %s", o.Tool, o.Outcome, o.Code))
	}
	for _, c := range a.Changes {
		changes = append(changes, c.Tool+" "+c.Outcome)
	}
	for _, o := range a.Offers {
		offers = append(offers, o.Category)
	}
	slices.Sort(offers)
	return fmt.Sprint(calls, changes, offers, a.Rounds)
}

func (v *visit) decide(f []string) error {
	a, atOnce, err := answer(f[0], f[3:])
	if err != nil {
		return err
	}
	if !atOnce {
		v.s.h.Advance(time.Second)
		v.w.Pass(time.Second)
	}
	n := question(f[2], len(v.w.Questions))
	q := confirm.Pending{Nonce: "00", ActionKey: "00"}
	if asked := v.s.questions(); n >= 1 && n <= len(v.w.Questions) {
		q = asked[v.first+n-1]
	}
	if a.WrongKey {
		q.ActionKey = strings.Repeat("0", 64)
	}
	got := v.s.people[f[1]].Decide(q, f[0], nil)
	if want := v.w.Decide(f[1], n, a); rules.Code(got.Code) != want {
		return fmt.Errorf("the node says %q, the rules say %q", got.Code, want)
	}
	return v.settled()
}

// settled waits until the node stands where the rules say, and no longer than it should take.
func (v *visit) settled() error {
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for {
		err := v.differs()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline:
			return err
		}
	}
}

func (v *visit) differs() error {
	asked := v.s.questions()[v.first:]
	if len(asked) != len(v.w.Questions) {
		return fmt.Errorf("%d questions were asked, by the rules %d", len(asked), len(v.w.Questions))
	}
	for i, q := range asked {
		want := v.w.Questions[i]
		if action(q) != want.Key || (len(q.Untrusted) > 0) != want.Untrusted || q.MayAllow != want.MayAllow || q.Before != want.Before {
			return fmt.Errorf("question #%d: %s, before %q, untrusted %v\nby the rules: %s", i+1, action(q), q.Before, q.Untrusted, *want)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, l := range v.live {
		if !l.done && l.conversation == "" {
			return fmt.Errorf("%s (%s) has not begun", l.message, l.name)
		}
		want := string(l.want.Code)
		if l.want.Code == "" {
			want = "answer " + foreseen(l.want)
		}
		if l.done != l.want.Done || l.done && (l.err != nil || l.outcome != want) {
			return fmt.Errorf("%s (%s): ended %v: %s (%v)\nby the rules: %v %s", l.message, l.name, l.done, l.outcome, l.err, l.want.Done, want)
		}
	}
	return nil
}

// drawVisit makes a history of what needs no app to start or stop: those take seconds.
func drawVisit(t *rapid.T) Script {
	who := func() string { return pick(t, "session", "ada1", "ada1", "ada2", "mel1") }
	s := Script{"grant ada1 settings"}
	for range rapid.IntRange(2, 9).Draw(t, "steps") {
		var line string
		switch rapid.IntRange(0, 11).Draw(t, "kind") {
		case 0, 1, 2, 3:
			var calls []string
			for range rapid.IntRange(0, 4).Draw(t, "calls") {
				calls = append(calls, pick(t, "call", "settings_set:dark", "settings_set:light", "settings_set:dark", "settings_set:?",
					"settings_get", "app_logs:sample", "app_wipe", "wallet_status", ";", ";"))
			}
			line = strings.TrimSpace("chat " + who() + " " + talk(t) + " " + strings.Join(calls, " "))
		case 4, 5, 6:
			line = "approve " + who() + " " + pick(t, "which", "#last", "#last", "#1", "#2") + pick(t, "how", "", "", "", " at-once", " wrong-key")
		case 7:
			line = "decline " + who() + " " + pick(t, "which", "#last", "#last", "#1")
		case 8:
			line = pick(t, "verb", "grant ", "grant ", "close ") + who() + " " + pick(t, "category", "settings", "apps", "apps")
		case 9:
			line = "mode " + who() + " " + pick(t, "mode", "confirm", "read-only", "off")
		case 10:
			line = pick(t, "verb", "cancel ", "undo ") + who() + " " + talk(t)
		case 11:
			line = "blank " + who() + " " + pick(t, "times", "1", "59")
		}
		s = append(s, line)
	}
	return s
}

// Histories on a whole node over HTTP: C1, C2, C5, C8, C9, A2, A4, G4, T10, U3, H7 through every door there is.
func TestVisits(t *testing.T) {
	s := newHouse(t)
	for i := range *visits {
		script := rapid.Custom(drawVisit).Example(int(*seed) + i)
		if err := s.play(script); err != nil {
			t.Fatalf("%v\n%s", err, script)
		}
	}
	if r := s.people["ada1"].Call("audit.verify", nil); !strings.Contains(string(r.Result), `"ok":true`) {
		t.Errorf("%s", r.Result)
	}
}

var _ model.Client = puppet{}
