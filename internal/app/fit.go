package app

// Fit returns the log without its oldest lines, so that its text takes at most so many characters: the newest lines say
// why an app stopped.
func (l logsResult) Fit(chars int) any {
	const frame = 80 // of one line in JSON: time, stream, punctuation
	room := chars - frame
	for i := len(l.Lines) - 1; i >= 0; i-- {
		if room -= frame + escaped(l.Lines[i].Text); room < 0 {
			l.Lines, l.Truncated = l.Lines[i+1:], true
			break
		}
	}
	return l
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
