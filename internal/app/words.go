package app

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"
)

// What of a log goes with the answer to a start that failed.
const (
	lastLines    = 20
	lastChars    = 4000
	lastServices = 3 // of a project; those that failed
)

// lastWords reads the end of the log of an app that did not come up; of a project, the ends of the logs of the services
// that failed. Without a log there are none.
func lastWords(ctx context.Context, rt Runtime, a App) []Line {
	failed := slices.DeleteFunc(slices.Clone(a.Services), func(s App) bool { return !hasFailed(s) })
	if len(failed) == 0 {
		failed = []App{a}
	}
	failed = failed[:min(len(failed), lastServices)]
	var out []Line
	for _, s := range failed {
		log, err := rt.Logs(ctx, s.Name, lastLines/len(failed))
		if err != nil {
			continue
		}
		for _, l := range log.Lines {
			if l.Service == "" && s.Name != a.Name {
				l.Service = strings.TrimPrefix(s.Name, a.Name+"/")
			}
			out = append(out, l)
		}
	}
	return lastOf(out, lastChars)
}

// hasFailed reports whether a service is one that keeps its project from running well.
func hasFailed(s App) bool {
	done := s.State == Exited && s.ExitCode != nil && *s.ExitCode == 0
	return !well(s) && !done && s.State != Stopped
}

// lastOf keeps the newest lines whose text takes at most so many characters in JSON, and cuts the last one that fits in
// part.
func lastOf(lines []Line, chars int) []Line {
	const least = 40 // characters that are worth showing of a line
	for i := len(lines) - 1; i >= 0; i-- {
		n := escaped(lines[i].Text)
		if n <= chars {
			chars -= n
			continue
		}
		if chars < least {
			return lines[i+1:]
		}
		out := slices.Clone(lines[i:])
		out[0].Text = cutTo(out[0].Text, chars)
		return out
	}
	return lines
}

// cutTo keeps the beginning of a text that takes at most so many characters in JSON, with a mark at the end.
func cutTo(s string, chars int) string {
	const mark = " [… cut by Atoll]"
	chars -= utf8.RuneCountInString(mark)
	for i, r := range s {
		if chars -= escaped(string(r)); chars < 0 {
			return s[:i] + mark
		}
	}
	return s // unreachable unless the text already fitted
}
