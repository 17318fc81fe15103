package soak

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/node"
)

var (
	lasts    = flag.Duration("soak", 15*time.Second, "how long TestSoak loads the node")
	sessions = flag.Int("sessions", 20, "how many sessions chat in TestSoak")
	seed     = flag.Uint64("seed", 1, "of TestSoak's people")
	outDir   = flag.String("out", "", "a directory for TestSoak's figures, as soak.json")
)

// gated is the shortest run whose slopes are judged; a shorter one is all warm-up.
const gated = 5 * time.Minute

// soak is one run.
type soak struct {
	t       *testing.T
	srv     *server
	brain   *brain
	models  *httptest.Server
	client  *http.Client
	tally   *tally
	load    *load
	owner   *person
	healthy *person
	crowd   *crowd

	reads, chats latencies
	baseline     inside
	baseFiles    int
	samples      []sample
	logins       int
}

// Many sessions chat while the model server fails in every way it can, clients are slow, silent and rude, people leave,
// decline and say nothing, sessions are revoked and apps crash. Healthy calls are answered meanwhile, nothing is answered
// with a 5xx, what was acknowledged is there, and afterwards memory, goroutines and files are where they were (section 6).
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	s := newSoak(t)
	ctx, cancel := context.WithTimeout(t.Context(), *lasts)
	defer cancel()
	s.run(ctx)
	s.settle()
	s.lookUp()
	if err := s.srv.stop(); err != nil {
		t.Errorf("the node did not stop in order: %v\n%s", err, s.srv.tail())
	}
	rep, err := node.AuditVerify(t.Context(), s.srv.dir, "")
	if err != nil || !rep.OK {
		t.Errorf("audit: %+v %v", rep, err)
	}
	s.judge(rep.Records)
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{t: t, brain: &brain{}, tally: &tally{}}
	s.models = httptest.NewServer(s.brain)
	t.Cleanup(func() { s.models.CloseClientConnections(); s.models.Close() })
	s.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 20 * time.Second}}
	s.srv = startServer(t, s.models.URL, "")
	s.owner = s.enter(ownerName)
	s.must(s.owner, "assistant.mode-set", map[string]any{"mode": "confirm"})
	grants := map[string]any{}
	for _, c := range []string{"apps", "system", "content", "settings"} {
		grants[c] = map[string]any{"granted": true}
	}
	s.must(s.owner, "assistant.grants-set", map[string]any{"grants": grants})
	s.load = &load{think: max(time.Second, min(*lasts, 5*time.Minute)*perAccount/100), brief: *lasts < 2*time.Minute, tally: s.tally}
	for n := 0; n < *sessions; n += perAccount {
		name := fmt.Sprintf("person-%d", n/perAccount)
		s.add(name)
		team := &team{load: s.load, acked: map[string][]kept{}, decider: s.enter(name)}
		team.id = current(t, team.decider)
		team.chats = []*person{team.decider}
		for i := 1; i < perAccount; i++ {
			team.chats = append(team.chats, s.enter(name))
		}
		s.load.teams = append(s.load.teams, team)
	}
	for _, name := range []string{"healthy", "leech"} {
		s.add(name)
	}
	s.healthy = s.enter("healthy")
	s.crowd = &crowd{addr: s.srv.addr, leech: s.enter("leech"), tally: s.tally}
	return s
}

func current(t *testing.T, p *person) string {
	t.Helper()
	for _, one := range listSessions(t.Context(), p) {
		if one.Current {
			return one.ID
		}
	}
	t.Fatal("a session does not find itself")
	return ""
}

func (s *soak) add(name string) {
	s.t.Helper()
	s.must(s.owner, "users.add", map[string]any{"username": name, "role": "member", "password": password})
}

// enter opens a session, from an address of its own.
func (s *soak) enter(name string) *person {
	s.t.Helper()
	s.logins++
	p := &person{name: name, address: fmt.Sprintf("10.0.%d.%d", s.logins/250, s.logins%250+1), base: "http://" + s.srv.addr, client: s.client, tally: s.tally}
	if a, err := p.login(s.t.Context()); err != nil || a.code != "" {
		s.t.Fatalf("login of %s: %+v %v", name, a, err)
	}
	return p
}

func (s *soak) must(p *person, method string, params any) jsontext.Value {
	s.t.Helper()
	a, err := p.call(s.t.Context(), method, params)
	if err != nil || a.code != "" {
		s.t.Fatalf("%s: %+v %v", method, a, err)
	}
	return a.result
}

// run is the load, with a sample every so often.
func (s *soak) run(ctx context.Context) {
	s.warm()
	s.quiet()
	s.baseline, s.baseFiles = s.srv.ask("collect"), s.srv.files()
	every := min(10*time.Second, *lasts/10)
	var all sync.WaitGroup
	n := 0
	for _, team := range s.load.teams {
		all.Go(func() { team.decide(ctx) })
		for _, p := range team.chats {
			n++
			number := n
			all.Go(func() { team.run(ctx, number, p) })
		}
	}
	for i := range *sessions / 5 {
		all.Go(func() { s.crowd.run(ctx, i) })
	}
	all.Go(func() { rule(ctx, s.owner, every) })
	all.Go(func() { crash(ctx, s.owner, every/4) })
	all.Go(func() { s.probe(ctx) })
	all.Go(func() { s.probeChat(ctx) })
	start := time.Now()
	fmt.Println(header)
	for pause(ctx, every) {
		s.samples = append(s.samples, s.sample(time.Since(start)))
		fmt.Println(s.samples[len(s.samples)-1])
	}
	all.Wait()
}

// warm has every account chat once, so that what is opened lazily is open before the first measurement.
func (s *soak) warm() {
	var all sync.WaitGroup
	for _, team := range s.load.teams {
		for i, p := range team.chats {
			all.Go(func() {
				_, _ = p.call(s.t.Context(), "assistant.chat", map[string]any{"message": fmt.Sprintf("[look warm-%d] hello", i)})
			})
		}
	}
	all.Wait()
}

// quiet lets go of connections that only wait for their next use.
func (s *soak) quiet() {
	s.client.CloseIdleConnections()
	s.models.CloseClientConnections()
	http.DefaultClient.CloseIdleConnections()
	pause(s.t.Context(), time.Second)
}

func (s *soak) sample(at time.Duration) sample {
	in := s.srv.ask("sample")
	v := sample{Seconds: at.Seconds(), Held: in.Held, Heap: in.Heap, Goroutines: in.Goroutines, Files: s.srv.files(), Turns: s.turns()}
	all, anonymous := s.srv.resident()
	v.RSS, v.Caches = all, max(0, anonymous-int64(in.Held))
	v.Disk, v.WAL = s.srv.disk()
	v.P50, v.P99 = s.reads.cut()
	v.Chat50, v.Chat99 = s.chats.cut()
	return v
}

// turns counts those that were answered.
func (s *soak) turns() int {
	return s.tally.sum("assistant.chat: ok") + s.tally.sum("assistant.chat (stream): ok")
}

// probe is a person whose calls must work, whatever happens around.
func (s *soak) probe(ctx context.Context) {
	methods := []string{"system.info", "apps.list", "settings.get", "assistant.conversations", "assistant.pending", "content.list"}
	for i := 0; pause(ctx, 200*time.Millisecond); i++ {
		s.time(ctx, &s.reads, methods[i%len(methods)], nil)
	}
}

// probeChat is the same for chatting, within the limit of 60 in 5 minutes.
func (s *soak) probeChat(ctx context.Context) {
	for i := 0; pause(ctx, min(6*time.Second, *lasts/15)); i++ {
		s.time(ctx, &s.chats, "assistant.chat", map[string]any{"message": fmt.Sprintf("[say healthy-%d] hello", i)})
	}
}

func (s *soak) time(ctx context.Context, l *latencies, method string, params any) {
	start := time.Now()
	a, err := s.healthy.call(ctx, method, params)
	switch {
	case ctx.Err() != nil: // the end
	case err != nil || a.code != "":
		s.t.Errorf("a healthy call of %s failed: %d %s %s %v", method, a.status, a.code, a.words, err)
	default:
		l.add(time.Since(start))
	}
}

// Slack after the load: what may differ from the level before it.
const (
	slackGoroutines = 10
	slackFiles      = 10
	slackHeap       = 8 * mib
	settleTime      = time.Minute
)

// settle waits until the node is as it was before the load.
func (s *soak) settle() {
	deadline := time.Now().Add(settleTime)
	for {
		s.quiet()
		in, files := s.srv.ask("collect"), s.srv.files()
		more := in.Goroutines - s.baseline.Goroutines
		heap := int64(in.Heap) - int64(s.baseline.Heap)
		calm := more <= slackGoroutines && files-s.baseFiles <= slackFiles && heap <= slackHeap
		if calm || time.Now().After(deadline) {
			all, anonymous := s.srv.resident()
			fmt.Printf("after the load: goroutines %d → %d, files %d → %d, heap %.1f → %.1f MiB, resident %.1f MiB, of it Go's %.1f and SQLite's %.1f\n", s.baseline.Goroutines, in.Goroutines,
				s.baseFiles, files, float64(s.baseline.Heap)/mib, float64(in.Heap)/mib, float64(all)/mib, float64(in.Held)/mib, float64(anonymous-int64(in.Held))/mib)
			if !calm {
				s.srv.ask("stacks")
				s.srv.ask("heap")
				s.keep("node.log")
				s.t.Errorf("the node is not back to where it was: %d goroutines, %d files, %d bytes more", more, files-s.baseFiles, heap)
			}
			return
		}
	}
}

// keep copies the node's log to the directory of figures.
func (s *soak) keep(name string) {
	if *outDir == "" {
		return
	}
	raw, err := os.ReadFile(s.srv.log.Name())
	if err == nil {
		err = os.WriteFile(filepath.Join(*outDir, name), raw, 0o600)
	}
	if err != nil {
		s.t.Error(err)
	}
}

// lookUp finds every acknowledged answer in the history, and no question left standing.
func (s *soak) lookUp() {
	found := 0
	for _, team := range s.load.teams {
		p := team.decider
		if got := string(s.must(p, "assistant.pending", nil)); got != `{"pending":[]}` {
			s.t.Errorf("questions stand although nobody waits: %s", got)
		}
		for conv, list := range team.acked {
			if len(list) == 0 {
				continue
			}
			past := string(s.must(p, "assistant.history", map[string]any{"conversation": conv, "limit": 1000}))
			for _, k := range list {
				for _, part := range append(strings.Split(k.text, "\n\n"), k.message) { // what came round by round is kept so
					if quoted, _ := jsontext.AppendQuote(nil, part); !strings.Contains(past, string(quoted)) {
						s.t.Errorf("of the acknowledged answer %q to %q, %q is lost", k.text, k.message, part)
					}
				}
				found++
			}
		}
	}
	fmt.Printf("%d acknowledged answers found in the history\n", found)
	if found < *sessions {
		s.t.Errorf("only %d answers were acknowledged: the load did too little", found)
	}
	if got := string(s.must(s.owner, "audit.verify", nil)); !strings.Contains(got, `"ok":true`) {
		s.t.Errorf("audit: %s", got)
	}
}

// judge holds the whole run against the bounds and writes it down.
func (s *soak) judge(records int64) {
	words, bad := "", []string(nil)
	if len(s.samples) > 3 {
		words, bad = risen(s.samples)
	}
	read50, read99 := s.reads.whole()
	chat50, chat99 := s.chats.whole()
	fmt.Printf("%sflatness over the last two thirds:\n%shealthy calls: read p50 %.1f ms, p99 %.1f ms; chat p50 %.1f ms, p99 %.1f ms; %d requests to the model, %d audit records\n",
		s.tally.lines(), words, read50, read99, chat50, chat99, s.brain.requests.Load(), records)
	if *lasts >= gated {
		for _, line := range bad {
			s.t.Errorf("not flat: %s", line)
		}
	}
	for what, n := range s.tally.all() {
		if strings.Contains(what, ": 5") || strings.HasSuffix(what, ": failed") || strings.HasSuffix(what, ": broken") && !strings.HasPrefix(what, "assistant.chat") {
			s.t.Errorf("%d times %s", n, what)
		}
	}
	if n := s.brain.problems.Load(); n > 0 {
		s.t.Errorf("%d requests to the model that a real server refuses, like %s", n, s.brain.first)
	}
	if raw, err := os.ReadFile(s.srv.log.Name()); err != nil || strings.Contains(string(raw), "panic") || strings.Contains(string(raw), "DATA RACE") {
		s.t.Errorf("the node's log tells of a panic or a race: %v", err)
	}
	if s.t.Failed() {
		s.t.Logf("the node's log ends:\n%s", s.srv.tail())
	}
	if *outDir == "" {
		return
	}
	raw, err := json.Marshal(map[string]any{"sessions": *sessions, "lasted_s": lasts.Seconds(), "samples": s.samples, "counts": s.tally.all(),
		"read_p50_ms": read50, "read_p99_ms": read99, "chat_p50_ms": chat50, "chat_p99_ms": chat99}, json.Deterministic(true), jsontext.WithIndent(" "))
	if err == nil {
		err = os.WriteFile(filepath.Join(*outDir, "soak.json"), raw, 0o600)
	}
	if err != nil {
		s.t.Error(err)
	}
	s.keep("node.log")
}
