package durable

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"atoll/internal/clock"
	"atoll/internal/node"
)

// tryOnce opens a node and prints "started", "open" where its set-up is open too, or what it refused with.
func tryOnce(dir string) int {
	settings, err := node.LoadSettings(dir, nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	quiet(&settings)
	n, err := node.New(context.Background(), node.Config{DataDir: dir, Settings: settings, Version: "test", Executable: os.Args[0],
		Log: slog.New(slog.DiscardHandler), Clock: clock.Real(), StopApps: true})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if _, open := n.SetupAddress(context.Background(), ""); open {
		fmt.Println("open")
	}
	fmt.Println("started")
	if err := n.Close(); err != nil {
		fmt.Println(err)
	}
	return 0
}

// nobody is a user without rights.
const nobody = 65534

// Section 6: a file of the data directory that is another user's, or that the node's user may not read. A node that does
// not run as root starts without it or names it and what to do; the set-up stays closed.
func TestStrangersFile(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("takes root, to be somebody else")
	}
	template, _, _ := lived(t)
	place := shortDir(t) // the test binary's own folder is closed to others
	exe := filepath.Join(place, "t")
	if out, err := run(t, "cp", os.Args[0], exe); err != nil {
		t.Fatal(err, out)
	}
	if err := os.Chmod(place, 0o755); err != nil {
		t.Fatal(err)
	}
	for i, rel := range []string{"node.db", "node.db-wal", "node.key", "atoll.lock", "config.toml", "assistant/grants.json", "assistant", "history", "history/operator-1.db", "run", "run/counter.json", "apps",
		"apps/counter.yaml", "secrets", "secrets/metrics-token", "logs", "logs/counter.log", "downloads", "."} {
		for how, harm := range map[string]func(string) error{
			"of root":      func(p string) error { return os.Chown(p, 0, 0) },
			"closed":       func(p string) error { return os.Chmod(p, 0) },
			"not writable": func(p string) error { return os.Chmod(p, 0o444) },
		} {
			if !*all && (i+len(how)+int(*seed))%9 != 0 {
				continue
			}
			t.Run(rel+"/"+how, func(t *testing.T) {
				dir := filepath.Join(place, fmt.Sprintf("%d%c", i, how[0]))
				if err := copyTree(dir, template); err != nil {
					t.Fatal(err)
				}
				if err := give(dir); err != nil {
					t.Fatal(err)
				}
				if err := harm(filepath.Join(dir, rel)); err != nil {
					t.Fatal(err)
				}
				judgeOther(t, exe, dir, rel)
			})
		}
	}
}

func give(dir string) error {
	return filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, nobody, nobody)
	})
}

func judgeOther(t *testing.T, exe, dir, rel string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, tryArg, dir)
	cmd.Env, cmd.Dir = []string{"PATH=" + os.Getenv("PATH"), "HOME=/"}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	raw, err := cmd.CombinedOutput()
	said := strings.TrimSpace(string(raw))
	if ctx.Err() != nil || strings.Contains(said, "panic") {
		t.Fatalf("it hangs or dies: %s", said)
	}
	lines := strings.Split(said, "\n")
	if slices.Contains(lines, "open") {
		t.Error("the set-up is open (G7)")
	}
	if err == nil {
		return
	}
	if !strings.Contains(strings.ReplaceAll(said, dir, ""), filepath.Base(rel)) && !strings.Contains(said, dir) {
		t.Errorf("the refusal does not name the place: %s", said)
	}
	if !strings.Contains(said, "chown") && !strings.Contains(said, "chmod") {
		t.Errorf("the refusal does not say what to do: %s", said)
	}
}
