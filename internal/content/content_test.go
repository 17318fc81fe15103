package content

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
	"atoll/internal/store"
)

// node is a data directory with a database.
type node struct {
	data string
	db   *store.DB
	told chan struct{}
}

func newNode(t *testing.T) node {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(filepath.Join(data, "secrets"), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(data, "secrets", "claude-api-key"), "SECRET")
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(data, "node.db"), Schemas: []store.Schema{Schema()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return node{data, db, make(chan struct{}, 1)}
}

func (n node) config(dir string) Config {
	return Config{DB: n.db, Log: slog.New(slog.DiscardHandler), Dir: dir, DataDir: n.data, OnIndexed: func() { signal(n.told) }}
}

func (n node) room(t *testing.T, dir string) *Room {
	t.Helper()
	r, err := New(t.Context(), n.config(dir))
	if err != nil {
		t.Fatal(err)
	}
	r.quiet, r.settle = time.Millisecond, 0
	return r
}

// run starts the worker; the returned function ends it and waits.
func run(t *testing.T, r *Room) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var g sync.WaitGroup
	g.Go(func() { r.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); g.Wait() })
	t.Cleanup(stop)
	return stop
}

// until waits until the listing is as wanted.
func (n node) until(t *testing.T, r *Room, what string, good func(Listing) bool) Listing {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		l, err := r.list(share{all: true}, "")
		if err == nil && !l.Indexing && good(l) {
			return l
		}
		select {
		case <-n.told:
		case <-late:
			t.Fatalf("%s: never seen; the last was %+v, %v", what, l, err)
		}
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func sum(text string) string { h := sha256.Sum256([]byte(text)); return hex.EncodeToString(h[:]) }

func shape(l Listing) string {
	var out []string
	for _, i := range l.Items {
		hash := "-"
		if i.SHA256 != "" {
			hash = i.SHA256[:4]
		}
		out = append(out, fmt.Sprintf("%s:%d:%s", i.Path, i.Size, hash))
	}
	return strings.Join(out, " ")
}

func is(want string) func(Listing) bool { return func(l Listing) bool { return shape(l) == want } }

func TestTheIndexFollowsTheFolder(t *testing.T) {
	n := newNode(t)
	dir := filepath.Join(n.data, "content")
	r := n.room(t, "")
	put(t, dir+"/a.txt", "one")
	put(t, dir+"/deep/er/b", "two")
	put(t, dir+"/.hidden", "no")
	put(t, dir+"/.git/x", "no")
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../secrets/claude-api-key", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../secrets", dir+"/links"); err != nil {
		t.Fatal(err)
	}
	a, b := "a.txt:3:"+sum("one")[:4], "deep/er/b:3:"+sum("two")[:4]
	run(t, r)
	l := n.until(t, r, "the first look", is(a+" "+b))
	if l.Total != 2 || l.TotalBytes != 6 || l.Truncated || l.Items[0].SHA256 != sum("one") || l.Items[0].Modified.IsZero() {
		t.Errorf("%+v", l)
	}
	put(t, dir+"/deep/new/c", "three")
	c := "deep/new/c:5:" + sum("three")[:4]
	n.until(t, r, "a file in a new directory", is(a+" "+b+" "+c))
	put(t, dir+"/deep/new/c", "eerht")
	c = "deep/new/c:5:" + sum("eerht")[:4]
	n.until(t, r, "a change that keeps the size", is(a+" "+b+" "+c))
	if err := os.Rename(dir+"/deep/new", dir+"/moved"); err != nil {
		t.Fatal(err)
	}
	c = "moved/c:5:" + sum("eerht")[:4]
	n.until(t, r, "a renamed directory", is(a+" "+b+" "+c))
	put(t, dir+"/moved/d", "")
	n.until(t, r, "a file in a renamed directory", is(a+" "+b+" "+c+" moved/d:0:"+sum("")[:4]))
	if err := os.RemoveAll(dir + "/moved"); err != nil {
		t.Fatal(err)
	}
	n.until(t, r, "a removed directory", is(a+" "+b))
}

// A restart reads no file again; a change while the node was off is seen; damaged rows are hashed again.
func TestRestart(t *testing.T) {
	n := newNode(t)
	dir := filepath.Join(n.data, "content")
	for _, f := range []string{"a", "b", "c", "d"} {
		put(t, dir+"/"+f, f+f)
	}
	r := n.room(t, "")
	stop := run(t, r)
	want := fmt.Sprintf("a:2:%s b:2:%s c:2:%s d:2:%s", sum("aa")[:4], sum("bb")[:4], sum("cc")[:4], sum("dd")[:4])
	n.until(t, r, "all", is(want))
	stop()
	put(t, dir+"/b", "BB")
	err := n.db.Write(t.Context(), store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		// a: a marker that only a hash taken from the table has; c, d and others: damaged
		for _, q := range []string{"UPDATE content SET sha256 = zeroblob(32) WHERE path = 'a'", "UPDATE content SET sha256 = 'x' WHERE path = 'c'",
			"UPDATE content SET size = 'many' WHERE path = 'd'", "INSERT INTO content VALUES ('../up', 1, 1, 1, 1, zeroblob(32)), (X'FF', 1, 1, 1, 1, zeroblob(32)), ('/etc/x', 1, 1, 1, 1, zeroblob(32))"} {
			if _, err := tx.ExecContext(ctx, q); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r = n.room(t, "")
	if l, err := r.list(share{all: true}, ""); err != nil || !l.Indexing || len(l.Items) != 2 {
		t.Errorf("before the first look: %+v, %v", l, err)
	}
	run(t, r)
	n.until(t, r, "after the restart", is(fmt.Sprintf("a:2:0000 b:2:%s c:2:%s d:2:%s", sum("BB")[:4], sum("cc")[:4], sum("dd")[:4])))
}

func TestOverlapWithTheDataDirectoryIsRefused(t *testing.T) {
	n := newNode(t)
	base := filepath.Dir(n.data)
	link := filepath.Join(base, "link")
	if err := os.Symlink("data/secrets", link); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(n.data+"/content/sub", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{n.data, base, "/", n.data + "/secrets", link, n.data + "/content/sub", n.data + "/content/.."} {
		if _, err := New(t.Context(), n.config(dir)); err == nil || !strings.Contains(err.Error(), "content.dir") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	for _, dir := range []string{"relative", "~/x", n.data + "/node.db"} {
		if _, err := New(t.Context(), n.config(dir)); err == nil {
			t.Errorf("%s was accepted", dir)
		}
	}
	for _, dir := range []string{n.data + "/content", n.data + "/content/", t.TempDir()} {
		if _, err := New(t.Context(), n.config(dir)); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if err := os.RemoveAll(n.data + "/content"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("secrets", n.data+"/content"); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), n.config("")); err == nil {
		t.Error("the default folder was accepted as a link to the secrets")
	}
	if _, err := New(t.Context(), Config{}); err == nil {
		t.Error("an empty config was accepted")
	}
}

// A folder that turns into the data directory, or goes away, is said and not shown; hashes are there when it is back.
func TestFolderThatGoesAway(t *testing.T) {
	n := newNode(t)
	dir := filepath.Join(t.TempDir(), "share")
	put(t, dir+"/a", "aa")
	r := n.room(t, dir)
	r.scan(t.Context())
	r.hashAll(t.Context())
	want := "a:2:" + sum("aa")[:4]
	if l, err := r.list(share{all: true}, ""); err != nil || shape(l) != want {
		t.Fatalf("%+v, %v", l, err)
	}
	if err := os.Rename(dir, dir+"-parked"); err != nil {
		t.Fatal(err)
	}
	unavailable := func(what string) {
		t.Helper()
		r.scan(t.Context())
		r.hashAll(t.Context())
		if l, err := r.list(share{all: true}, ""); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %+v, %v", what, l, err)
		}
	}
	unavailable("gone")
	if err := os.Symlink(n.data, dir); err != nil {
		t.Fatal(err)
	}
	unavailable("a link to the data directory")
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil { // an empty mount point
		t.Fatal(err)
	}
	r.scan(t.Context())
	if l, err := r.list(share{all: true}, ""); err != nil || len(l.Items) != 0 {
		t.Errorf("empty: %+v, %v", l, err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+"-parked", dir); err != nil {
		t.Fatal(err)
	}
	r.scan(t.Context())
	if l, err := r.list(share{all: true}, ""); err != nil || l.Indexing || shape(l) != want {
		t.Errorf("back, before any file was read: %+v, %v", l, err)
	}
	// A missing folder does not stop the start.
	if r, err := New(t.Context(), n.config(dir+"-none")); err != nil {
		t.Error(err)
	} else if _, err := r.list(share{all: true}, ""); !fault.Is(err, fault.Unavailable) {
		t.Error(err)
	}
}

// A file swapped for a link between the look and the hash is not followed out of the folder, and one that changes while
// it is read gets no hash of a version that never was.
func TestSwappedFile(t *testing.T) {
	n := newNode(t)
	dir := filepath.Join(n.data, "content")
	put(t, dir+"/a", "aa")
	r := n.room(t, "")
	r.scan(t.Context())
	if err := os.Remove(dir + "/a"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../secrets/claude-api-key", dir+"/a"); err != nil {
		t.Fatal(err)
	}
	r.hashAll(t.Context())
	if l, err := r.list(share{all: true}, ""); err != nil || len(l.Items) != 1 || l.Items[0].SHA256 != "" {
		t.Errorf("%+v, %v", l, err)
	}
	if err := os.Remove(dir + "/a"); err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/a", "other")
	if _, err := r.hash(t.Context(), r.items[0]); err != errChanged {
		t.Errorf("another file of that name: %v", err)
	}
	select {
	case <-r.look:
	default:
		t.Error("the scanner was not woken")
	}
	r.scan(t.Context())
	r.hashAll(t.Context())
	if l, err := r.list(share{all: true}, ""); err != nil || l.Items[0].SHA256 != sum("other") {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestAFileBeingWrittenWaits(t *testing.T) {
	n := newNode(t)
	put(t, n.data+"/content/a", "a")
	r := n.room(t, "")
	r.settle = time.Hour
	r.scan(t.Context())
	if wait := r.hashAll(t.Context()); wait <= 0 || wait > r.cfg.Rescan {
		t.Errorf("come back in %s", wait)
	}
	if l, err := r.list(share{all: true}, ""); err != nil || !l.Indexing || l.Items[0].SHA256 != "" {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestUnreadableFileDoesNotHoldUpTheRest(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("as root every file can be read; a file that went away stands in")
	}
	n := newNode(t)
	put(t, n.data+"/content/a", "a")
	put(t, n.data+"/content/b", "b")
	r := n.room(t, "")
	r.scan(t.Context())
	if err := os.Remove(n.data + "/content/a"); err != nil {
		t.Fatal(err)
	}
	r.hashAll(t.Context())
	if l, err := r.list(share{all: true}, ""); err != nil || l.Indexing || shape(l) != "a:1:- b:1:"+sum("b")[:4] {
		t.Errorf("%+v, %v", l, err)
	}
	select {
	case <-n.told:
	default:
		t.Error("nobody was told that the index is done")
	}
}

func TestListBounds(t *testing.T) {
	n := newNode(t)
	for i := range maxListed + 10 {
		put(t, fmt.Sprintf("%s/content/many/%04d", n.data, i), "x")
	}
	put(t, n.data+"/content/man", "yy")
	put(t, n.data+"/content/"+strings.Repeat("d/", maxDepth+2)+"f", "too deep")
	r := n.room(t, "")
	r.scan(t.Context())
	l, err := r.list(share{all: true}, "")
	if err != nil || len(l.Items) != maxListed || !l.Truncated || l.Total != maxListed+11 || l.Skipped != 1 {
		t.Errorf("%d items, total %d, truncated %v, skipped %d, %v", len(l.Items), l.Total, l.Truncated, l.Skipped, err)
	}
	for prefix, want := range map[string]int{"many/": maxListed + 10, "man": maxListed + 11, "many/100": 10, "none": 0, "many/0000": 1, "/": 0} {
		if l, err := r.list(share{all: true}, prefix); err != nil || l.Total != want || l.TotalBytes < int64(want) || l.Items == nil {
			t.Errorf("%q: total %d, %v", prefix, l.Total, err)
		}
	}
}

func TestRow(t *testing.T) {
	n := newNode(t)
	r := n.room(t, "")
	r.scan(t.Context())
	g := rpc.NewGate(rpc.Config{Methods: r.Methods(), Log: slog.New(slog.DiscardHandler)})
	call := func(c caller.Caller, params string) (any, error) {
		return g.Call(t.Context(), c, rpc.Tools, "content.list", jsontext.Value(params), nil)
	}
	viewer := caller.Operator(1, "v", caller.Viewer, "s", "")
	for _, c := range []caller.Caller{viewer, caller.Peer("k", "n")} {
		got, err := call(c, "{}")
		if err != nil {
			t.Fatal(err)
		}
		if raw, err := rpc.Marshal(got); err != nil || string(raw) != `{"items":[],"total":0,"total_bytes":0,"truncated":false}` {
			t.Errorf("%s, %v", raw, err)
		}
	}
	for _, c := range []struct {
		params, field string
		code          fault.Code
	}{
		{`{"peer":"node-b"}`, "peer", fault.NotFound}, {`{"peer":1}`, "peer", fault.InvalidParams}, {`{"prefix":"a\u0000"}`, "prefix", fault.InvalidParams},
		{`{"prefix":"` + strings.Repeat("a", maxPrefix+1) + `"}`, "prefix", fault.InvalidParams}, {`{"x":1}`, "x", fault.InvalidParams},
	} {
		_, err := call(viewer, c.params)
		if f := fault.Of(err); f == nil || f.Field != c.field || f.Code != c.code {
			t.Errorf("%.40s: %v", c.params, err)
		}
	}
	if _, err := call(caller.Caller{}, "{}"); !fault.Is(err, fault.Forbidden) {
		t.Error("nobody was answered:", err)
	}
	if r.Methods()[0].Facts {
		t.Error("names of files are declared facts (U1)")
	}
}

func TestHostileNames(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "attacks", "unicode.jsonl"))
	if err != nil {
		t.Skip("the collection of hostile strings is not beside this checkout:", err)
	}
	n := newNode(t)
	r := n.room(t, "")
	made, skipped := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		var c struct {
			Text string `json:"text"`
			Hex  string `json:"hex"`
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		if b, err := hex.DecodeString(c.Hex); err == nil && len(b) > 0 {
			c.Text = string(b)
		}
		if strings.ContainsAny(c.Text, "/\x00") || strings.HasPrefix(c.Text, ".") || os.WriteFile(n.data+"/content/"+c.Text, nil, 0o600) != nil {
			continue // no file can have that name, or it is hidden
		}
		if utf8.ValidString(c.Text) {
			made[c.Text] = true
		} else {
			skipped[c.Text] = true
		}
	}
	r.scan(t.Context())
	r.hashAll(t.Context())
	l, err := r.list(share{all: true}, "")
	if err != nil || len(l.Items) != len(made) || l.Skipped != len(skipped) || len(made) < 100 || l.Indexing {
		t.Errorf("%d of %d names, %d of %d skipped, %v", len(l.Items), len(made), l.Skipped, len(skipped), err)
	}
	for _, i := range l.Items {
		if !made[i.Path] || i.SHA256 != sum("") {
			t.Errorf("%q was changed on the way, or has no hash", i.Path)
		}
	}
	if items, err := load(t.Context(), n.db, slog.New(slog.DiscardHandler)); err != nil || len(items) != len(made) {
		t.Errorf("%d names are in the table, %v", len(items), err)
	}
	if _, err := rpc.Marshal(l); err != nil {
		t.Error(err)
	}
}
