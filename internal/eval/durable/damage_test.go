package durable

import (
	"bytes"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"atoll/internal/eval"
)

// damage is one way in which a file goes wrong. path is the file's; victim is a file elsewhere that nobody may touch.
type damage struct {
	name string
	do   func(path, victim string, rng *rand.Rand) error
}

func damages() []damage {
	cut := func(n func(size int64) int64) func(string, string, *rand.Rand) error {
		return func(p, _ string, _ *rand.Rand) error {
			st, err := os.Stat(p)
			if err != nil {
				return err
			}
			return os.Truncate(p, n(st.Size()))
		}
	}
	edit := func(f func(raw []byte, rng *rand.Rand)) func(string, string, *rand.Rand) error {
		return func(p, _ string, rng *rand.Rand) error {
			raw, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			f(raw, rng)
			return os.WriteFile(p, raw, 0o600)
		}
	}
	instead := func(f func(p, victim string) error) func(string, string, *rand.Rand) error {
		return func(p, victim string, _ *rand.Rand) error {
			if err := os.Remove(p); err != nil {
				return err
			}
			return f(p, victim)
		}
	}
	noise := func(raw []byte, rng *rand.Rand) {
		for i := range raw {
			raw[i] = byte(rng.Uint32())
		}
	}
	return []damage{
		{"half", cut(func(size int64) int64 { return size / 2 })},
		{"a byte short", cut(func(size int64) int64 { return max(size-1, 0) })},
		{"one byte", cut(func(size int64) int64 { return min(size, 1) })},
		{"empty", cut(func(int64) int64 { return 0 })},
		{"zeroed", edit(func(raw []byte, _ *rand.Rand) { clear(raw) })},
		{"head garbled", edit(func(raw []byte, rng *rand.Rand) { noise(raw[:min(len(raw), 100)], rng) })},
		{"blocks garbled", edit(func(raw []byte, rng *rand.Rand) {
			for range 3 {
				at := rng.IntN(max(len(raw)/1024, 1)) * 1024
				noise(raw[min(at, len(raw)):min(at+1024, len(raw))], rng)
			}
		})},
		{"gone", instead(func(string, string) error { return nil })},
		{"a directory", instead(func(p, _ string) error { return os.MkdirAll(filepath.Join(p, "x"), 0o700) })},
		{"a link elsewhere", instead(func(p, victim string) error { return os.Symlink(victim, p) })},
		{"a link to nothing", instead(func(p, _ string) error { return os.Symlink(p+".nothing", p) })},
		{"a pipe", instead(func(p, _ string) error { return syscall.Mkfifo(p, 0o600) })},
		{"open to all", func(p, _ string, _ *rand.Rand) error { return os.Chmod(p, 0o666) }},
	}
}

func folderDamages() []damage {
	return []damage{
		{"gone", func(p, _ string, _ *rand.Rand) error { return os.RemoveAll(p) }},
		{"a file", func(p, _ string, _ *rand.Rand) error {
			if err := os.RemoveAll(p); err != nil {
				return err
			}
			return os.WriteFile(p, []byte("x"), 0o600)
		}},
		{"open to all", func(p, _ string, _ *rand.Rand) error { return os.Chmod(p, 0o777) }},
	}
}

// message is what was acknowledged before the damage.
const message = "how full is the disk?"

// lived is a data directory with a bit of everything, as kill -9 would leave it: the logs of its databases are not folded
// in. It returns the owner's session and the conversation.
func lived(t *testing.T) (dir string, owner *eval.Person, conversation string) {
	t.Helper()
	from := t.TempDir()
	write(t, filepath.Join(from, "config.toml"), "[apps]\ndocker = \"off\"\n[mesh]\nenabled = true\ndiscover = false\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n")
	write(t, filepath.Join(from, "run", "sample.written"), "")
	write(t, filepath.Join(from, "secrets", "metrics-token"), "a token for the figures\n")
	write(t, filepath.Join(from, "downloads", "peer-x", "film"), "bytes")
	write(t, filepath.Join(from, "apps", "counter.yaml"), runAs()+"restart: never\ncommand: [/bin/echo, counted]\n")
	h := eval.Open(t, eval.Options{Dir: from, Settings: quiet})
	listeners, err := h.Node.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range listeners {
		defer l.Close()
	}
	owner = h.Owner()
	for method, params := range map[string]any{
		"users.add":    map[string]any{"username": "vi", "password": eval.Password + " vi", "role": "viewer"},
		"settings.set": map[string]any{"key": "node.name", "value": "alder"},
		"apps.start":   map[string]any{"app": "counter"},
	} {
		if r := owner.Call(method, params); r.Code != "" {
			t.Fatalf("%s: %s %s", method, r.Code, r.Message)
		}
	}
	until(t, "the app's end", func() bool { return strings.Contains(string(owner.Call("apps.list", nil).Result), `"exited"`) })
	owner.Grant("apps", "system")
	a := owner.Chat("", message)
	if a.Codes() != "done" {
		t.Fatalf("%+v", a)
	}
	dir = t.TempDir()
	if err := copyTree(dir, from); err != nil {
		t.Fatal(err)
	}
	h.Close()
	return dir, owner, a.Conversation
}

// shortDir is a directory whose path says nothing of the test, as a refusal must name the file by itself.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func copyTree(to, from string) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case d.Type() == fs.ModeSocket:
			return syscall.Mknod(filepath.Join(to, rel), syscall.S_IFSOCK|0o600, 0)
		}
		raw, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), raw, 0o600)
	})
}

// Section 6, A1, H6, G7: each file of the data directory damaged in each way. The node starts or names the file and what
// to do; what was acknowledged elsewhere is there; nothing opens. -all tries every case, otherwise a seeded part.
func TestDamage(t *testing.T) {
	if testing.Short() {
		t.Skip("opens a node a case")
	}
	template, owner, conversation := lived(t)
	var paths []string
	err := filepath.WalkDir(template, func(p string, _ fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(template, p); rel != "." {
			paths = append(paths, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, must := range []string{"node.db", "node.db-wal", "node.db-shm", "node.key", "atoll.lock", "config.toml", "assistant/grants.json", "history/operator-1.db", "history/operator-1.db-wal", "run/counter.json", "logs"} {
		if !slices.Contains(paths, must) {
			t.Errorf("the directory lacks %s; it has %q", must, paths)
		}
	}
	tried, refused := 0, 0
	for _, rel := range paths {
		list := damages()
		switch st, err := os.Lstat(filepath.Join(template, rel)); {
		case err == nil && st.IsDir():
			list = folderDamages()
		case err == nil && !st.Mode().IsRegular():
			list = list[slices.IndexFunc(list, func(d damage) bool { return d.name == "gone" }):]
		}
		for _, d := range list {
			if !*all && !chosen(rel, d.name) {
				continue
			}
			tried++
			t.Run(rel+"/"+d.name, func(t *testing.T) {
				if !survives(t, template, rel, d, owner, conversation) {
					refused++
				}
			})
		}
	}
	t.Logf("%d damages: %d starts, %d refusals that say what to do", tried, tried-refused, refused)
}

// chosen picks a twelfth of the cases by the seed, the gravest always.
func chosen(rel, name string) bool {
	if strings.HasPrefix(rel, "node.db") && (name == "empty" || name == "zeroed") {
		return true
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(rel + name))
	return (h.Sum64()>>8+*seed)%12 == 0
}

// action is a word that tells a person what to do.
var action = regexp.MustCompile(`(?i)restore|move|mv |chmod|chown|remove|write|begin with|replace|line \d|free `)

func survives(t *testing.T, template, rel string, d damage, owner *eval.Person, conversation string) (started bool) {
	dir := shortDir(t)
	if err := copyTree(dir, template); err != nil {
		t.Fatal(err)
	}
	const precious = "somebody else's words\n"
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte(precious), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.do(filepath.Join(dir, rel), victim, rand.New(rand.NewPCG(*seed, uint64(len(rel)*31+len(d.name))))); err != nil {
		t.Fatal(err)
	}
	h, why, end := tryOpen(t, dir)
	defer end()
	if h == nil {
		if !strings.Contains(why, filepath.Base(rel)) && !(strings.HasSuffix(rel, "-wal") && strings.Contains(why, strings.TrimSuffix(filepath.Base(rel), "-wal"))) {
			t.Errorf("the refusal does not name the file: %s", why)
		}
		if !action.MatchString(why) {
			t.Errorf("the refusal does not say what to do: %s", why)
		}
	} else {
		judge(t, h, dir, rel, owner.On(h), conversation)
	}
	raw, err := os.ReadFile(victim)
	if st, serr := os.Stat(victim); err != nil || serr != nil || string(raw) != precious || st.Mode().Perm() != 0o644 {
		t.Errorf("a file elsewhere is now %q, %v %v", raw, err, serr)
	}
	return h != nil
}

// judge holds what must be true of a node that started beside a damage.
func judge(t *testing.T, h *eval.House, dir, rel string, owner *eval.Person, conversation string) {
	t.Helper()
	if _, open := h.Node.SetupAddress(t.Context(), ""); open {
		t.Fatal("the set-up is open again (G7)")
	}
	accounts := strings.HasPrefix(rel, "node.db")
	if r := owner.Call("users.list", nil); r.Code == "unauthenticated" && accounts {
		owner = h.Login("ada") // the session was newer than what is left
	} else if r.Code != "" || !accounts && !bytes.Contains(r.Result, []byte(`"vi"`)) {
		t.Errorf("accounts: %+v", r)
	}
	var grants struct {
		Grants map[string]struct {
			Granted bool `json:"granted"`
		} `json:"grants"`
	}
	owner.Call("assistant.grants-get", nil).Into(t, &grants)
	if len(grants.Grants) == 0 {
		t.Error("no grants are listed")
	}
	for category, g := range grants.Grants {
		if g.Granted && category != "apps" && category != "system" {
			t.Errorf("%s is open", category)
		}
	}
	if r := owner.Call("audit.verify", nil); !accounts && !strings.HasPrefix(rel, "node.key") && !bytes.Contains(r.Result, []byte(`"ok":true`)) {
		t.Errorf("audit: %s %s", r.Result, r.Message)
	}
	if history := strings.HasPrefix(rel, "history"); !history {
		if r := owner.Call("assistant.history", map[string]any{"conversation": conversation}); r.Code != "" || !bytes.Contains(r.Result, []byte(message)) {
			t.Errorf("the acknowledged answer is lost: %s %s", r.Code, r.Message)
		}
	} else if r := owner.Call("assistant.conversations", nil); r.Code == "" && !bytes.Contains(r.Result, []byte(conversation)) && !told(t, h, owner, rel) {
		t.Errorf("the history is shown as empty and nothing is said (H6): %s", r.Result)
	}
	if r := owner.Call("assistant.chat", map[string]any{"message": message}); r.Code != "" && len(r.Message) < 30 {
		t.Errorf("no chat, and no clear word about it: %s %s", r.Code, r.Message)
	}
	private(t, dir)
}

// told reports whether the owner hears of a history that is gone. One that was removed as a whole left nothing to tell of,
// nor did the end of a log, which is what a crash of the machine leaves too.
func told(t *testing.T, h *eval.House, owner *eval.Person, rel string) bool {
	t.Helper()
	r := owner.Call("notices.list", nil)
	_, err := os.Stat(filepath.Join(h.Dir, "history", "operator-1.db-wal"))
	return bytes.Contains(r.Result, []byte("could not be read")) || rel == "history" || strings.HasSuffix(rel, "-wal") && err == nil || strings.HasSuffix(rel, "operator-1.db") && bytes.Contains(r.Result, []byte("set aside"))
}

// private looks at the modes: what is secret is nobody else's, whatever was found.
func private(t *testing.T, dir string) {
	t.Helper()
	for _, rel := range []string{".", "node.db", "node.key", "assistant/grants.json", "history/operator-1.db"} {
		st, err := os.Lstat(filepath.Join(dir, rel))
		if err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v", rel, st.Mode())
		}
	}
}
