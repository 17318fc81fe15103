package sequence

import (
	"context"
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"atoll/internal/eval/rules"
)

var kills = flag.Int("kills", 6, "how many nodes TestKilled really kills")

// realDir tells a copy of this test that it is the node to be killed.
const realDir = "ATOLL_KILL_DIR"

// TestKilledNode is the node of TestKilled, in a process of its own: it plays the script in its directory until it kills
// itself.
func TestKilledNode(t *testing.T) {
	dir := os.Getenv(realDir)
	if dir == "" {
		t.Skip("it is started by TestKilled")
	}
	raw, err := os.ReadFile(filepath.Join(dir, "script"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b, err := realBench(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if err = b.fresh(t.Context()); err == nil {
			if b.diary, err = os.OpenFile(filepath.Join(dir, "diary"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
				b.out.note = b.note
				err = play(t.Context(), b, Parse(string(raw)))
			}
		}
		if err := errors.Join(err, b.close()); err != nil {
			t.Error(err)
		}
	})
}

// realBench opens a node on a directory that is there already, with the key that lies in it.
func realBench(ctx context.Context, dir string) (*bench, error) {
	seed, err := os.ReadFile(filepath.Join(dir, "seed"))
	if err != nil {
		return nil, err
	}
	b := &bench{top: dir, dir: dir, key: ed25519.NewKeyFromSeed(seed), start: time.Now(), out: newOutside()}
	b.forget()
	return b, b.open(ctx)
}

// realScript is a history without other stops, that dies at some write.
func realScript(t *rapid.T) Script {
	var s Script
	for _, line := range draw(t) {
		if !strings.HasPrefix(line, "kill") && !strings.HasPrefix(line, "restart") && !strings.HasPrefix(line, "password") && line != "handler hang" {
			s = append(s, line)
		}
	}
	s = append(s, "grant ada1 apps", "chat ada1 c3 app_list app_restart:photos", "approve ada1 #last", "chat ada1 c3 app_list")
	at := rapid.IntRange(0, len(s)-4).Draw(t, "at")
	return append(s[:at:at], append(Script{fmt.Sprintf("kill after %d", rapid.IntRange(1, 40).Draw(t, "writes"))}, s[at:]...)...)
}

// Real kill -9, of a process, at a write drawn by chance: C2, C3, H1, N2.
func TestKilled(t *testing.T) {
	if os.Getenv(realDir) != "" {
		t.Skip("this is the node")
	}
	dir := root(t)
	from, err := template(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	killed, played := 0, 0
	for ; killed < *kills && played < 4**kills; played++ {
		script := rapid.Custom(realScript).Example(int(*seed) + played)
		was, err := killOne(t, filepath.Join(dir, fmt.Sprint("real", played)), from, script)
		if err != nil {
			t.Fatalf("%v\n%s", err, script)
		}
		if was {
			killed++
		}
	}
	t.Logf("%d of %d nodes were killed; the others had come to the end of their script", killed, played)
	if killed < *kills {
		t.Error("the script's writes were seldom reached")
	}
}

func killOne(t *testing.T, dir, from string, script Script) (killed bool, err error) {
	_, key, _ := ed25519.GenerateKey(nil)
	if err := errors.Join(os.Mkdir(dir, 0o700), copyFile(from, filepath.Join(dir, "node.db")), os.WriteFile(filepath.Join(dir, "seed"), key.Seed(), 0o600),
		os.WriteFile(filepath.Join(dir, "script"), []byte(script.String()), 0o600)); err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKilledNode$")
	cmd.Env = append(os.Environ(), realDir+"="+dir)
	out, err := cmd.CombinedOutput()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	killed = status.Signaled() && status.Signal() == syscall.SIGKILL
	if !killed && err != nil {
		return false, fmt.Errorf("%w: %s", err, out)
	}
	synctest.Test(t, func(t *testing.T) { err = survived(t.Context(), dir) })
	return killed, err
}

// survived starts a node on what the killed one left and holds it against the diary.
func survived(ctx context.Context, dir string) error {
	b, err := realBench(ctx, dir)
	if err != nil {
		return err
	}
	defer func() {
		if b.close() != nil {
			panic("unreachable: the node lets go of its files")
		}
	}()
	raw, err := os.ReadFile(filepath.Join(dir, "diary"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	p := &player{b: b, w: rules.New(), base: ctx, ctx: ctx, talks: map[string]string{}, keys: map[string]string{}}
	var old [][]string
	for line := range strings.Lines(string(raw)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		switch f[0] {
		case "ran":
			b.out.ran[f[1]]++
		case "asked":
			p.keys[f[3]] = f[1]
			old = append(old, f)
		case "answered":
			if !undone(dir, f[1]) {
				p.kept = append(p.kept, &live{name: f[1], message: f[2], conversation: f[3]})
			}
		}
	}
	if err := errors.Join(p.audited(), p.answersKept()); err != nil {
		return err
	}
	before := fmt.Sprint(b.out.ran)
	for _, f := range old { // what stood or was spent does not run now
		params := fmt.Sprintf(`{"nonce":%q,"action_key":%q,"decision":"approve"}`, f[2], f[3])
		_, _ = b.call(ctx, "ada1", "assistant.confirm", params, nil) // any answer is right that runs nothing
	}
	<-time.After(time.Minute)
	synctest.Wait()
	if after := fmt.Sprint(b.out.ran); after != before {
		return fmt.Errorf("after the kill ran %s, before %s (C2, C3)", after, before)
	}
	return nil
}

// undone reports whether the script takes turns of the conversation back.
func undone(dir, name string) bool {
	raw, _ := os.ReadFile(filepath.Join(dir, "script"))
	who, talk, _ := strings.Cut(name, " ")
	return strings.Contains(string(raw), "undo "+who+"1 "+talk) || strings.Contains(string(raw), "undo "+who+"2 "+talk)
}
