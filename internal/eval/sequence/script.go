// Package sequence runs histories of a node's guard: steps in text, one a line, played on the real rooms and on the machine
// of package rules side by side, with kill -9 at any write. Its tests draw histories; it judges and changes nothing.
package sequence

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"atoll/internal/eval/rules"
)

// Script is a history: one step a line. testdata/README.txt explains the words.
type Script []string

// String is the script as it is kept in a file.
func (s Script) String() string { return strings.Join(s, "\n") + "\n" }

// Parse reads a script: a step a line, blank lines and lines that begin with # left out.
func Parse(text string) Script {
	var s Script
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			s = append(s, line)
		}
	}
	return s
}

// Plan reads what a model does in a turn: calls as tool or tool:argument, ";" between its answers, "cut" for one that met
// the token limit, "?" for arguments that do not fit.
func Plan(words []string) []rules.Round {
	var plan []rules.Round
	var r rules.Round
	for _, w := range append(words, ";") {
		switch w {
		case ";":
			if len(r.Calls) > 0 {
				plan = append(plan, r)
			}
			r = rules.Round{}
		case "cut":
			r.Cut = true
		default:
			tool, arg, _ := strings.Cut(w, ":")
			r.Calls = append(r.Calls, rules.Call{Tool: tool, Arg: strings.TrimPrefix(arg, "?"), Bad: arg == "?" || arg == "" && needs(tool)})
		}
	}
	return plan
}

// needs reports whether a tool has an argument that must be there.
func needs(tool string) bool {
	return strings.HasPrefix(tool, "app_") && tool != "app_list" && tool != "app_wipe" || tool == "settings_set"
}

// arguments is a call as a model writes it.
func arguments(c rules.Call) string {
	switch {
	case c.Bad:
		return `{"extra":1}`
	case c.Tool == "files_list":
		return `{"path":"/"}`
	case c.Tool == "settings_set" && strings.HasPrefix(c.Arg, "!"):
		return fmt.Sprintf(`{"key":%q,"value":"x"}`, c.Arg[1:])
	case c.Tool == "settings_set":
		return fmt.Sprintf(`{"key":"ui.theme","value":%q}`, c.Arg)
	case c.Tool == "app_logs":
		return fmt.Sprintf(`{"app":%q,"lines":5}`, c.Arg)
	case strings.HasPrefix(c.Tool, "app_") && c.Arg != "":
		return fmt.Sprintf(`{"app":%q}`, c.Arg)
	}
	return "{}"
}

// answer reads what follows the question in approve and decline.
func answer(verb string, words []string) (a rules.Answer, atOnce bool, err error) {
	a.Approve = verb == "approve"
	for i, w := range words {
		switch w {
		case "wrong-key":
			a.WrongKey = true
		case "at-once":
			atOnce = true
		case "for":
			if i+1 == len(words) {
				return a, false, fmt.Errorf("for how long?")
			}
			a.Allow, err = time.ParseDuration(words[i+1])
		}
	}
	return a, atOnce, err
}

// question reads "#3" and "#last".
func question(word string, asked int) int {
	if word == "#last" {
		return asked
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(word, "#"))
	return n
}

func role(word string) int {
	return map[string]int{"viewer": rules.Viewer, "member": rules.Member, "owner": rules.Owner}[word]
}
