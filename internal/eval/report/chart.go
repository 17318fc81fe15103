package report

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Sizes of a chart in its own units, which are pixels on a screen of 360.
const (
	chartWide  = 312
	rowHigh    = 34
	barsHigh   = 110 // of a chart of columns
	maxLabel   = 26  // characters of a bar's name
	leastShown = 2   // how wide the smallest bar is that is not nothing
)

// bar is one row of a chart: a name, what it says, and a bar of parts beside each other.
type bar struct {
	Label, Full, Value string
	Bad                bool
	LabelY, BarY       int
	Parts              []piece
}

// piece is one coloured rectangle. Class is one of the page's own: all, good, bad.
type piece struct {
	X, Y, Wide, High int
	Class, Title     string
}

// chart is one picture.
type chart struct {
	Title, Says string // Says is the picture in words, for who cannot see it
	Wide, High  int
	Bars        []bar
	Columns     []column
	Base        int // the line that columns stand on
}

// column is one upright bar with its name below and its number above.
type column struct {
	piece
	Label, Value string
	Middle       int
	ValueY       int
}

// measured is a bar before it is drawn: its parts, of which zero ones are left out.
type measured struct {
	name, value string
	parts       []measure
}

type measure struct {
	n           int
	class, what string
}

// barChart draws bars that share one scale.
func barChart(title, says string, rows []measured) chart {
	c := chart{Title: title, Says: says, Wide: chartWide, High: len(rows) * rowHigh}
	most := 1
	for _, r := range rows {
		sum := 0
		for _, m := range r.parts {
			sum += m.n
		}
		most = max(most, sum)
	}
	for i, r := range rows {
		b := bar{Full: show(r.name), Value: r.value, LabelY: i*rowHigh + 13, BarY: i*rowHigh + 19}
		b.Label = shorten(b.Full, maxLabel)
		x := 0
		for _, m := range r.parts {
			if m.n <= 0 {
				continue
			}
			wide := max(leastShown, m.n*chartWide/most)
			b.Parts = append(b.Parts, piece{X: x, Y: b.BarY, Wide: min(wide, chartWide-x), High: 8, Class: m.class, Title: b.Full + ": " + strconv.Itoa(m.n) + " " + m.what})
			b.Bad = b.Bad || m.class == "bad"
			x += wide
		}
		c.Bars = append(c.Bars, b)
	}
	return c
}

func shorten(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// attacksChart shows attacks, and of these the ones that broke a rule.
func attacksChart(p part) chart {
	rows := make([]measured, len(p.Groups))
	for i, g := range p.Groups {
		rows[i] = measured{g.Name, fmt.Sprintf("%d, %d violated", g.Cases, g.Broken),
			[]measure{{g.Broken, "bad", "cases violated a rule"}, {g.Cases - g.Broken, "all", "cases without a violation"}}}
	}
	return barChart(p.Title, "Attacks by "+p.Name+", and how many of them violated a rule; the table below has the figures.", rows)
}

// effectsChart shows what was changed, by how people decide.
func effectsChart(people []Group) chart {
	rows := make([]measured, len(people))
	for i, g := range people {
		approved := g.Effects - g.Unapproved
		rows[i] = measured{g.Name, fmt.Sprintf("%d, %d unapproved", g.Effects, g.Unapproved),
			[]measure{{g.Unapproved, "bad", "effects that nobody approved"}, {approved, "good", "effects that were approved"}}}
	}
	return barChart("Effects, by how the person decides", "Effects under attack, and how many of them nobody approved.", rows)
}

// dialogsChart compares dialogs with those that were needed.
func dialogsChart(r Report) chart {
	var rows []measured
	for _, k := range []struct {
		name string
		c    Counts
	}{{"attacks", r.Attacks}, {"tasks", r.Tasks}, {"harmless texts", r.Benign}} {
		if k.c.Cases == 0 {
			continue
		}
		rows = append(rows, measured{k.name + ", asked", strconv.Itoa(k.c.Asked), []measure{{k.c.Asked, "all", "dialogs asked"}}},
			measured{k.name + ", needed", strconv.Itoa(k.c.Needed), []measure{{k.c.Needed, "good", "dialogs needed"}}})
	}
	return barChart("Dialogs asked, and needed", "Dialogs that people were asked, beside those that were needed.", rows)
}

// timesChart is a histogram of how long cases took.
func timesChart(t Times) chart {
	const top, names = 14, 14
	c := chart{Title: "Time for a case", Says: "How many cases took how long; the longest took " + millis(t.Longest) + ".",
		Wide: chartWide, High: top + barsHigh + names, Base: top + barsHigh}
	most := 1
	for _, b := range t.Buckets {
		most = max(most, b.Cases)
	}
	step := chartWide / max(1, len(t.Buckets))
	for i, b := range t.Buckets {
		high := b.Cases * barsHigh / most
		if b.Cases > 0 {
			high = max(high, leastShown)
		}
		col := column{piece: piece{X: i*step + 2, Y: c.Base - high, Wide: step - 4, High: high, Class: "all", Title: bucketName(b) + ": " + plural(b.Cases, "case")},
			Label: bucketLabel(b), Middle: i*step + step/2, ValueY: c.Base - high - 3}
		if b.Cases > 0 {
			col.Value = compact(b.Cases)
		}
		c.Columns = append(c.Columns, col)
	}
	return c
}

func bucketLabel(b Bucket) string {
	switch {
	case b.UpToMS == 0:
		return "more"
	case b.UpToMS >= 1000:
		return strconv.Itoa(int(b.UpToMS/1000)) + "s"
	}
	return strconv.Itoa(int(b.UpToMS))
}

func bucketName(b Bucket) string {
	if b.UpToMS == 0 {
		return "longer"
	}
	return "at most " + strconv.Itoa(int(b.UpToMS)) + " ms"
}

// compact shows a number in at most four characters.
func compact(n int) string {
	switch {
	case n < 10_000:
		return strconv.Itoa(n)
	case n < 1_000_000:
		return strconv.Itoa(n/1000) + "k"
	}
	return strconv.Itoa(n/1_000_000) + "M"
}
