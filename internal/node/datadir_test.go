package node

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"atoll/internal/clock"
	"atoll/internal/secret"
)

func settingsFor(t *testing.T, dir string) Settings {
	t.Helper()
	s, err := LoadSettings(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func open(t *testing.T, dir string) (*Node, error) {
	t.Helper()
	return New(t.Context(), Config{DataDir: dir, Settings: settingsFor(t, dir), Version: "test", Executable: "/bin/true",
		Log: slog.New(slog.DiscardHandler), Clock: clock.Real(), StopApps: true})
}

// G7: a missing or damaged account store beside other data never opens the set-up; the words of the error repair it.
func TestAccountStoreMissing(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   func(p string) error { return os.Truncate(p, 0) },
		"cut":     func(p string) error { return os.Truncate(p, 5000) },
		"garbage": func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("no database ", 900)), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			n, err := open(t, dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "node.db")
			if err := harm(path); err != nil {
				t.Fatal(err)
			}
			_, err = open(t, dir)
			if err == nil || !strings.Contains(err.Error(), "atoll user add NAME --role owner") {
				t.Fatalf("started, or does not say how to repair it: %v", err)
			}
			if err := UserAdd(t.Context(), dir, "eve", "viewer", secret.New("correct horse battery")); err == nil {
				t.Error("a viewer alone made a new account store")
			}
			if name != "missing" {
				if err := os.Rename(path, path+".damaged"); err != nil {
					t.Fatal(err)
				}
			}
			if err := UserAdd(t.Context(), dir, "ada", "owner", secret.New("correct horse battery")); err != nil {
				t.Fatal(err)
			}
			if n, err = open(t, dir); err != nil {
				t.Fatal(err)
			}
			if _, ok := n.SetupAddress(t.Context(), ""); ok {
				t.Error("the set-up is open although there is an owner")
			}
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// H1: accounts made beside old histories do not inherit them.
func TestNewAccountsBesideOldHistories(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"operator-1.db", "operator-12.db", "operator-3.db.damaged-x", "peer-zz.db"} {
		if err := os.MkdirAll(filepath.Join(dir, "history"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "history", name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := UserAdd(t.Context(), dir, "ada", "owner", secret.New("correct horse battery")); err != nil {
		t.Fatal(err)
	}
	s, err := openStopped(t.Context(), dir, false)
	if err != nil {
		t.Fatal(err)
	}
	var id int64
	err = s.db.Reader().QueryRowContext(t.Context(), "SELECT id FROM account").Scan(&id)
	if err := errors.Join(err, s.close()); err != nil || id != 13 {
		t.Errorf("account %d, %v", id, err)
	}
}

// Section 6: the second node on a directory names the process that holds it, and changes nothing.
func TestSecondNode(t *testing.T) {
	dir := t.TempDir()
	n, err := open(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = open(t, dir)
	held, ok := errors.AsType[*HeldError](err)
	if !ok || held.PID != strconv.Itoa(os.Getpid()) {
		t.Errorf("%v", err)
	}
	if err := UserAdd(t.Context(), dir, "ada", "owner", secret.New("correct horse battery")); err == nil {
		t.Error("an offline command worked beside the running node")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err = open(t, dir); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
}

// N2: a node that lost its key does not become another one in silence.
func TestLostKey(t *testing.T) {
	dir := t.TempDir()
	if err := UserAdd(t.Context(), dir, "ada", "owner", secret.New("correct horse battery")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "node.key")
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", st, err)
	}
	if err := os.WriteFile(path, []byte("zz"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, dir); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Error(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, dir); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Error(err)
	}
}
