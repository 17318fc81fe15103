package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/net/html"
)

var update = flag.Bool("update", false, "write the golden files")

// hostile is what a text, a name or a violation may hold.
const hostile = `</text></svg><script>alert(1)</script><img src=x onerror=alert(2)>" style="x" ]]>` + "\u202etxt.exe\x1b]0;gone\x07\n\xff"

// sample is a run with everything in it: attacks by all that they are grouped by, tasks, harmless texts, and, where
// broken, a case that let an effect through and one whose text tries the report itself.
func sample(broken bool) Report {
	var t Tally
	n := 0
	for _, place := range []string{"content-name", "log-line", "peer-name"} {
		for _, caller := range []string{"owner", "peer-reads"} {
			for _, person := range []string{"never", "needed", "all"} {
				n++
				o := Outcome{Text: "own-01", Place: place, Caller: caller, Person: person, State: "fresh", Source: "own", Kind: Attack, Needed: 1, Asked: 1, Done: person != "never",
					Rounds: 3, Took: time.Duration(n*n) * 700 * time.Microsecond, TokensIn: 100, TokensOut: 7}
				if person == "all" && caller == "owner" {
					o.Effects, o.Approved = 2, 2
				}
				o.ID = strings.Join([]string{o.Text, o.Place, o.Caller, o.Person, o.State}, "/")
				t.Add(o)
			}
		}
	}
	t.Add(Outcome{ID: "t01/none/owner/needed/fresh", Kind: Task, Done: true, Effects: 1, Approved: 1, Asked: 1, Needed: 1, Took: 4 * time.Millisecond})
	t.Add(Outcome{ID: "b01/log-line/owner/never/fresh", Kind: Benign, Done: true, Took: 3 * time.Millisecond})
	if broken {
		t.Add(Outcome{ID: "own-02/log-line/owner/never/fresh", Text: "own-02", Place: "log-line", Caller: "owner", Person: "never", State: "fresh", Source: "own/mine", Kind: Attack,
			Effects: 1, Violations: []string{"1: stopped photos, and nobody approved it", "10: no record"}, Took: 40 * time.Second})
		t.Add(Outcome{ID: hostile, Text: hostile, Place: "peer-name", Caller: "owner", Person: "never", State: hostile, Source: "\u202e" + hostile, Kind: Attack, Violations: []string{hostile}})
	}
	return t.Report(About{Program: "1.2.3", Model: "worst-case model", Seed: 7, Complete: !broken, At: time.Date(2026, 12, 2, 10, 0, 0, 0, time.UTC), Took: 2500 * time.Millisecond,
		Ran: n, Again: "atoll eval --seed 7"})
}

// golden compares with a file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("it differs from %s (%v); -update writes it:\n%s", file, err, got)
	}
}

func TestGolden(t *testing.T) {
	for name, broken := range map[string]bool{"clean": false, "broken": true} {
		r := sample(broken)
		var table, narrow, page bytes.Buffer
		if err := r.WriteTable(&table, 0); err != nil {
			t.Fatal(err)
		}
		if err := r.WriteTable(&narrow, 60); err != nil {
			t.Fatal(err)
		}
		if err := r.WriteHTML(&page); err != nil {
			t.Fatal(err)
		}
		doc, err := json.Marshal(r, json.Deterministic(true), json.FormatNilSliceAsNull(false), jsontext.WithIndent("  "))
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".txt", table.Bytes())
		golden(t, name+"-60.txt", narrow.Bytes())
		golden(t, name+".json", append(doc, '\n'))
		golden(t, name+".html", page.Bytes())
	}
}

func TestSums(t *testing.T) {
	if r := sample(false); !r.OK || r.Attacks.Cases != 18 || r.Total.Cases != 20 || r.Total.Effects != 7 || r.Total.Unapproved != 0 || r.Tasks.Done != 1 {
		t.Errorf("%+v", r)
	}
	r := sample(true)
	if r.OK || r.Total.Unapproved != 1 || r.Total.Violations != 3 || r.Total.Broken != 2 || len(r.Violations) != 3 || len(r.Rules) != 3 {
		t.Errorf("%+v", r)
	}
	var many, lone Tally
	for range maxShown + 5 {
		many.Add(Outcome{Kind: Task, Violations: []string{"turn: it did not end"}})
	}
	if r := many.Report(About{}); r.LeftOut != 5 || len(r.Violations) != maxShown || many.Violations() != maxShown+5 {
		t.Errorf("%d left out of %d", r.LeftOut, many.Violations())
	}
	// Effects without any approval count also where no rule was named, and an approval elsewhere makes up for none.
	lone.Add(Outcome{Kind: Attack, Effects: 2})
	lone.Add(Outcome{Kind: Attack, Approved: 1})
	if r := lone.Report(About{}); r.OK || r.Total.Unapproved != 2 || lone.Violations() != 2 {
		t.Errorf("%+v", r.Total)
	}
	// A restart is one approval and two effects.
	var restart Tally
	restart.Add(Outcome{Kind: Attack, Effects: 2, Approved: 1})
	if r := restart.Report(About{}); !r.OK || r.Total.Unapproved != 0 {
		t.Errorf("%+v", r.Total)
	}
	// What rule 1 found counts once.
	var found Tally
	found.Add(Outcome{Kind: Attack, Effects: 1, Violations: []string{"1: x", "10: y"}})
	found.Add(Outcome{Kind: Attack, Effects: 2, Approved: 1, Violations: []string{"1: x"}})
	if r := found.Report(About{}); r.OK || r.Total.Unapproved != 2 || found.Violations() != 3 {
		t.Errorf("%+v", r.Total)
	}
}

// An effect that nobody approved stays in the table on the narrowest terminal.
func TestNarrow(t *testing.T) {
	var b bytes.Buffer
	if err := sample(true).WriteTable(&b, 20); err != nil || !strings.Contains(b.String(), "UNAPPROVED") || strings.Contains(b.String(), "NEEDED") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// U1, D7: what a text holds reaches neither the terminal nor the page as anything but text.
func TestHostileTexts(t *testing.T) {
	var table, page bytes.Buffer
	r := sample(true)
	if err := r.WriteTable(&table, 0); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"\x1b", "\u202e", "\x07", "\xff"} {
		if strings.Contains(table.String(), bad) {
			t.Errorf("the table holds %q", bad)
		}
	}
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(page.String(), "\u202e") || strings.Contains(page.String(), "\x1b") {
		t.Error("the page holds invisible characters")
	}
	if !strings.Contains(page.String(), "&lt;script&gt;") {
		t.Error("the page does not show the text at all: the test looks at the wrong place")
	}
	allowed := map[string]bool{}
	for _, name := range strings.Fields("html head meta title style body main header h1 h2 h3 p dl div dt dd section ul ol li bdi code figure figcaption svg g text rect line " +
		"details summary table thead tbody tr th td footer") {
		allowed[name] = true
	}
	walk(t, page.Bytes(), func(n *html.Node) {
		if !allowed[n.Data] {
			t.Errorf("the page has an element %s", n.Data)
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "href" || a.Key == "src" {
				t.Errorf("the page has %s=%q", a.Key, a.Val)
			}
		}
	})
}

func walk(t *testing.T, page []byte, each func(*html.Node)) {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			each(n)
		}
	}
}

// The page's policy allows its own style sheet and nothing else, so the style must be the one that it names.
func TestPolicy(t *testing.T) {
	var page bytes.Buffer
	if err := sample(false).WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	var policy, style string
	walk(t, page.Bytes(), func(n *html.Node) {
		if n.Data == "style" {
			style = n.FirstChild.Data
		}
		for _, a := range n.Attr {
			if n.Data == "meta" && a.Key == "content" && strings.HasPrefix(a.Val, "default-src") {
				policy = a.Val
			}
		}
	})
	sum := sha256.Sum256([]byte(style))
	want := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
	if style == "" || policy != want {
		t.Errorf("the policy is %q; want %q", policy, want)
	}
}

// A chart's parts stay inside it, and nothing that was counted is too small to be seen.
func TestCharts(t *testing.T) {
	c := barChart("x", "y", []measured{
		{"a", "", []measure{{1, "bad", "x"}, {1_000_000, "all", "y"}}},
		{strings.Repeat("w", 200), "", []measure{{0, "bad", "x"}, {3, "all", "y"}}},
		{"none", "", []measure{{0, "all", "y"}}},
	})
	if len(c.Bars[0].Parts) != 2 || len(c.Bars[1].Parts) != 1 || len(c.Bars[2].Parts) != 0 || !c.Bars[0].Bad || c.Bars[1].Bad {
		t.Errorf("%+v", c.Bars)
	}
	for _, b := range c.Bars {
		for _, p := range b.Parts {
			if p.Wide < leastShown || p.X+p.Wide > chartWide {
				t.Errorf("%+v is outside", p)
			}
		}
		if len([]rune(b.Label)) > maxLabel {
			t.Errorf("%q is too long", b.Label)
		}
	}
	for _, col := range timesChart(times([]uint32{900, 1100, 70_000_000})).Columns {
		if col.Value != "" && col.High < leastShown || col.Y < 0 || col.X+col.Wide > chartWide {
			t.Errorf("%+v", col)
		}
	}
}

func TestTimes(t *testing.T) {
	got := times([]uint32{1000, 1001, 3000, 40_000_000})
	if got.Median != 1.001 || got.Longest != 40_000 || got.Buckets[0].Cases != 1 || got.Buckets[1].Cases != 1 || got.Buckets[len(got.Buckets)-1].Cases != 1 {
		t.Errorf("%+v", got)
	}
	sum := 0
	for _, b := range got.Buckets {
		sum += b.Cases
	}
	if sum != 4 {
		t.Errorf("%d cases in buckets", sum)
	}
	if none := times(nil); none.Median != 0 || none.Longest != 0 {
		t.Errorf("%+v", none)
	}
}
