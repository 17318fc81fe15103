package files

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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
	"atoll/internal/folder"
	"atoll/internal/rpc"
)

// place is a tree with a data directory, a root and something outside.
type place struct {
	base, data, root string
	log              *bytes.Buffer
}

func tree(t *testing.T) place {
	t.Helper()
	base := t.TempDir()
	p := place{base, filepath.Join(base, "data"), filepath.Join(base, "media"), &bytes.Buffer{}}
	for path, text := range map[string]string{
		"data/secrets/claude-api-key": "SECRET", "data/node.db": "SECRET", "media/a.txt": "hello", "media/sub/b.txt": "x", "outside/SECRET": "SECRET",
	} {
		path = filepath.Join(base, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p place) room(t *testing.T, roots ...string) *Room {
	t.Helper()
	r, err := New(p.config(roots...))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (p place) config(roots ...string) Config {
	return Config{Log: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Roots: roots, DataDir: p.data}
}

func owner() caller.Caller { return caller.Operator(1, "ann", caller.Owner, "s1", "127.0.0.1") }

func list(t *testing.T, r *Room, path string) (Listing, error) {
	t.Helper()
	quoted, err := jsontext.AppendQuote(nil, path)
	if err != nil {
		t.Fatal(err)
	}
	return call(t, r, owner(), `{"path":`+string(quoted)+`}`)
}

func call(t *testing.T, r *Room, c caller.Caller, params string) (Listing, error) {
	t.Helper()
	g := rpc.NewGate(rpc.Config{Methods: r.Methods(), Log: slog.New(slog.DiscardHandler)})
	got, err := g.Call(t.Context(), c, rpc.Tools, "files.list", jsontext.Value(params), nil)
	if err != nil {
		return Listing{}, err
	}
	if _, err := rpc.Marshal(got); err != nil {
		t.Errorf("the result is no JSON: %v", err)
	}
	return got.(Listing), nil
}

func names(l Listing) string {
	var out []string
	for _, e := range l.Entries {
		out = append(out, fmt.Sprintf("%s:%s:%d", e.Name, e.Kind, e.Size))
	}
	return strings.Join(out, " ")
}

func TestList(t *testing.T) {
	p := tree(t)
	r := p.room(t, p.root+"/", filepath.Join(p.base, "not-there"))
	for _, path := range []string{"", "/"} {
		l, err := list(t, r, path)
		if err != nil || l.Path != "/" || names(l) != p.root+":dir:0" {
			t.Errorf("%q: %+v, %v", path, l, err)
		}
	}
	for _, path := range []string{p.root, p.root + "/", p.root + "/./"} {
		l, err := list(t, r, path)
		if err != nil || l.Path != p.root || l.Truncated || names(l) != "a.txt:file:5 sub:dir:0" || l.Entries[0].Modified.IsZero() {
			t.Errorf("%q: %+v, %v", path, l, err)
		}
	}
	if l, err := list(t, r, p.root+"/sub"); err != nil || names(l) != "b.txt:file:1" {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err := call(t, r, owner(), "{}"); err != nil || len(l.Entries) != 1 {
		t.Errorf("no path: %+v, %v", l, err)
	}
	if err := os.Mkdir(filepath.Join(p.base, "not-there"), 0o700); err != nil {
		t.Fatal(err)
	}
	if l, err := list(t, r, ""); err != nil || len(l.Entries) != 2 {
		t.Errorf("a root that came later: %+v, %v", l, err)
	}
}

// SPEC 4, Files; F-B4: no path leaves the roots, bad ones name the field, and no answer holds what is outside.
func TestNoPathLeavesTheRoots(t *testing.T) {
	p := tree(t)
	links := map[string]string{"to-data": p.data, "to-outside": "../outside", "chain": "to-data/secrets", "to-root": "/", "sub/up": "../../data"}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(p.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("sub", filepath.Join(p.root, "inside")); err != nil {
		t.Fatal(err)
	}
	r := p.room(t, p.root)
	for path, code := range map[string]fault.Code{
		p.root + "/../data": fault.InvalidParams, p.root + "/..": fault.InvalidParams, p.root + "/sub/../../outside": fault.InvalidParams,
		p.root + "/sub/..": fault.InvalidParams, "media": fault.InvalidParams, "./": fault.InvalidParams, "~": fault.InvalidParams, "..": fault.InvalidParams,
		p.root + "\x00/etc": fault.InvalidParams, "/" + strings.Repeat("a/", 3000): fault.InvalidParams,
		"/etc": fault.Rule, p.data: fault.Rule, p.base: fault.Rule, p.root + "x": fault.Rule, "//etc": fault.Rule, "/proc/self/root" + p.data: fault.Rule,
		p.root + "/to-data": fault.Rule, p.root + "/to-data/secrets": fault.Rule, p.root + "/to-outside": fault.Rule, p.root + "/chain": fault.Rule,
		p.root + "/to-root": fault.Rule, p.root + "/sub/up": fault.Rule, p.root + "/a.txt": fault.Rule,
		p.root + "/none": fault.NotFound, p.root + "/**": fault.NotFound, p.root + "/sub\n": fault.NotFound, p.root + "/a.txt/x": fault.Rule,
	} {
		l, err := list(t, r, path)
		f := fault.Of(err)
		if f == nil || f.Code != code || f.Field != "path" {
			t.Errorf("%q gave %+v, %v, want %s", path, l, err, code)
			continue
		}
		if strings.Contains(err.Error(), p.base) || strings.Contains(err.Error(), "outside") {
			t.Errorf("the error holds a path (H3): %v", err)
		}
	}
	if l, err := list(t, r, p.root+"/inside"); err != nil || names(l) != "b.txt:file:1 up:link:0" {
		t.Errorf("a link that stays inside: %+v, %v", l, err)
	}
	l, err := list(t, r, p.root)
	if err != nil || !strings.Contains(names(l), "to-data:link:0") {
		t.Errorf("links are listed as links: %s, %v", names(l), err)
	}
	for params, field := range map[string]string{`{"path":1}`: "path", `{"path":"/","x":1}`: "x", `{"Path":"/"}`: "Path", `{"path":"/","path":"/etc"}`: "path"} {
		if _, err := call(t, r, owner(), params); fault.Of(err) == nil || fault.Of(err).Code != fault.InvalidParams || fault.Of(err).Field != field {
			t.Errorf("%s: %v", params, err)
		}
	}
	if strings.Contains(p.log.String(), p.base) {
		t.Errorf("a path is in the log (H3): %s", p.log)
	}
}

func TestOverlapWithTheDataDirectoryIsRefused(t *testing.T) {
	p := tree(t)
	link := filepath.Join(p.base, "link")
	if err := os.Symlink("data", link); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{p.data, p.data + "/secrets", p.base, "/", link, link + "/secrets", p.root + "/../data"} {
		if _, err := New(p.config(root)); err == nil || !strings.Contains(err.Error(), "files.roots[0]") || !strings.Contains(err.Error(), "data directory") {
			t.Errorf("%s: %v", root, err)
		}
	}
	for _, root := range []string{"media", "", "~/x", p.root + "/a.txt", "/x\x00"} {
		if _, err := New(p.config(p.root, root)); err == nil || !strings.Contains(err.Error(), "files.roots[1]") {
			t.Errorf("%q: %v", root, err)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("an empty config was accepted")
	}
	if _, err := New(p.config(make([]string, maxRoots+1)...)); err == nil {
		t.Error("too many roots were accepted")
	}
}

// A root that becomes the data directory after the start shows nothing of it.
func TestRootThatTurnsIntoTheDataDirectory(t *testing.T) {
	p := tree(t)
	r := p.room(t, p.root, filepath.Join(p.base, "later"))
	if err := os.Symlink("data", filepath.Join(p.base, "later")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.root, p.root+"-old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(p.base, p.root); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{p.root, p.root + "/data", p.root + "/data/secrets", filepath.Join(p.base, "later"), filepath.Join(p.base, "later", "secrets")} {
		if l, err := list(t, r, path); !fault.Is(err, fault.Rule) {
			t.Errorf("%s: %+v, %v", path, l, err)
		}
	}
}

// While a directory is swapped for a link to the data directory again and again, no listing shows the data directory.
func TestSwappedForALink(t *testing.T) {
	p := tree(t)
	r := p.room(t, p.root)
	sub, parked, link := filepath.Join(p.root, "sub"), filepath.Join(p.base, "parked"), filepath.Join(p.base, "link")
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Symlink(p.data, link)
			_ = os.Rename(sub, parked)
			_ = os.Rename(link, sub)
			_ = os.Remove(sub)
			_ = os.Rename(parked, sub)
		}
	})
	good := 0
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		l, err := r.list(t.Context(), sub)
		if err == nil {
			good++
		}
		if s := names(l); strings.Contains(s, "secrets") || strings.Contains(s, "node.db") {
			t.Fatalf("the data directory was listed: %s", s)
		}
	}
	close(stop)
	swapper.Wait()
	if good == 0 {
		t.Error("the trial never saw the directory in place")
	}
}

// Hostile names are data, in real files.
func TestHostileNames(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "attacks", "unicode.jsonl"))
	if err != nil {
		t.Skip("the collection of hostile strings is not beside this checkout:", err)
	}
	p := tree(t)
	r := p.room(t, p.root)
	made := []string{"a.txt", "sub"}
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
		if strings.ContainsAny(c.Text, "/\x00") || os.WriteFile(p.root+"/"+c.Text, nil, 0o600) != nil {
			continue // no file can have that name
		}
		if !slices.Contains(made, c.Text) {
			made = append(made, c.Text)
		}
	}
	l, err := list(t, r, p.root)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Entries) != len(made) || len(made) < 100 {
		t.Errorf("%d names were made, %d are listed", len(made), len(l.Entries))
	}
	for _, e := range l.Entries {
		if !utf8.ValidString(e.Name) {
			t.Errorf("%q is no UTF-8", e.Name)
		}
		if !slices.ContainsFunc(made, func(m string) bool { return strings.ToValidUTF8(m, "\uFFFD") == e.Name }) {
			t.Errorf("%q was changed on the way", e.Name)
		}
	}
	if p.log.Len() > 0 {
		t.Errorf("names reached the log: %s", p.log)
	}
}

func TestBoundsAndKinds(t *testing.T) {
	p := tree(t)
	r := p.room(t, p.root)
	if err := syscall.Mkfifo(p.root+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := list(t, r, p.root); err != nil || names(l) != "a.txt:file:5 pipe:other:0 sub:dir:0" {
		t.Errorf("%s, %v", names(l), err)
	}
	if _, err := list(t, r, p.root+"/pipe"); !fault.Is(err, fault.Rule) {
		t.Error("a pipe was listed:", err)
	}
	for i := range maxEntries + 5 {
		if err := os.WriteFile(fmt.Sprintf("%s/sub/%04d", p.root, i), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := list(t, r, p.root+"/sub")
	if err != nil || len(l.Entries) != maxEntries || !l.Truncated || l.Entries[0].Name != "0000" {
		t.Errorf("%d entries, truncated %v, %v", len(l.Entries), l.Truncated, err)
	}
}

func TestNotConfigured(t *testing.T) {
	p := tree(t)
	r := p.room(t)
	for _, path := range []string{"", "/", "/etc"} {
		if _, err := list(t, r, path); !fault.Is(err, fault.NotConfigured) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestWhoMay(t *testing.T) {
	p := tree(t)
	r := p.room(t, p.root)
	for _, c := range []caller.Caller{{}, caller.Operator(1, "m", caller.Member, "s", ""), caller.Peer("k", "n")} {
		if _, err := call(t, r, c, "{}"); !fault.Is(err, fault.Forbidden) {
			t.Errorf("%s: %v", c, err)
		}
	}
	if r.Methods()[0].Facts {
		t.Error("names of files are declared facts (U1)")
	}
}

func FuzzPlace(f *testing.F) {
	r := &Room{roots: []string{"/srv/media/deep", "/srv/media"}}
	for _, s := range []string{"", "/", "/srv/media", "/srv/media/../x", "/srv/mediax", "srv", "/srv/media/\x00", "/srv//media/./a", "/srv/media/deep/b", "/\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		root, rel, err := r.place(path)
		if err != nil {
			if fault.Of(err).Field != "path" {
				t.Fatalf("no field: %v", err)
			}
			return
		}
		if root == "" {
			return
		}
		if !filepath.IsLocal(rel) || !slices.Contains(r.roots, root) || filepath.Join(root, rel) != filepath.Clean(path) {
			t.Fatalf("%q became %q under %q", path, rel, root)
		}
	})
}

func TestListingIsOfTheOpenedFolder(t *testing.T) {
	p := tree(t)
	r := p.room(t, p.root)
	f, err := r.open(p.root)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Rename(p.root, p.root+"-old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("data", p.root); err != nil {
		t.Fatal(err)
	}
	entries, _, err := f.List(t.Context(), ".", 10)
	if err != nil || len(entries) != 2 || entries[0].Kind != folder.File {
		t.Errorf("%+v, %v", entries, err)
	}
}
