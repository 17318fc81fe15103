package fence

import "strconv"

func itoa(n int) string { return strconv.Itoa(n) }

// Stored is the form of a Text on disk. A stored outside part keeps its grade and gets a fresh token when read back.
type Stored struct {
	Grade string `json:"g"`
	Label string `json:"l,omitempty"`
	Body  string `json:"t"`
}

var gradeNames = map[grade]string{outside: "outside", words: "words", facts: "facts", ours: "ours"}

// Store converts a Text for the disk.
func (t Text) Store() []Stored {
	out := make([]Stored, len(t.parts))
	for i, p := range t.parts {
		out[i] = Stored{Grade: gradeNames[p.grade], Label: p.label, Body: p.body}
	}
	return out
}

// Restore converts back. A grade it does not know is outside.
func Restore(parts []Stored) Text {
	t := Text{make([]part, len(parts))}
	for i, s := range parts {
		p := part{label: s.Label, body: valid(s.Body)}
		switch s.Grade {
		case "words":
			p.grade = words
		case "facts":
			p.grade = facts
		case "ours":
			p.grade = ours
		default:
			p.grade, p.label, p.token = outside, plainLabel(s.Label), newToken()
		}
		t.parts[i] = p
	}
	return t
}
