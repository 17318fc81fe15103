package report

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/cli/term"
	"atoll/internal/fence"
)

// maxListed bounds the violations that the terminal shows; JSON and page have more.
const maxListed = 10

// plainName is what needs no closer look, and can be copied into a command.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_.:+=@-]+(/[A-Za-z0-9_.:+=@-]+)*$`)

// show makes a name of others fit to be shown.
func show(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	shown, _ := fence.Visible(name)
	return shown
}

// command is one that runs a case again.
func (r Report) command(id string) string {
	return r.Again + " --only '" + strings.ReplaceAll(show(id), "'", `'\''`) + "'"
}

// Line is the report in one line.
func (r Report) Line() string {
	s := fmt.Sprintf("%s, seed %d: %s in %s, %.0f a second", show(r.Model), r.Seed, plural(r.Ran, "case"), seconds(r.TookMS), r.Rate())
	if before := r.Total.Cases - r.Ran; before > 0 {
		s += fmt.Sprintf(", and %d from before", before)
	}
	if !r.Complete {
		s += "; stopped before its end"
	}
	return s + "."
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + one + "s"
}

// seconds shows milliseconds as people say them.
func seconds(ms int64) string {
	switch s := ms / 1000; {
	case s < 10:
		return fmt.Sprintf("%.1f s", float64(ms)/1000)
	case s < 120:
		return fmt.Sprintf("%d s", s)
	default:
		return fmt.Sprintf("%d min %02d s", s/60, s%60)
	}
}

// Figure is one thing that the report says in short.
type Figure struct {
	What, Value, More string
	Bad               bool // it must not be so
}

// Figures are the report in short: the first thing that a person reads.
func (r Report) Figures() []Figure {
	t := r.Total
	of := func(c Counts) string { return fmt.Sprintf("%d of %d", c.Done, c.Cases) }
	out := []Figure{
		{What: "attacks tried", Value: strconv.Itoa(r.Attacks.Cases), More: plural(len(r.Sources), "source")},
		{What: "effects nobody approved", Value: strconv.Itoa(t.Unapproved), More: plural(t.Effects, "effect") + ", " + plural(t.Approved, "approval"), Bad: t.Unapproved > 0},
		{What: "violations", Value: strconv.Itoa(t.Violations), More: "in " + plural(t.Broken, "case"), Bad: t.Violations > 0},
		{What: "tasks done", Value: of(r.Tasks), More: "under attack " + of(r.Attacks)},
		{What: harmless, Value: of(r.Benign)},
		{What: "dialogs in tasks", Value: strconv.Itoa(r.Tasks.Asked), More: fmt.Sprintf("needed %d; asked under attack %d", r.Tasks.Needed, r.Attacks.Asked)},
		{What: "time for a case", Value: millis(r.Times.Median), More: "at the median; 95 of 100 within " + millis(r.Times.P95) + ", the longest " + millis(r.Times.Longest)},
		{What: "tokens", Value: strconv.FormatInt(t.TokensIn+t.TokensOut, 10), More: fmt.Sprintf("%d in, %d out", t.TokensIn, t.TokensOut)},
	}
	if r.Benign.Cases == 0 {
		out = slices.DeleteFunc(out, func(f Figure) bool { return f.What == harmless })
	}
	return out
}

const harmless = "harmless texts passed"

func millis(ms float64) string {
	if ms < 10 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	if ms < 10_000 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

// parts are the tables of the report.
func (r Report) parts() []part {
	return []part{{"place", "Where the text enters", r.Places}, {"caller", "Who asks", r.Callers}, {"person", "How the person decides", r.People},
		{"state", "In which state", r.States}, {"source", "Where the text is from", r.Sources}}
}

type part struct {
	Name, Title string
	Groups      []Group
}

// WriteTable writes the report for a terminal of so many columns; zero is no limit.
func (r Report) WriteTable(w io.Writer, columns int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.Line())
	for _, f := range r.Figures() {
		mark := " "
		if f.Bad {
			mark = "!"
		}
		line := fmt.Sprintf("%s %-24s %12s", mark, f.What, f.Value)
		if f.More != "" {
			line += "   " + f.More
		}
		b.WriteString(line + "\n")
	}
	for _, p := range r.parts() {
		if len(p.Groups) > 0 {
			b.WriteByte('\n')
			term.TableWithin(&b, columns, rows(p.Name, p.Groups), "", columnsOf(p.Name)...)
		}
	}
	r.listViolations(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// columnsOf are the columns of one table. An effect that nobody approved has the column that stays longest.
func columnsOf(name string) []term.Column {
	one := func(key string, spare int) term.Column {
		return term.Column{Title: strings.ToUpper(key), Keys: []string{key}, Spare: spare}
	}
	return []term.Column{one(name, 0), one("attacks", 0), one("unapproved", 0), one("violations", 0), one("effects", 2), one("approvals", 3),
		one("done", 1), one("asked", 4), one("needed", 5)}
}

func rows(name string, groups []Group) []term.Row {
	out := make([]term.Row, len(groups))
	for i, g := range groups {
		shown, _ := jsontext.AppendQuote(nil, shorten(show(g.Name), maxLabel)) // valid UTF-8 by show
		n := func(v int) jsontext.Value { return jsontext.Value(strconv.Itoa(v)) }
		out[i] = term.Row{name: shown, "attacks": n(g.Cases), "effects": n(g.Effects), "approvals": n(g.Approved), "unapproved": n(g.Unapproved),
			"violations": n(g.Violations), "done": n(g.Done), "asked": n(g.Asked), "needed": n(g.Needed)}
	}
	return out
}

func (r Report) listViolations(b *strings.Builder) {
	if len(r.Violations) == 0 {
		return
	}
	b.WriteByte('\n')
	for i, v := range r.Violations {
		if i == maxListed {
			fmt.Fprintf(b, "… and %d more; --json and --html show %d.\n", r.Total.Violations-i, len(r.Violations))
			break
		}
		fmt.Fprintf(b, "! %s\n    %s\n", violated(v), r.command(v.ID))
	}
}

// violated is a violation in words, on one line.
func violated(v Violation) string {
	what, _ := fence.Visible(v.What)
	if v.Rule == "" {
		return what
	}
	return ruleName(v.Rule) + ": " + what
}
