package suite

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func someTexts(n int) (out []Text) {
	for i := range n {
		out = append(out, Text{ID: fmt.Sprint("x", i), Text: "t"})
	}
	return out
}

func ids(c Choice) (out []string) {
	for _, blocks := range Plan(c) {
		for _, b := range blocks {
			for _, p := range b.Persons {
				out = append(out, b.ID(p))
			}
		}
	}
	return out
}

// The plan holds as many cases as were asked for, each once, spread over all there is, and the same for the same seed.
func TestPlan(t *testing.T) {
	c := Choice{Texts: someTexts(50), Seed: 3, Cases: 2000}
	got, again, other := ids(c), ids(c), ids(Choice{Texts: c.Texts, Seed: 4, Cases: 2000})
	if len(got) != 2000 || fmt.Sprint(got) != fmt.Sprint(again) || fmt.Sprint(got) == fmt.Sprint(other) {
		t.Errorf("%d cases", len(got))
	}
	seen := map[string]bool{}
	parts := map[string]int{}
	for _, blocks := range Plan(c) {
		for _, b := range blocks {
			for _, p := range b.Persons {
				if seen[b.ID(p)] {
					t.Fatalf("%s is there twice", b.ID(p))
				}
				seen[b.ID(p)] = true
				for _, part := range []string{b.Text.ID, "at " + b.Place, "by " + b.Caller, "person " + p, "state " + b.State} {
					parts[part]++
				}
			}
		}
	}
	if len(parts) != 50+9+7+5+7 {
		t.Errorf("%d texts, places, callers, persons and states: %v", len(parts), parts)
	}
	for part, n := range parts {
		if n < 20 {
			t.Errorf("%s has %d cases", part, n)
		}
	}
	few := ids(Choice{Texts: someTexts(60), Seed: 1, Cases: 540}) // one for each place
	for _, p := range Persons() {
		if !slices.ContainsFunc(few, func(id string) bool { return strings.HasSuffix(id, "/summary/owner/"+p+"/summary") }) {
			t.Errorf("where there is room for few, no summary has the person %s", p)
		}
	}
	all := ids(Choice{Texts: someTexts(1), Seed: 1})
	one := Choice{Texts: someTexts(50), Seed: 9, Only: "x7/log/owner/needed/two"}
	if got := ids(one); len(got) != 1 || got[0] != one.Only {
		t.Error(got)
	}
	skip := map[string]bool{all[0]: true, all[5]: true}
	left := ids(Choice{Texts: someTexts(1), Seed: 1, Skip: func(id string) bool { return skip[id] }})
	if len(left) != len(all)-2 {
		t.Errorf("%d of %d are left", len(left), len(all))
	}
	if got := ids(Choice{Texts: []Text{{ID: "x", Text: "t", Place: AtSummary}}, Seed: 1}); len(got) != 5 {
		t.Errorf("a text for one place has %q", got)
	}
}
