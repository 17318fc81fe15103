package app

import (
	"slices"
	"unicode/utf8"

	"atoll/internal/rpc"
)

// Fit returns the log without its oldest lines, so that its text takes at most so many characters: the newest lines say
// why an app stopped.
func (l logsResult) Fit(chars int) any {
	const frame = 80 // of one line in JSON: time, stream, punctuation
	room := chars - frame
	for i := len(l.Lines) - 1; i >= 0; i-- {
		if room -= frame + escaped(l.Lines[i].Service) + escaped(l.Lines[i].Text); room < 0 {
			l.Lines, l.Truncated = l.Lines[i+1:], true
			break
		}
	}
	return l
}

// Fit returns the list with less detail where it takes more than so many characters, then without apps that run as
// they should, the last ones first: what is wrong stays longest.
func (l listResult) Fit(chars int) any {
	l.Apps = slices.Clone(l.Apps)
	for _, less := range []func(*Status){withoutParts, withoutFigures} {
		if sizeOf(l) <= chars {
			return l
		}
		for i := range l.Apps {
			less(&l.Apps[i])
		}
		l.Brief = true
	}
	const frame = len(`,"left_out":1000000`)
	size := sizeOf(l) + frame
	for i := len(l.Apps) - 1; i >= 0 && size > chars; i-- {
		if a := l.Apps[i]; State(a.State) == Running && Health(a.Health) != Unhealthy {
			size -= sizeOf(a) + 1
			l.Apps = slices.Delete(l.Apps, i, i+1)
			l.LeftOut++
		}
	}
	return l
}

// Fit returns the row with less detail where it takes more than so many characters.
func (a actResult) Fit(chars int) any {
	for _, less := range []func(*Status){withoutParts, withoutFigures} {
		if sizeOf(a) <= chars {
			break
		}
		less(&a.Status)
	}
	return a
}

// withoutParts leaves out images, ports and the services that run as they should.
func withoutParts(s *Status) {
	s.Image, s.Ports = "", nil
	s.Services = slices.DeleteFunc(slices.Clone(s.Services), func(p Status) bool {
		return State(p.State) == Running && Health(p.Health) != Unhealthy
	})
	for i := range s.Services {
		withoutParts(&s.Services[i])
	}
}

// withoutFigures leaves the name, the state and what is wrong.
func withoutFigures(s *Status) {
	*s = Status{Foreign: s.Foreign, App: s.App, Runtime: s.Runtime, State: s.State, ExitCode: s.ExitCode, Signal: s.Signal,
		Reason: s.Reason, Restarts: s.Restarts, Health: s.Health, Services: slices.Clone(s.Services)}
	for i := range s.Services {
		withoutFigures(&s.Services[i])
	}
}

// sizeOf is how many characters a result takes in JSON.
func sizeOf(v any) int {
	b, err := rpc.Marshal(v)
	if err != nil {
		return 0 // unreachable unless a result cannot be sent at all
	}
	return utf8.RuneCount(b)
}

// escaped is about how long a text is in JSON.
func escaped(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case r == '"' || r == '\\' || r == '\n' || r == '\t':
			n += 2
		case r < ' ':
			n += 6
		default:
			n++
		}
	}
	return n
}
