package mesh

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/mesh/link"
	"atoll/internal/rpc"
	"atoll/internal/store"
)

var owner = caller.Operator(1, "ada", caller.Owner, "s1", "127.0.0.1")

// house is a node's room with what it needs around it, and a record of what it did.
type house struct {
	*Room
	t    *testing.T
	name string
	dir  string
	db   *store.DB
	gate *rpc.Gate
	skew time.Duration // of its wall clock

	mu      sync.Mutex // guards the rest
	open    map[string]bool
	files   map[string][]byte
	notices map[string]Notice
	records []audit.Entry
	cancels []string
	asked   []string
	answer  func(context.Context, caller.Caller, Question, func(string) error) (Answer, error)
	serves  serves
	changed chan struct{}
	stop    func()
}

// serves is what a house gives its peers instead of what it has; nil fields stand for what it has.
type serves struct {
	figures   *Figures
	catalogue func(after string, n int) ([]Item, bool)
	open      func(caller.Caller, string) (io.ReadSeekCloser, Item, error)
}

// serve changes what the house gives from now on, also while peers ask.
func (h *house) serve(s serves) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serves = s
}

func (h *house) serving() serves {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.serves
}

func newHouse(t *testing.T, name string, edit ...func(*Config)) *house {
	t.Helper()
	h := &house{t: t, name: name, dir: t.TempDir(), open: map[string]bool{}, files: map[string][]byte{}, notices: map[string]Notice{}, changed: make(chan struct{}, 1)}
	h.start(edit...)
	t.Cleanup(func() { h.stop() })
	return h
}

// start opens the house on its directory; a second time it is a restart.
func (h *house) start(edit ...func(*Config)) {
	t := h.t
	t.Helper()
	db, err := store.Open(context.Background(), store.Config{Path: filepath.Join(h.dir, "node.db"), Schemas: []store.Schema{Schema()}})
	if err != nil {
		t.Fatal(err)
	}
	seed := sha256.Sum256([]byte(h.name))
	real := clock.Real()
	cfg := Config{DB: db, Log: slog.New(slog.DiscardHandler), Key: ed25519.NewKeyFromSeed(seed[:]), Enabled: true,
		Clock: clock.New(func() time.Time { return real.Now().Add(h.skew) }, real.Mono), Name: func() string { return h.name }, Version: "test",
		Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Downloads: filepath.Join(h.dir, "downloads"), Quota: 1 << 30,
		Categories: []string{"system", "apps", "content", "mesh"}, Open: h.isOpen, Status: h.giveFigures, Catalogue: h.giveCatalogue, OpenFile: h.giveFile,
		Ask: h.ask, Cancel: h.cancel, Record: h.record, Raise: h.raise, Changed: h.change}
	for _, f := range edit {
		f(&cfg)
	}
	if h.Room, err = New(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	h.db = db
	h.gate = rpc.NewGate(rpc.Config{Methods: h.Methods(), Log: cfg.Log})
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() { h.Run(ctx) })
	h.stop = sync.OnceFunc(func() {
		cancel()
		g.Wait()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (h *house) isOpen(c caller.Caller, category string) bool {
	allowed := slices.Contains(h.Ceiling(c.PeerKey()), category) // before h.mu, which the room takes with its own held
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open[category] && allowed
}

func (h *house) giveFigures(context.Context, caller.Caller) (Figures, error) {
	if f := h.serving().figures; f != nil {
		return *f, nil
	}
	return Figures{UptimeS: 7200, DiskPercent: 40, MemoryPercent: 30}, nil
}

func (h *house) share(path string, body []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.files[path] = body
}

func (h *house) giveCatalogue(c caller.Caller, after string, n int) ([]Item, bool, error) {
	if f := h.serving().catalogue; f != nil {
		items, more := f(after, n)
		return items, more, nil
	}
	return h.catalogue(c, after, n)
}

func (h *house) catalogue(c caller.Caller, after string, n int) (items []Item, more bool, err error) {
	folders := h.Folders(c.PeerKey())
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range slices.Sorted(maps.Keys(h.files)) {
		under := slices.ContainsFunc(folders, func(f string) bool { return f == "" || strings.HasPrefix(p, f+"/") })
		if p <= after || !under {
			continue
		}
		if len(items) == n {
			return items, true, nil
		}
		items = append(items, Item{Path: p, Size: int64(len(h.files[p])), SHA256: hexSum(h.files[p]), Modified: time.UnixMilli(1e12)})
	}
	return items, false, nil
}

func hexSum(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

func (h *house) giveFile(c caller.Caller, path string) (io.ReadSeekCloser, Item, error) {
	if f := h.serving().open; f != nil {
		return f(c, path)
	}
	return h.openFile(c, path)
}

func (h *house) openFile(c caller.Caller, path string) (io.ReadSeekCloser, Item, error) {
	items, _, _ := h.catalogue(c, "", 1<<20)
	for _, i := range items {
		if i.Path == path {
			return readCloser{bytes.NewReader(h.files[path])}, i, nil
		}
	}
	return nil, Item{}, fault.New(fault.NotFound, "there is no such file")
}

func (h *house) ask(ctx context.Context, c caller.Caller, q Question, say func(string) error) (Answer, error) {
	h.mu.Lock()
	h.asked = append(h.asked, c.PeerKey()+": "+q.Text)
	answer := h.answer
	h.mu.Unlock()
	if answer != nil {
		return answer(ctx, c, q, say)
	}
	if err := say("You asked: "); err != nil {
		return Answer{}, err
	}
	return Answer{Conversation: "c1"}, say(q.Text)
}

func (h *house) cancel(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cancels = append(h.cancels, key)
}

func (h *house) record(_ context.Context, _ *sql.Tx, e audit.Entry) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, e)
	return nil
}

func (h *house) raise(_ context.Context, n Notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notices[n.Key] = n
}

func (h *house) change() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

func (h *house) noticed(prefix string) (found []Notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, n := range h.notices {
		if strings.HasPrefix(k, prefix) {
			found = append(found, n)
		}
	}
	return found
}

// call is the owner's call; a result is read into out.
func (h *house) call(method string, params any, out any) error {
	return h.callAs(owner, method, params, out)
}

func (h *house) callAs(c caller.Caller, method string, params any, out any) error {
	h.t.Helper()
	raw, err := json.Marshal(params)
	if err != nil {
		h.t.Fatal(err)
	}
	got, err := h.gate.Call(h.t.Context(), c, rpc.People, method, jsontext.Value(raw), nil)
	if err != nil || out == nil {
		return err
	}
	if raw, err = rpc.Marshal(got); err != nil {
		h.t.Fatal(err)
	}
	return json.Unmarshal(raw, out)
}

func (h *house) must(method string, params any, out any) {
	h.t.Helper()
	if err := h.call(method, params, out); err != nil {
		h.t.Fatalf("%s at %s: %v", method, h.name, err)
	}
}

// until waits until something the room tells of holds.
func (h *house) until(what string, good func() bool) {
	h.t.Helper()
	late := time.After(30 * time.Second)
	for !good() {
		select {
		case <-h.changed:
		case <-time.After(50 * time.Millisecond): // what no event tells of
		case <-late:
			h.t.Fatalf("%s: never at %s", what, h.name)
		}
	}
}

func (h *house) sees(key string) Peer {
	h.t.Helper()
	if p := h.peer(key); p != nil {
		return h.shown(p)
	}
	return Peer{}
}

// invited makes an invite at h.
func (h *house) invited() Invite {
	h.t.Helper()
	var v Invite
	h.must("mesh.invite", map[string]any{}, &v)
	return v
}

// pair lets b in at a by an invite of a, as both owners would.
func pair(t *testing.T, a, b *house) {
	t.Helper()
	v := a.invited()
	b.must("mesh.accept", map[string]any{"code": v.Code, "key_words": strings.Join(v.KeyWords, " "), "label": a.name}, nil)
	a.must("mesh.admit", map[string]any{"peer": b.self, "key_words": words(b.self)}, nil)
	a.must("mesh.rename", map[string]any{"peer": b.self, "label": b.name}, nil)
	b.until("let in", func() bool { return b.sees(a.self).Admits && b.sees(a.self).Online })
}

func (h *house) allow(other *house, folders []string, categories ...string) {
	h.t.Helper()
	h.must("mesh.allow", map[string]any{"peer": other.self, "categories": categories, "folders": folders}, nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range categories {
		h.open[c] = true
	}
}

// Off is the default: nothing listens, and the rows say how to turn it on.
func TestOff(t *testing.T) {
	h := newHouse(t, "lone", func(c *Config) { *c = Config{DB: c.DB, Log: c.Log, Clock: c.Clock, Key: c.Key} })
	var s Status
	h.must("mesh.status", struct{}{}, &s)
	if s.Enabled || len(s.Peers) != 0 || len(s.Addresses) != 0 || s.Key != h.self {
		t.Errorf("%+v", s)
	}
	for method, params := range map[string]any{"mesh.invite": struct{}{}, "mesh.peers": struct{}{}, "mesh.accept": map[string]string{"code": "x", "key_words": "y"},
		"mesh.block": map[string]string{"peer": "x"}} {
		if err := h.call(method, params, nil); !fault.Is(err, fault.NotConfigured) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if _, err := New(t.Context(), Config{}); err == nil {
		t.Error("an empty config was taken")
	}
	if _, err := New(t.Context(), Config{DB: h.db, Log: h.cfg.Log, Key: h.cfg.Key, Enabled: true}); err == nil {
		t.Error("a mesh with half a config was opened")
	}
}

// G2: only the owner reaches more than the status, and a peer sees nobody else there.
func TestWhoMayCall(t *testing.T) {
	a, b, c := newHouse(t, "alder"), newHouse(t, "birch"), newHouse(t, "cedar")
	pair(t, a, b)
	pair(t, a, c)
	for _, who := range []caller.Caller{caller.Operator(2, "mel", caller.Member, "s", ""), caller.Operator(3, "vi", caller.Viewer, "s", ""), caller.Peer(b.self, "birch"), {}} {
		for _, m := range a.Methods() {
			if err := a.callAs(who, m.Name, struct{}{}, nil); m.Name != "mesh.status" && !fault.Is(err, fault.Forbidden) {
				t.Errorf("%s by %s: %v", m.Name, who, err)
			}
		}
	}
	got, err := a.gate.Call(t.Context(), caller.Peer(b.self, "birch"), rpc.Tools, "mesh.status", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := rpc.Marshal(got)
	if text := string(raw); !strings.Contains(text, b.self) || strings.Contains(text, c.self) || strings.Contains(text, "cedar") || strings.Contains(text, "127.0.0.1") {
		t.Error("a peer is told of others:", text)
	}
	for _, m := range a.Methods() {
		if m.Facts {
			t.Errorf("%s declares facts (U1)", m.Name)
		}
	}
}

// M1, the main path: invite, words, accept, admit; then state, catalogue, fetch and a question, each under the ceiling.
func TestTwoNodes(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	v := a.invited()
	var offer Offer
	b.must("mesh.read-invite", map[string]any{"code": strings.Join(v.Words, " ")}, &offer)
	if offer.Key != a.self || !slices.Equal(offer.KeyWords, v.KeyWords) {
		t.Fatalf("%+v", offer)
	}
	if err := b.call("mesh.accept", map[string]any{"code": v.Code, "key_words": "one two three four five six"}, nil); !fault.Is(err, fault.InvalidParams) {
		t.Error("accepted with other words:", err)
	}
	var accepted acceptResult
	b.must("mesh.accept", map[string]any{"code": v.Code, "key_words": strings.Join(v.KeyWords, " ")}, &accepted)
	if accepted.State != asking || accepted.Peer.Authorized != true || len(accepted.Peer.Ceiling.Categories) != 0 {
		t.Errorf("%+v", accepted)
	}
	if p := a.sees(b.self); p.State != asking || p.Authorized || p.Name != "birch" || len(a.noticed("mesh-asks:")) != 1 {
		t.Errorf("%+v %+v", p, a.notices)
	}
	if text := a.noticed("mesh-asks:")[0].What; !strings.Contains(text, words(b.self)) {
		t.Error("the notice has no key words:", text)
	}
	if err := b.call("mesh.ask", map[string]any{"peer": a.self, "question": "hello?"}, nil); err == nil {
		t.Error("a node that is not let in yet was answered")
	}
	a.must("mesh.admit", map[string]any{"peer": b.self, "key_words": words(b.self)}, nil)
	b.until("let in", func() bool { return b.sees(a.self).Admits })

	body := bytes.Repeat([]byte("archive "), 300_000)
	a.share("films/one.mkv", body)
	a.share("private/diary", []byte("secret"))
	b.must("mesh.refresh", map[string]any{"peer": a.self}, nil)
	if p := b.sees(a.self); p.Shares.Files != 0 || p.Figures != nil {
		t.Error("something is shared by default:", p)
	}
	a.allow(b, []string{"films"}, "content", "system")
	b.must("mesh.refresh", map[string]any{"peer": a.self}, nil)
	if p := b.sees(a.self); p.Shares.Files != 1 || p.Shares.Bytes != int64(len(body)) || p.Figures == nil || p.Status == "" {
		t.Errorf("%+v", p)
	}
	l, err := b.Received(t.Context(), a.self, "fil", 10)
	if err != nil || l.Total != 1 || l.Items[0].Path != "films/one.mkv" {
		t.Errorf("%+v, %v", l, err)
	}
	var got Fetched
	b.must("mesh.fetch", map[string]any{"peer": a.self, "path": "films/one.mkv"}, &got)
	if got.Size != int64(len(body)) || got.SHA256 != hexSum(body) || !strings.HasPrefix(got.File, b.dir) {
		t.Errorf("%+v", got)
	}
	if err := b.call("mesh.fetch", map[string]any{"peer": a.self, "path": "private/diary"}, nil); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	var reply Reply
	b.must("mesh.ask", map[string]any{"peer": a.self, "question": "is your copy complete?"}, &reply)
	if reply.Text != "You asked: is your copy complete?" || reply.Conversation != "c1" || !slices.Equal(a.asked, []string{b.self + ": is your copy complete?"}) {
		t.Errorf("%+v %v", reply, a.asked)
	}
	for _, event := range []string{"invite", "asked", "admit", "allow"} {
		if !slices.ContainsFunc(a.records, func(e audit.Entry) bool { return e.Event == event && e.Kind == "mesh" }) {
			t.Errorf("no record of %s in %+v", event, a.records)
		}
	}
}

// A5: what the owner takes back is gone at the next request, and the owner's own grant counts as well.
func TestCeilingAtEveryCall(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	a.share("x", []byte("x"))
	a.allow(b, []string{"/"}, "content", "system")
	status := func() error { return b.exchange(t.Context(), a.self, "status", statusAsk{}, &Figures{}) }
	fetch := func() error { return b.call("mesh.fetch", map[string]any{"peer": a.self, "path": "x"}, nil) }
	b.must("mesh.refresh", map[string]any{"peer": a.self}, nil)
	if err := status(); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	a.open["system"], a.open["content"] = false, false // the owner closes the grants
	a.mu.Unlock()
	for name, call := range map[string]func() error{"status": status, "fetch": fetch} {
		if err := call(); !refused(err, fault.NotGranted) {
			t.Errorf("%s after the grant was closed: %v", name, err)
		}
	}
	a.mu.Lock()
	a.open["system"], a.open["content"] = true, true
	a.mu.Unlock()
	a.must("mesh.allow", map[string]any{"peer": b.self, "categories": []string{"mesh"}}, nil)
	for name, call := range map[string]func() error{"status": status, "fetch": fetch} {
		if err := call(); !refused(err, fault.NotGranted) {
			t.Errorf("%s after the ceiling fell: %v", name, err)
		}
	}
	b.must("mesh.refresh", map[string]any{"peer": a.self}, nil)
	if p := b.sees(a.self); p.Shares.Files != 0 || p.Figures != nil {
		t.Errorf("what is not shared any more is still shown: %+v", p)
	}
}

func refused(err error, code fault.Code) bool {
	f := link.Said(err)
	return f != nil && f.Code == code || fault.Is(err, code)
}

// M4: a peer's own name finds no peer, looks like nothing else, and is cut.
func TestNamesAreStrangersWords(t *testing.T) {
	a := newHouse(t, "alder")
	b := newHouse(t, "birch", func(c *Config) {
		c.Name = func() string { return "alder\u202e\n" + strings.Repeat("x", 500) }
	})
	pair(t, a, b)
	if got := a.Labels(); !slices.Equal(got, []string{"birch"}) {
		t.Errorf("labels %q", got)
	}
	a.must("mesh.rename", map[string]any{"peer": b.self, "label": ""}, nil)
	if got := a.Labels(); len(got) > 0 {
		t.Errorf("labels %q of a peer without one", got)
	}
	p := a.peer(b.self)
	if len([]rune(p.name)) > maxName || strings.ContainsAny(p.called(), "\u202e\n") {
		t.Errorf("%q", p.called())
	}
	for _, word := range []string{p.name, p.called(), "alder", "", "x"} {
		if _, err := a.find(word); !fault.Is(err, fault.NotFound) {
			t.Errorf("%q found a peer: %v", word, err)
		}
	}
	if _, err := a.find(b.self[len(b.self)-8:]); err != nil {
		t.Error(err)
	}
	for _, label := range []string{"a/b", " x", "b\u202ec", "раураl", strings.Repeat("y", maxName+1), "a\nb"} {
		if shown, _ := fence.Visible(label); shown == label && !strings.ContainsAny(label, "/ ") && len(label) <= maxName {
			continue
		}
		if err := a.call("mesh.rename", map[string]any{"peer": b.self, "label": label}, nil); !fault.Is(err, fault.InvalidParams) {
			t.Errorf("the label %q: %v", label, err)
		}
	}
}

func TestParameters(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	for _, tc := range []struct {
		method string
		params map[string]any
		field  string
	}{
		{"mesh.invite", map[string]any{"for_s": 5}, "for_s"}, {"mesh.invite", map[string]any{"for_s": 1 << 40}, "for_s"}, {"mesh.invite", map[string]any{"for_s": -1}, "for_s"},
		{"mesh.read-invite", map[string]any{"code": "nonsense"}, "code"}, {"mesh.accept", map[string]any{"code": "x", "key_words": "y"}, "code"},
		{"mesh.accept", map[string]any{"code": a.invited().Code, "key_words": strings.Join(a.invited().KeyWords, " ")}, "code"},
		{"mesh.allow", map[string]any{"peer": b.self, "categories": []string{"everything"}}, "categories"},
		{"mesh.allow", map[string]any{"peer": b.self, "categories": []string{"content"}}, "folders"},
		{"mesh.allow", map[string]any{"peer": b.self, "categories": []string{"content"}, "folders": []string{"../x"}}, "folders"},
		{"mesh.allow", map[string]any{"peer": "nobody"}, "peer"}, {"mesh.block", map[string]any{"peer": "nobody"}, "peer"}, {"mesh.admit", map[string]any{"peer": b.self}, "key_words"},
		{"mesh.admit", map[string]any{"peer": b.self, "key_words": words(a.self)}, "key_words"}, {"mesh.admit", map[string]any{"peer": b.self, "key_words": words(b.self)}, "peer"},
		{"mesh.ask", map[string]any{"peer": b.self, "question": strings.Repeat("x", maxQuestion+1)}, "question"}, {"mesh.ask", map[string]any{"peer": b.self, "question": " "}, "question"},
		{"mesh.fetch", map[string]any{"peer": b.self, "path": "none"}, "path"}, {"mesh.rename", map[string]any{"peer": b.self, "labels": "x"}, "labels"},
	} {
		err := a.call(tc.method, tc.params, nil)
		if f := fault.Of(err); err == nil || f.Field != tc.field {
			t.Errorf("%s %v: %v, field %q", tc.method, tc.params, err, f.Field)
		}
	}
	if p := a.sees(b.self); len(p.Ceiling.Categories) != 0 {
		t.Errorf("a refused call changed something: %+v", p)
	}
}
