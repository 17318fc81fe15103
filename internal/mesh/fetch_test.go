package mesh

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
)

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// sharing is a pair of nodes of which b may see what a shares.
func sharing(t *testing.T, files map[string][]byte, edit ...func(*Config)) (a, b *house) {
	t.Helper()
	a, b = newHouse(t, "alder"), newHouse(t, "birch", edit...)
	pair(t, a, b)
	for p, body := range files {
		a.share(p, body)
	}
	a.allow(b, []string{"/"}, "content")
	b.must("mesh.refresh", map[string]any{"peer": a.self}, nil)
	return a, b
}

// The link breaks in the middle, twice; the third time the file is whole, and nothing was sent twice.
func TestFetchGoesOn(t *testing.T) {
	body := random(12 << 20)
	a, b := sharing(t, map[string][]byte{"big": body})
	var sent atomic.Int64
	for _, stop := range []int{2 << 20, 3 << 20} {
		a.breakAfter(stop, func() { b.host.Disconnect(a.self) }, &sent)
		if got, err := b.fetch(t.Context(), owner, a.self, "big", func(Progress) error { return nil }); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "ask again") {
			t.Fatalf("the link broke: %+v, %v", got, err)
		}
	}
	a.breakAfter(1<<60, nil, &sent)
	got, err := b.fetch(t.Context(), owner, a.self, "big", func(Progress) error { return nil })
	if err != nil || got.Resumed == 0 || got.Resumed >= got.Size || sent.Load() >= int64(2*len(body)) {
		t.Fatalf("%+v, %v, %d bytes sent", got, err, sent.Load())
	}
	kept, err := os.ReadFile(got.File)
	if err != nil || !bytes.Equal(kept, body) {
		t.Error("the file is another:", len(kept), err)
	}
}

// breakAfter has something happen once n bytes of a file were read, and counts what is read.
func (h *house) breakAfter(n int, f func(), sent *atomic.Int64) {
	h.serve(serves{open: func(c caller.Caller, path string) (io.ReadSeekCloser, Item, error) {
		file, item, err := h.openFile(c, path)
		return &breaking{file, n, f, sent}, item, err
	}})
}

type breaking struct {
	io.ReadSeekCloser
	left int
	f    func()
	sent *atomic.Int64
}

func (b *breaking) Read(p []byte) (int, error) {
	n, err := b.ReadSeekCloser.Read(p)
	b.sent.Add(int64(n))
	if b.left -= n; b.left <= 0 && b.f != nil {
		b.f()
		b.f = nil
	}
	return n, err
}

// A node that sends another file than it announced leaves nothing behind, and the owner is told once.
func TestLies(t *testing.T) {
	a, b := sharing(t, map[string][]byte{"x": []byte("the real one")})
	lie := []byte("the real on3")
	a.openLie(lie)
	for range 3 {
		if err := b.call("mesh.fetch", map[string]any{"peer": a.self, "path": "x"}, nil); !fault.Is(err, fault.Failed) || !strings.Contains(err.Error(), "hash") {
			t.Fatal(err)
		}
	}
	_ = filepath.WalkDir(filepath.Join(b.dir, "downloads"), func(p string, d os.DirEntry, _ error) error {
		if !d.IsDir() {
			t.Error("left behind:", p)
		}
		return nil
	})
	if n := b.noticed("mesh-burst:" + a.self); len(n) != 1 {
		t.Errorf("%+v", b.notices)
	}
}

// openLie has the node send other bytes than its catalogue says.
func (h *house) openLie(body []byte) {
	h.serve(serves{open: func(_ caller.Caller, path string) (io.ReadSeekCloser, Item, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		sum := sha256.Sum256(h.files[path])
		return readCloser{bytes.NewReader(body)}, Item{Path: path, Size: int64(len(body)), SHA256: hex.EncodeToString(sum[:])}, nil
	}})
}

// A file that changed, shrank or went away since the catalogue was read is said, and what was fetched is never a mixture.
func TestChangedAtTheOtherEnd(t *testing.T) {
	a, b := sharing(t, map[string][]byte{"x": []byte("one"), "y": []byte("two")})
	a.share("x", []byte("another"))
	a.mu.Lock()
	delete(a.files, "y")
	a.mu.Unlock()
	for path, code := range map[string]fault.Code{"x": fault.Changed, "y": fault.NotFound} {
		if err := b.call("mesh.fetch", map[string]any{"peer": a.self, "path": path}, nil); !fault.Is(err, code) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// The quota holds before the first byte is asked for.
func TestQuota(t *testing.T) {
	a, b := sharing(t, map[string][]byte{"x": random(2000)}, func(c *Config) { c.Quota = 1000 })
	if err := b.call("mesh.fetch", map[string]any{"peer": a.self, "path": "x"}, nil); !fault.Is(err, fault.TooLarge) {
		t.Error(err)
	}
}

// A catalogue of a million entries costs no more than its limit; one with bad paths, in disorder or without end is left.
func TestHostileCatalogues(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	a.allow(b, []string{"/"}, "content")
	serve := func(f func(after string, n int) ([]Item, bool)) { a.serve(serves{catalogue: f}) }
	item := func(path string) Item {
		return Item{Path: path, Size: 1, SHA256: hexSum([]byte(path)), Modified: time.UnixMilli(1)}
	}
	var mu sync.Mutex
	asked := 0 // by the read that went furthest
	serve(func(after string, n int) (items []Item, more bool) {
		at := 0
		if after != "" {
			_, _ = fmt.Sscanf(after, "f%d", &at)
		}
		for i := at + 1; len(items) < n; i++ {
			items = append(items, item(fmt.Sprintf("f%09d", i)))
		}
		mu.Lock()
		defer mu.Unlock()
		asked = max(asked, at+n)
		return items, true
	})
	b.must("mesh.refresh", map[string]any{"peer": a.self}, nil)
	mu.Lock()
	defer mu.Unlock()
	if p := b.sees(a.self); p.Shares.Files != maxShared || !p.Shares.Truncated || asked > maxShared+2*pageItems || len(b.noticed("mesh-burst:")) != 1 {
		t.Errorf("%+v, %d asked for, %+v", p.Shares, asked, b.noticed(""))
	}
	for name, page := range map[string][]Item{
		"bad paths":   {item("../up"), item("/etc/passwd"), item("a\x00b"), item("b\u202ec"), {Path: "c", Size: -1, SHA256: hexSum(nil)}, {Path: "d", SHA256: "xx"}, item("good")},
		"in disorder": {item("b"), item("a")}, "the same twice": {item("a"), item("a")}, "empty path": {item("")},
	} {
		slices.SortFunc(page[:0], func(x, y Item) int { return strings.Compare(x.Path, y.Path) })
		serve(func(string, int) ([]Item, bool) { return page, false })
		err := b.refresh(t.Context(), a.self)
		l, lerr := b.Received(t.Context(), a.self, "", 100)
		if lerr != nil {
			t.Fatal(lerr)
		}
		for _, i := range l.Items {
			if strings.Contains(i.Path, "..") || strings.HasPrefix(i.Path, "/") || strings.ContainsAny(i.Path, "\x00\u202e") || i.Size < 0 {
				t.Errorf("%s: %q was kept", name, i.Path)
			}
		}
		t.Logf("%s: %v, %d kept", name, err, len(l.Items))
	}
}

// Names and paths of every hostile text: kept as they are or refused, shown visibly, never outside the folder.
func TestHostileTexts(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "attacks", "unicode.jsonl"))
	if err != nil {
		t.Skip("the hostile texts are not here:", err)
	}
	files := map[string][]byte{}
	var names []string
	for line := range bytes.Lines(raw) {
		var v map[string]any
		if json.Unmarshal(line, &v) != nil {
			continue
		}
		for _, value := range v {
			if s, ok := value.(string); ok && s != "" {
				files[s], names = []byte(s), append(names, s)
			}
		}
	}
	if len(names) == 0 {
		t.Fatal("no text was read")
	}
	a, b := sharing(t, files)
	l, err := b.Received(t.Context(), a.self, "", maxShared)
	if err != nil {
		t.Fatal(err)
	}
	fetched := 0
	for _, i := range l.Items[:min(len(l.Items), 60)] {
		var got Fetched
		if err := b.call("mesh.fetch", map[string]any{"peer": a.self, "path": i.Path}, &got); err == nil {
			fetched++
			if !strings.HasPrefix(got.File, filepath.Join(b.dir, "downloads")+"/") {
				t.Errorf("%q is kept as %q", i.Path, got.File)
			}
		}
	}
	for _, n := range names {
		b.heard(t.Context(), a.self, hello{Name: n})
		if p := b.peer(a.self); strings.ContainsAny(p.called(), "\u202e\u200b\n\x1b") {
			t.Errorf("%q is shown as %q", n, p.called())
		}
	}
	t.Logf("%d texts, %d in the catalogue, %d fetched", len(names), len(l.Items), fetched)
}

// A question's answer is taken to a limit, and a peer that hangs up or goes on for ever is no harm.
func TestAnswers(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	a.allow(b, nil, "system")
	ask := func() (Reply, error) {
		var r Reply
		return r, b.call("mesh.ask", map[string]any{"peer": a.self, "question": "hello"}, &r)
	}
	endless := func(ctx context.Context, _ caller.Caller, _ Question, say func(string) error) (Answer, error) {
		for {
			if err := say(strings.Repeat("x", 8<<10)); err != nil {
				return Answer{}, err
			}
		}
	}
	a.set(endless)
	var r Reply
	if err := b.call("mesh.ask", map[string]any{"peer": a.self, "question": "hello"}, &r); err != nil || !r.Truncated || len(r.Text) > maxAnswer {
		t.Errorf("%d characters, %v", len(r.Text), err)
	}
	a.set(func(context.Context, caller.Caller, Question, func(string) error) (Answer, error) {
		return Answer{}, fault.New(fault.Budget, "the day's budget for peers is used up\u202e")
	})
	if _, err := ask(); !fault.Is(err, fault.Budget) || strings.Contains(fault.Of(err).Public, "\u202e") {
		t.Error(err)
	}
	a.set(func(context.Context, caller.Caller, Question, func(string) error) (Answer, error) {
		return Answer{}, errors.New("secret detail of the node's inside")
	})
	if _, err := ask(); err == nil || strings.Contains(err.Error(), "secret detail") {
		t.Error("the inside of a node went out:", err)
	}
}

func (h *house) set(f func(context.Context, caller.Caller, Question, func(string) error) (Answer, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = f
}

// M2: a flood of questions is refused at its limit, costs the others nothing, and the owner is told once.
func TestFloodOfQuestions(t *testing.T) {
	a, b, c := newHouse(t, "alder"), newHouse(t, "birch"), newHouse(t, "cedar")
	pair(t, a, b)
	pair(t, a, c)
	a.allow(b, nil, "system")
	a.allow(c, nil, "system")
	limited := 0
	for range 60 {
		if err := b.call("mesh.ask", map[string]any{"peer": a.self, "question": "hello"}, nil); fault.Is(err, fault.RateLimited) {
			limited++
		}
	}
	a.mu.Lock()
	n := len(a.asked)
	a.mu.Unlock()
	if n != 10 || limited != 50 {
		t.Errorf("%d questions ran, %d were limited", n, limited)
	}
	if err := c.call("mesh.ask", map[string]any{"peer": a.self, "question": "hello"}, nil); err != nil {
		t.Error("another peer pays for it:", err)
	}
	if got := a.noticed("mesh-burst:"); len(got) != 1 || !strings.Contains(got[0].Do, "block") {
		t.Errorf("%+v", got)
	}
}

// A model reads no more of the peers than fits; the rest is said.
func TestFit(t *testing.T) {
	s := Status{Peers: make([]Peer, 50)}
	raw, err := rpc.Marshal(s.Fit(8000))
	if err != nil || !strings.Contains(string(raw), "20 of 50") || len(raw) > 16000 {
		t.Error(len(raw), err)
	}
}
