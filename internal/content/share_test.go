package content

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
)

var (
	bob    = caller.Peer("bob", "Bob")
	viewer = caller.Operator(1, "v", caller.Viewer, "s", "")
)

// sharing is an indexed room with some files, whose peer bob may see what the returned pointer holds.
func sharing(t *testing.T) (*Room, string, *[]string) {
	t.Helper()
	n := newNode(t)
	folders := new([]string)
	cfg := n.config("")
	cfg.Shared = func(key string) []string {
		if key != "bob" {
			return nil
		}
		return *folders
	}
	r, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.quiet, r.settle = time.Millisecond, 0
	dir := filepath.Join(n.data, "content")
	for _, p := range []string{"films/a", "films/sub/b", "films-private/x", "films.txt", "music/c", "top", "..a/d"[2:]} {
		put(t, filepath.Join(dir, p), "text of "+p)
	}
	r.scan(t.Context())
	r.hashAll(t.Context())
	return r, dir, folders
}

func paths(items []Item) string {
	var out []string
	for _, i := range items {
		out = append(out, i.Path)
	}
	return strings.Join(out, " ")
}

// A5, M2: a peer sees the folders that it was given, by whole names, and no total, hash or file beyond them, by each of
// the three ways in.
func TestPeerSeesItsFolders(t *testing.T) {
	const all = "a/d films-private/x films.txt films/a films/sub/b music/c top"
	for _, tt := range []struct {
		folders []string
		want    string
	}{
		{nil, ""}, {[]string{}, ""}, {[]string{""}, all}, {[]string{"/"}, all}, {[]string{"films"}, "films/a films/sub/b"},
		{[]string{"/films/"}, "films/a films/sub/b"}, {[]string{"films/sub"}, "films/sub/b"}, {[]string{"films.txt", "music"}, "films.txt music/c"},
		{[]string{"film"}, ""}, {[]string{"Films"}, ""}, {[]string{".."}, ""}, {[]string{"../content/films"}, ""}, {[]string{"films/.."}, ""},
		{[]string{"music/../films"}, ""}, {[]string{"."}, ""}, {[]string{"./films"}, ""}, {[]string{"films//sub"}, ""}, {[]string{"nothing"}, ""},
		{[]string{"films\x00"}, ""}, {[]string{"*"}, ""}, {[]string{"//"}, ""}, {[]string{"///"}, ""}, {[]string{"//films"}, ""}, {[]string{"films", "films/sub"}, "films/a films/sub/b"},
	} {
		r, _, folders := sharing(t)
		*folders = tt.folders
		l, err := r.list(r.shared(bob), "")
		if err != nil || paths(l.Items) != tt.want || l.Total != len(l.Items) || l.Skipped != 0 {
			t.Errorf("%q: %+v, %v", tt.folders, l, err)
		}
		bytes := int64(0)
		for _, i := range l.Items {
			bytes += i.Size
		}
		if l.TotalBytes != bytes {
			t.Errorf("%q: %d bytes in all, %d listed", tt.folders, l.TotalBytes, bytes)
		}
		items, more, err := r.Page(bob, "", 100)
		if err != nil || more || paths(items) != tt.want {
			t.Errorf("%q: page %v, %v", tt.folders, items, err)
		}
		for p := range strings.FieldsSeq(all) {
			f, item, err := r.OpenFile(bob, p)
			if !slices.Contains(strings.Fields(tt.want), p) {
				if !fault.Is(err, fault.NotFound) || f != nil {
					t.Errorf("%q: %s is given out: %v", tt.folders, p, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%q: %s: %v", tt.folders, p, err)
				continue
			}
			raw, err := io.ReadAll(f)
			if err := errors.Join(err, f.Close()); err != nil || string(raw) != "text of "+p || item.SHA256 != sum(string(raw)) || item.Size != int64(len(raw)) {
				t.Errorf("%s: %q, %+v, %v", p, raw, item, err)
			}
		}
	}
	r, _, folders := sharing(t)
	*folders = []string{""}
	for _, c := range []caller.Caller{caller.Peer("eve", "bob"), caller.Peer("", "bob"), caller.Stranger("x"), {}} {
		l, err := r.list(r.shared(c), "")
		items, _, err2 := r.Page(c, "", 10)
		_, _, err3 := r.OpenFile(c, "top")
		if err != nil || err2 != nil || len(l.Items)+l.Total+len(items) != 0 || !fault.Is(err3, fault.NotFound) {
			t.Errorf("%s sees %v, %v, %v", c, l, items, err3)
		}
	}
	r.cfg.Shared = nil
	if r.shared(bob).holds("top") {
		t.Error("nothing was set, and something is shared")
	}
}

func TestPages(t *testing.T) {
	r, _, folders := sharing(t)
	*folders = []string{"films", "music"}
	var got []string
	after := ""
	for range 10 {
		items, more, err := r.Page(bob, after, 1)
		if err != nil || len(items) > 1 {
			t.Fatal(items, err)
		}
		got = append(got, paths(items))
		if !more {
			break
		}
		after = items[0].Path
	}
	if strings.Join(got, " ") != "films/a films/sub/b music/c" {
		t.Error(got)
	}
	if items, more, err := r.Page(bob, "films/a\x00", -5); err != nil || !more || paths(items) != "films/sub/b" {
		t.Error(items, more, err)
	}
}

// F-A2: what is opened is the file of the index: not one that changed, took its place, or is reached by a link, and no
// path leads out.
func TestOpenFileIsTheIndexed(t *testing.T) {
	r, dir, folders := sharing(t)
	*folders = []string{"films"}
	secret := filepath.Join(filepath.Dir(dir), "secrets", "claude-api-key")
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	for _, p := range []string{"", "/", ".", "films", "films/", "films/../top", "films/../../secrets/claude-api-key", "/films/a", secret, "films/a/", "films/./a", "films/a\x00", "films/none"} {
		if _, _, err := r.OpenFile(bob, p); !fault.Is(err, fault.NotFound) {
			t.Errorf("%q: %v", p, err)
		}
	}
	for name, change := range map[string]func(){
		"changed":                       func() { put(t, dir+"/films/a", "something else") },
		"another file in its place":     func() { must(os.Remove(dir + "/films/a")); must(os.Rename(dir+"/top", dir+"/films/a")) },
		"a link to another shared file": func() { must(os.Remove(dir + "/films/a")); must(os.Symlink("../music/c", dir+"/films/a")) },
		"a link out":                    func() { must(os.Remove(dir + "/films/a")); must(os.Symlink(secret, dir+"/films/a")) },
		"a folder":                      func() { must(os.Remove(dir + "/films/a")); must(os.Mkdir(dir+"/films/a", 0o700)) },
		"gone":                          func() { must(os.Remove(dir + "/films/a")) },
		"its folder is a link":          func() { must(os.Rename(dir+"/films", dir+"/was")); must(os.Symlink("music", dir+"/films")) },
	} {
		change()
		f, _, err := r.OpenFile(bob, "films/a")
		if err == nil || f != nil || !fault.Is(err, fault.Changed) && !fault.Is(err, fault.NotFound) || strings.Contains(fault.Of(err).Public, dir) {
			t.Errorf("%s: %v", name, err)
		}
		must(os.RemoveAll(dir))
		for _, p := range []string{"films/a", "music/c", "top"} {
			put(t, filepath.Join(dir, p), "text of "+p)
		}
		r.scan(t.Context())
		if _, _, err := r.OpenFile(bob, "films/a"); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: without a hash: %v", name, err)
		}
		r.hashAll(t.Context())
		if f, _, err := r.OpenFile(bob, "films/a"); err != nil {
			t.Errorf("%s: afterwards: %v", name, err)
		} else {
			must(f.Close())
		}
	}
}

// F-F5: a peer is never told of a third node, nor whether this one knows it; the owner is, from what was received.
func TestCatalogues(t *testing.T) {
	r, _, folders := sharing(t)
	*folders = []string{""}
	asked := ""
	r.cfg.Catalogue = func(_ context.Context, peer, prefix string) (Listing, error) {
		asked = peer + " " + prefix
		if peer != "carol" {
			return Listing{}, fault.New(fault.NotFound, "there is no such peer").At("peer")
		}
		l := Listing{Items: make([]Item, maxListed+5), Total: maxListed + 5}
		for i := range l.Items {
			l.Items[i].Path = fmt.Sprint(i)
		}
		return l, nil
	}
	g := rpc.NewGate(rpc.Config{Methods: r.Methods(), Log: slog.New(slog.DiscardHandler)})
	call := func(c caller.Caller, params string) (Listing, error) {
		l, err := g.Call(t.Context(), c, rpc.Tools, "content.list", jsontext.Value(params), nil)
		if err != nil {
			return Listing{}, err
		}
		return l.(Listing), nil
	}
	for _, peer := range []string{"carol", "bob", "nobody"} {
		_, err := call(bob, `{"peer":"`+peer+`","prefix":"x"}`)
		if f := fault.Of(err); err == nil || f.Code != fault.Forbidden || strings.Contains(f.Error(), peer) || asked != "" {
			t.Errorf("a peer asked for %s: %v; the mesh was asked for %q", peer, err, asked)
		}
	}
	l, err := call(viewer, `{"peer":"carol","prefix":"x"}`)
	if err != nil || asked != "carol x" || len(l.Items) != maxListed || !l.Truncated || l.Total != maxListed+5 {
		t.Errorf("%d items, %v", len(l.Items), err)
	}
	for _, i := range l.Items {
		if i.Peer != "carol" {
			t.Fatalf("%+v says not whose it is", i)
		}
	}
	if _, err := call(viewer, `{"peer":"nobody"}`); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if l, err := call(bob, `{"prefix":"films/"}`); err != nil || paths(l.Items) != "films/a films/sub/b" {
		t.Error(l, err)
	}
}

// Whatever a folder of the owner's is called, and whatever path is asked for, only what lies under it is let out.
func FuzzShare(f *testing.F) {
	f.Add("films", "films-private/x")
	f.Add("films/", "films/../top")
	f.Add("../x", "x")
	f.Add("", "a")
	f.Fuzz(func(t *testing.T, folder, path string) {
		r := &Room{cfg: Config{Shared: func(string) []string { return []string{folder} }}}
		name := strings.Trim(folder, "/")
		if r.shared(bob).holds(path) && name != "" && path != name && !strings.HasPrefix(path, name+"/") {
			t.Errorf("%q lets out %q", folder, path)
		}
	})
}
