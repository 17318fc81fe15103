package report

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"atoll/internal/fault"
)

func outcome(id string) Outcome {
	return Outcome{ID: id, Text: "t", Place: "p", Caller: "c", Person: "x", State: "s", Source: "q/r", Kind: Attack, Violations: []string{"a: b"}, Effects: 2, Approved: 1, Asked: 3,
		Needed: 4, Done: true, Rounds: 5, Took: 1500 * time.Microsecond, TokensIn: 6, TokensOut: 7}
}

func open(t *testing.T, path string, run Run) (*Log, []Outcome, error) {
	t.Helper()
	var got []Outcome
	l, err := OpenLog(path, run, func(o Outcome) { got = append(got, o) })
	if err == nil {
		t.Cleanup(func() { _ = l.Close() })
	}
	return l, got, err
}

var run1 = Run{Format: 1, Suite: "abc", Seed: 7, Model: "worst-case model"}

// written makes a log of outcomes and returns its path.
func written(t *testing.T, ids ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.jsonl")
	l, _, err := open(t, path, run1)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if err := l.Write(outcome(id)); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestLogIsReadBack(t *testing.T) {
	path := written(t, "a/b", "c\xff/d")
	l, got, err := open(t, path, run1)
	if err != nil || len(got) != 2 || !reflect.DeepEqual(got[0], outcome("a/b")) {
		t.Fatalf("%v, %+v", err, got)
	}
	if !l.Has("a/b") || !l.Has("c\xff/d") || l.Has("e/f") {
		t.Error("it does not know what is in it")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// A run that was killed leaves a line cut anywhere: it is dropped, the rest counts, and what is appended stands on a line of
// its own.
func TestLogCutAtEachByte(t *testing.T) {
	path := written(t, "a", "b")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		l, got, err := open(t, path, run1)
		if err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		if want := max(0, strings.Count(string(whole[:n]), "\n")-1); len(got) != want {
			t.Fatalf("cut at %d: %d outcomes; want %d", n, len(got), want)
		}
		if err := l.Write(outcome("c")); err != nil {
			t.Fatal(err)
		}
		_, again, err := open(t, path, run1)
		if err != nil || len(again) != len(got)+1 || again[len(got)].ID != "c" {
			t.Fatalf("cut at %d, then appended: %v, %+v", n, err, again)
		}
	}
}

// A log of another run, or of none, is refused and stays as it is.
func TestLogRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		run   Run
		add   string // to the end
		words string
	}{
		"seed":    {Run{1, "abc", 8, "worst-case model"}, "", "--seed 7"},
		"texts":   {Run{1, "abd", 7, "worst-case model"}, "", "other texts"},
		"model":   {Run{1, "abc", 7, "openai"}, "", "another model (worst-case model)"},
		"format":  {Run{2, "abc", 7, "worst-case model"}, "", "no run"},
		"garbage": {run1, "garbage\n", "line 3"},
		"no id":   {run1, "{}\n", "line 3"},
		"long":    {run1, strings.Repeat("x", maxLine+1), "line 3"},
	} {
		path := written(t, "a")
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		was = append(was, tt.add...)
		if err := os.WriteFile(path, was, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err = open(t, path, tt.run); !fault.Is(err, fault.InvalidParams) || !strings.Contains(fault.Of(err).Public, tt.words) {
			t.Errorf("%s: %v", name, err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != string(was) {
			t.Errorf("%s: the file was changed", name)
		}
	}
	path := filepath.Join(t.TempDir(), "notes.txt")
	for _, notes := range []string{"my notes\n", "my notes"} {
		if err := os.WriteFile(path, []byte(notes), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := open(t, path, run1)
		if now, _ := os.ReadFile(path); !fault.Is(err, fault.InvalidParams) || string(now) != notes {
			t.Errorf("notes: %v, and now %q", err, now)
		}
	}
	if _, _, err := open(t, filepath.Join(path, "x"), run1); !fault.Is(err, fault.InvalidParams) {
		t.Errorf("no directory: %v", err)
	}
}

// A case that two runs wrote counts once, but what was found later is not lost.
func TestLogCountsOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.jsonl")
	l, _, err := open(t, path, run1)
	if err != nil {
		t.Fatal(err)
	}
	clean := outcome("a")
	clean.Violations = nil
	for _, o := range []Outcome{clean, clean, outcome("a"), clean} {
		if err := l.Write(o); err != nil {
			t.Fatal(err)
		}
	}
	if _, got, err := open(t, path, run1); err != nil || len(got) != 2 || got[0].Violations != nil || got[1].Violations == nil {
		t.Errorf("%v, %+v", err, got)
	}
}
