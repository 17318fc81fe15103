package local

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"atoll/internal/model/local/sentence"
)

// Lines of a log in an answer: of a log asked for, and at the end of an explanation.
const (
	shownLines   = 20
	explainLines = 8
	mostLines    = 100
)

func (p plan) apps(l appList) string {
	if p.App != "" {
		row, ok := findApp(l.Apps, p.App)
		switch {
		case ok:
			return p.row(row)
		case l.Brief && slices.Contains(p.names.Apps, p.App):
			return sentence.Clean(p.App, 100) + " is there. The list of apps is too long to say more of it, and it is not among those with a problem."
		}
		return noSuchApp(p.App, l.Apps)
	}
	total := len(l.Apps) + l.LeftOut
	rows, head := l.Apps, counted(total, "app")+":"
	focus, suggest := strings.CutSuffix(p.Focus, ",suggest")
	switch focus {
	case "running":
		rows = only(rows, func(r appRow) bool { return r.State == "running" })
		head = fmt.Sprintf("%d of %s running:", len(rows)+l.LeftOut, counted(total, "app"))
	case "failed":
		rows = only(rows, func(r appRow) bool { return r.State != "running" && r.State != "starting" || r.unwell() })
		head = fmt.Sprintf("%d of %s not running well:", len(rows), counted(total, "app"))
	case "memory":
		rows = sorted(rows, func(r appRow) float64 { return float64(deref(r.Memory)) })
		head = "By memory:"
	case "cpu":
		rows = sorted(rows, func(r appRow) float64 { return deref(r.CPU) })
		head = "By processor:"
	}
	text := ""
	switch {
	case len(l.Apps) == 0:
		text = "There are no apps."
	case len(rows) == 0:
		text = strings.TrimSuffix(head, ":") + "."
	default:
		lines := make([]string, len(rows))
		for i, r := range rows {
			lines[i] = strings.TrimSuffix(p.row(r), ".")
		}
		text = head + limited(lines, false)
	}
	if l.LeftOut > 0 && focus != "failed" {
		text += fmt.Sprintf("\nThe list had no room for %d more that run.", l.LeftOut)
	}
	if suggest && len(rows) > 0 {
		verb := "restart"
		if focus == "memory" {
			verb = "stop"
		}
		text += "\nI change one app at a time, named by you, for example: " + verb + " " + sentence.Clean(rows[0].App, 80)
	}
	return text + problems(l)
}

func problems(l appList) string {
	if len(l.Problems) == 0 {
		return ""
	}
	var rows []string
	for _, pr := range l.Problems {
		if pr.File != "" {
			pr.Problem = pr.File + ": " + pr.Problem
		}
		rows = append(rows, sentence.Clean(pr.Problem, 300))
	}
	return "\nProblems:" + limited(rows, false)
}

// row words one app: its state, and what goes with it.
func (p plan) row(r appRow) string {
	text := sentence.Clean(r.App, 100) + " " + stateWords(r.State) + healthWords(r.Health)
	if r.Since != nil && !r.Since.IsZero() {
		text += ", since " + p.when(*r.Since)
	}
	if r.ExitCode != nil {
		text += fmt.Sprintf(", exit code %d", *r.ExitCode)
	}
	if r.Signal != "" {
		text += ", ended by signal " + sentence.Clean(r.Signal, 40)
	}
	if r.Reason != "" {
		text += ", reason: " + sentence.Clean(r.Reason, 200)
	}
	if r.Restarts > 0 {
		text += ", restarted " + counted(r.Restarts, "time")
	}
	if r.PID > 0 {
		text += fmt.Sprintf(", pid %d", r.PID)
	}
	if r.CPU != nil {
		text += fmt.Sprintf(", processor %.1f%%", *r.CPU)
	}
	if r.Memory != nil {
		text += ", memory " + humanize.IBytes(*r.Memory)
	}
	if len(r.Services) > 0 {
		text += "; services: " + servicesOf(r)
	}
	return text + "."
}

// servicesOf words the services of an app, each by its own name.
func servicesOf(r appRow) string {
	words := make([]string, len(r.Services))
	for i, s := range r.Services {
		words[i] = sentence.Clean(strings.TrimPrefix(s.App, r.App+"/"), 60) + " " + stateWords(s.State) + healthWords(s.Health)
		if s.ExitCode != nil && *s.ExitCode != 0 {
			words[i] += fmt.Sprintf(" (exit code %d)", *s.ExitCode)
		}
	}
	return sentence.Listed(words)
}

// unwell reports whether the app's own check, or that of a service, says that it does not work.
func (r appRow) unwell() bool {
	return r.Health == "unhealthy" || slices.ContainsFunc(r.Services, appRow.unwell)
}

func healthWords(health string) string {
	switch health {
	case "":
		return ""
	case "starting":
		return " (its health check has not decided yet)"
	}
	return " (" + sentence.Clean(health, 40) + ")"
}

func stateWords(state string) string {
	switch state {
	case "running", "stopped", "starting", "stopping", "partly running", "paused":
		return "is " + state
	case "exited":
		return "has exited"
	case "failed":
		return "has failed"
	case "backoff":
		return "keeps ending and waits before its next start"
	case "":
		return "has no state that the node reports"
	}
	return "is in the state " + sentence.Clean(state, 40)
}

func noSuchApp(name string, rows []appRow) string {
	if len(rows) == 0 {
		return fmt.Sprintf("There is no app called %q; there are no apps.", sentence.Clean(name, 80))
	}
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.App
	}
	return fmt.Sprintf("There is no one app that %q names. There are: %s.", sentence.Clean(name, 80), sentence.Listed(names))
}

func (p plan) logs(d done) string {
	l := read[appLogs](&d)
	name := sentence.Clean(cmp.Or(l.App, p.App), 100)
	if len(l.Lines) == 0 {
		return "The log of " + name + " is empty."
	}
	want := shownLines
	if p.Lines > 0 {
		want = min(p.Lines, mostLines)
	}
	lines := p.lastLines(l.Lines, want)
	text := fmt.Sprintf("The last %s of the log of %s:", counted(len(lines), "line"), name)
	if d.cut() {
		text = fmt.Sprintf("The log of %s is too long to see to its end; this is a part of it:", name)
	}
	return text + indented(lines)
}

func (p plan) lastLines(lines []logLine, n int) []string {
	var out []string
	for _, line := range lines[max(0, len(lines)-n):] {
		text := sentence.Clean(strings.TrimRight(line.Text, "\r\n"), 400)
		if line.Stream != "" && line.Stream != "stdout" {
			text = sentence.Clean(line.Stream, 20) + ": " + text
		}
		if line.Service != "" {
			text = sentence.Clean(line.Service, 40) + " " + text
		}
		if line.Time != nil && !line.Time.IsZero() {
			text = line.Time.In(p.zone()).Format("2006-01-02 15:04:05") + " " + text
		}
		out = append(out, text)
	}
	return out
}

// explain answers why an app is as it is: its state, and the end of its log.
func (p plan) explain(r appRow, known bool, log done) string {
	text := ""
	if known {
		text = p.row(r)
	}
	if log.error {
		return strings.TrimSpace(text + "\nIts log gave nothing. " + p.refused(log))
	}
	l := read[appLogs](&log)
	if len(l.Lines) == 0 {
		return strings.TrimSpace(text + "\nIts log is empty, so it does not say why.")
	}
	head := "\nThe last lines of its log:"
	if log.cut() {
		head = "\nIts log is too long to see to its end; this is a part of it:"
	}
	return strings.TrimSpace(text + head + indented(p.lastLines(l.Lines, explainLines)))
}

// appChanged says what was done, from the state seen afterwards (T9).
func (p plan) appChanged(d done) string {
	r := read[appRow](&d)
	action := p.action(d)
	checking := r.State == "running" && r.Health == "starting"
	if r.State == "" || r.Observed != nil && !*r.Observed && !checking {
		return "The node took the request: " + action + ". The state afterwards could not be seen."
	}
	if r.App == "" {
		r.App = p.App
	}
	want := "running"
	if d.name == "app_stop" {
		want = "stopped"
	}
	text := ""
	switch {
	case r.State != want || r.unwell():
		text = "The node carried it out: " + action + ". But now " + p.row(r)
	case checking:
		text = "The node carried it out: " + action + ". " + p.row(r)
	default:
		return "Done: " + action + ". " + p.row(r)
	}
	if lines := p.lastLines(r.Log, shownLines); len(lines) > 0 {
		text += "\nThe last lines of its log:" + indented(lines)
	}
	return text
}

// reported joins what the tools of a report said.
func (p plan) reported(tools []string) string {
	var parts []string
	for _, tool := range tools {
		d := p.last(tool)
		switch {
		case d == nil:
		case d.error:
			parts = append(parts, p.refused(*d))
		default:
			parts = append(parts, p.answer(*d))
		}
	}
	return strings.Join(parts, "\n")
}

// when writes a time in the zone of the turn, with how long ago it was.
func (p plan) when(t time.Time) string {
	now := p.req.Now
	if now.IsZero() {
		return t.Format(time.RFC3339)
	}
	local, layout := t.In(p.zone()), "15:04"
	if local.Format(time.DateOnly) != now.Format(time.DateOnly) {
		layout = "2 January 2006, 15:04"
	}
	text := local.Format(layout)
	if ago := now.Sub(t); ago > 0 {
		text += " (" + span(ago) + " ago)"
	}
	return text
}

func (p plan) zone() *time.Location {
	if p.req.Now.IsZero() {
		return time.UTC
	}
	return p.req.Now.Location()
}

// span writes a duration in its largest unit, and in two where the largest is a day.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return counted(int(d/time.Second), "second")
	case d < time.Hour:
		return counted(int(d/time.Minute), "minute")
	case d < 24*time.Hour:
		return counted(int(d/time.Hour), "hour")
	}
	text := counted(int(d/(24*time.Hour)), "day")
	if h := int(d % (24 * time.Hour) / time.Hour); h > 0 {
		text += " and " + counted(h, "hour")
	}
	return text
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func asSentence(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

func only(rows []appRow, keep func(appRow) bool) []appRow {
	return slices.DeleteFunc(slices.Clone(rows), func(r appRow) bool { return !keep(r) })
}

func sorted(rows []appRow, by func(appRow) float64) []appRow {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b appRow) int { return cmp.Compare(by(b), by(a)) })
	return rows
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}
