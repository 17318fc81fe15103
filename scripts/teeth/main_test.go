package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

var tiny = filepath.Join("testdata", "tiny")

func tinyFaults(t *testing.T) []fault {
	t.Helper()
	faults, err := readAll(filepath.Join(tiny, "faults"))
	if err != nil {
		t.Fatal(err)
	}
	return faults
}

// A runner that says "found" too easily would make every fault worthless.
func TestRunner(t *testing.T) {
	before, err := os.ReadFile(filepath.Join(tiny, "door.go"))
	if err != nil {
		t.Fatal(err)
	}
	var progress strings.Builder
	r := runner{root: tiny, limit: 5 * time.Second, parallel: 2, progress: &progress}
	outcomes, err := r.all(t.Context(), tinyFaults(t))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]state{"any-key": found, "in-two-places": found, "paint": missed, "moved-away": stale, "not-go": broken,
		"panics": found, "jams": found}
	for _, o := range outcomes {
		if o.State != want[o.Name] {
			t.Errorf("%s: %s, want %s\n%s", o.Name, o.State, want[o.Name], o.Note)
		}
		if by := strings.Join(o.By, " "); o.State == found && by != "TestOpens" || o.State != found && by != "" {
			t.Errorf("%s was found by %q", o.Name, by)
		}
		if jams := o.Name == "jams"; jams != (o.State == found && o.Note != "") { // found by the time that it took
			t.Errorf("%s: %q", o.Name, o.Note)
		}
	}
	if len(outcomes) != len(want) || strings.Count(progress.String(), " s  ") != len(want) {
		t.Errorf("%d outcomes, and told:\n%s", len(outcomes), progress.String())
	}
	if allFound(outcomes) || !allFound(outcomes[:2]) || allFound(outcomes[2:3]) {
		t.Error("what was not found counts as found")
	}
	after, err := os.ReadFile(filepath.Join(tiny, "door.go"))
	if err != nil || string(after) != string(before) {
		t.Errorf("the tree was changed: %v", err)
	}
	printed(t, outcomes)
}

func printed(t *testing.T, outcomes []outcome) {
	t.Helper()
	var table, text strings.Builder
	if err := writeTable(&table, outcomes, time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"any-key", "NOT FOUND", "STALE", "BROKEN", "4 of 7 faults found"} {
		if !strings.Contains(table.String(), line) {
			t.Errorf("no %q in\n%s", line, table.String())
		}
	}
	var again []outcome
	if err := writeJSON(&text, outcomes); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text.String()), &again); err != nil || len(again) != len(outcomes) || again[2].State != missed {
		t.Errorf("%v %+v", err, again)
	}
}

// A test that fails, skips or is not there without the fault proves nothing with it.
func TestBaseline(t *testing.T) {
	f := tinyFaults(t)[0]
	for name, want := range map[string]string{"TestFails": "fails without a fault", "TestSkips": "did not run, or skipped",
		"TestNone": "did not run, or skipped"} {
		t.Run(name, func(t *testing.T) {
			f.Tests = []tests{{".", []string{"TestOpens", name}}}
			r := runner{root: tiny, limit: time.Minute, progress: &strings.Builder{}}
			if _, err := r.all(t.Context(), []fault{f}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestParse(t *testing.T) {
	faults := tinyFaults(t)
	if f := faults[1]; f.Name != "in-two-places" || f.What != "The door is red and wrong keys open it." || strings.Join(f.Rows, " ") != "A1 A2" ||
		len(f.Edits) != 2 || f.Edits[1].New != "func Paint() string { return \"red\" }\n\nconst red = true" || len(f.Tests) != 1 {
		t.Errorf("%+v", f)
	}
	good := "-- x --\nWhat.\nrows: A1\ntest: . TestA\nfile: a.go\n<<<<\nold\n====\nnew\n>>>>\n"
	if _, err := parse([]byte(good)); err != nil {
		t.Error(err)
	}
	for old, put := range map[string]string{"What.\n": "", "rows: A1\n": "", "test: . TestA\n": "", "test: . TestA": "test: .", "file: a.go\n": "",
		"====\n": "", ">>>>\n": "", "new": "old", "<<<<\nold\n": "<<<<\n"} {
		if f, err := parse([]byte(strings.Replace(good, old, put, 1))); err == nil {
			t.Errorf("%q for %q: %+v", put, old, f)
		}
	}
	if _, err := pick(faults, "nonesuch"); err == nil {
		t.Error("nothing was picked, and nothing said")
	}
	if some, err := pick(faults, "paint|any-.*"); err != nil || len(some) != 2 {
		t.Errorf("%v %v", some, err)
	}
}
