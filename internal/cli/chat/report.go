package chat

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"atoll/internal/cli/client"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
)

// say says one message, shows what comes, and asks it again by itself if the person opens a category for it (T8).
func (c *Chat) say(ctx context.Context, message string) (client.Answer, error) {
	for {
		answer, err := c.turn(ctx, message)
		if err != nil {
			return answer, err
		}
		c.summary(answer)
		again, err := c.offer(ctx, answer.Offers)
		if err != nil || !again {
			return answer, err
		}
		c.host("Asking again: " + firstWords(message))
	}
}

func firstWords(message string) string {
	const most = 60
	s := term.Clean(message)
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most]) + "…"
	}
	return s
}

// report shows why a turn ended without an answer.
func (c *Chat) report(err error) {
	if fault.Is(err, fault.Cancelled) {
		c.host("Stopped. What was done before stays done; /history shows it.")
		return
	}
	c.host("No answer: " + words(err) + ".")
}

// words are what an error says to the person, on one line and without a final stop.
func words(err error) string {
	f := fault.Of(err)
	s := term.Clean(f.Public)
	if f.Field != "" && !strings.Contains(s, f.Field) {
		s += " (" + term.Clean(f.Field) + ")"
	}
	return strings.TrimRight(s, ".")
}

// showEvent shows one event of a turn.
func (c *Chat) showEvent(ev client.ChatEvent) {
	switch ev.Name {
	case "text":
		if c.cfg.Text != nil {
			c.cfg.Text.Other(ev.Delta)
		}
	case "tool":
		if c.cfg.Text != nil {
			c.cfg.Text.EndOther()
		}
		c.host(toolLine(ev))
	}
}

var plainTool = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

// toolLine says what a tool does. A name that is none of a tool's is the model's words, and those are not shown in the
// host's line.
func toolLine(ev client.ChatEvent) string {
	name := toolName(ev.Tool, ev.Code)
	state := map[string]string{"started": "…", "waiting": "waits for a person's decision", "done": "done", "refused": "refused"}[ev.State]
	if state == "" {
		state = term.Clean(ev.State)
	}
	line := name + " " + state
	if why := codeWords(ev.Code); why != "" {
		line += ": " + why
	}
	return line
}

// toolName is a tool's name as it may stand in the host's line.
func toolName(name string, code fault.Code) string {
	if code == fault.UnknownTool || !plainTool.MatchString(name) {
		return "a tool that does not exist"
	}
	return name
}

// codeWords explains a code in the words of the catalogue.
func codeWords(code fault.Code) string {
	if code == "" {
		return ""
	}
	for _, e := range fault.Catalogue() {
		if e.Code == code {
			return e.Meaning
		}
	}
	return term.Clean(string(code))
}

// summary is the host's own account of the turn: what was done, whatever the answer claims (T11), and what it cost (B4).
func (c *Chat) summary(a client.Answer) {
	var lines []string
	for _, note := range a.Notes {
		lines = append(lines, term.Clean(note))
	}
	for _, ch := range a.Changes {
		lines = append(lines, changeLine(ch))
	}
	if len(a.Changes) == 0 {
		lines = append(lines, "Nothing was changed.")
	}
	if u := usageWords(a.Usage); u != "" {
		lines[len(lines)-1] += "  (" + u + ")"
	}
	c.host(lines...)
}

// changeLine is one line of the host's own list (T11). The node's words say how it ended: "Restarted sample: running".
func changeLine(ch client.Change) string {
	words := strings.TrimSuffix(term.Clean(ch.Summary), ".") + "."
	switch ch.Outcome {
	case "done", "unknown", "failed", "":
		return words
	}
	return "Not done (" + term.Clean(ch.Outcome) + "): " + words
}

func usageWords(u client.Usage) string {
	if u.In == 0 && u.Out == 0 {
		return ""
	}
	s := fmt.Sprintf("%d tokens in, %d out", u.In, u.Out)
	if u.CacheRead > 0 {
		s += fmt.Sprintf(", %d cached", u.CacheRead)
	}
	if u.CostUSD != nil {
		s += fmt.Sprintf(", about $%.4f", *u.CostUSD)
	}
	return s
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
