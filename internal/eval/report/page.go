package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

// view is what the page's template reads. Every string that is not the page's own is escaped by the template.
type view struct {
	Report
	Policy  string        // the page's own Content-Security-Policy: one style sheet, and nothing else at all
	Style   template.HTML // our own file, whole
	Parts   []pagePart
	Effects chart
	Dialogs chart
	Times   chart
	Broken  []brokenRule
	Shown   []shownViolation
	When    string
}

type pagePart struct {
	part
	Chart chart
}

type brokenRule struct {
	Name  string
	Count int
}

type shownViolation struct{ What, Command string }

// WriteHTML writes the report as one page that needs no script, no other file and no network.
func (r Report) WriteHTML(w io.Writer) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(pageStyle))
	v := view{Report: r, Style: template.HTML("<style>" + pageStyle + "</style>"), Effects: effectsChart(r.People), Dialogs: dialogsChart(r),
		Times: timesChart(r.Times), When: r.At.Format("2006-01-02 15:04 MST"),
		Policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"}
	for _, p := range r.parts() {
		if len(p.Groups) == 0 {
			continue
		}
		groups := make([]Group, len(p.Groups))
		for i, g := range p.Groups {
			groups[i] = Group{show(g.Name), g.Counts}
		}
		v.Parts = append(v.Parts, pagePart{part{p.Name, p.Title, groups}, attacksChart(p)})
	}
	for _, g := range r.Rules {
		v.Broken = append(v.Broken, brokenRule{ruleName(g.Name), g.Violations})
	}
	for _, x := range r.Violations {
		v.Shown = append(v.Shown, shownViolation{violated(x), r.command(x.ID)})
	}
	return t.Execute(w, v)
}
