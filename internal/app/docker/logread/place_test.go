package logread

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// lines makes "1:a 1:!b" the line a of second 1 and then b of the same one to stderr; "-:c" has no time.
func lines(s string) (out []Line) {
	for _, f := range strings.Fields(s) {
		at, text, _ := strings.Cut(f, ":")
		l := Line{Text: strings.TrimPrefix(text, "!"), Stderr: strings.HasPrefix(text, "!")}
		if at != "-" {
			l.Time = time.Unix(int64(at[0]-'0'), 0)
		}
		out = append(out, l)
	}
	return out
}

// A log that is read again and again gives each line once, also where the engine left one out before.
func TestPlace(t *testing.T) {
	for _, c := range []struct {
		name  string
		reads []string
		want  string
	}{
		{"goes on", []string{"1:a 2:b", "1:a 2:b 3:c", "2:b 3:c 4:d"}, "a b c d"},
		{"of one second", []string{"1:a 1:b", "1:a 1:b 1:c", "1:a 1:b 1:c 1:d"}, "a b c d"},
		{"the same words again", []string{"1:a 1:a", "1:a 1:a 1:a", "1:a 1:a 1:a 2:a"}, "a a a a"},
		{"the same words to the other stream", []string{"1:a", "1:a 1:!a"}, "a a"},
		{"one left out over a restart, as Podman does", []string{"1:hello 1:!err 1:bye 1:hello 1:!err 1:hello",
			"1:hello 1:!err 1:bye 1:hello 1:!err 1:bye 1:hello 1:!err"}, "hello err bye hello err hello bye err"},
		{"left out for good, once others came", []string{"1:a 2:c", "1:a 1:b 2:c 2:d"}, "a c d"},
		{"without times", []string{"-:a -:b", "-:a -:b -:c"}, "a b c"},
		{"some without a time", []string{"1:a -:b", "1:a -:b -:c 2:d -:e", "2:d -:e -:f"}, "a b c d e f"},
		{"an earlier one belongs to the line before it", []string{"2:a 1:b", "2:a 1:b 1:c"}, "a b c"},
		{"nothing new", []string{"1:a 1:b", "1:a 1:b", "1:b"}, "a b"},
	} {
		var at Place
		var got []string
		for _, r := range c.reads {
			again := at.Again()
			for _, l := range lines(r) {
				if again.New(l) {
					got = append(got, l.Text)
				}
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %q, want %q", c.name, s, c.want)
		}
	}
}

// What was read first by Move alone is not new, and a second full of different lines is known up to a bound.
func TestPlaceBound(t *testing.T) {
	var at Place
	var all []Line
	for i := range maxRead + 10 {
		all = append(all, Line{Time: time.Unix(1, 0), Text: fmt.Sprint(i)})
		at.Move(all[i])
	}
	again := at.Again()
	twice := 0
	for _, l := range all {
		if again.New(l) {
			twice++
		}
	}
	if twice != 10 || len(at.read) != maxRead {
		t.Errorf("%d came twice, %d are known", twice, len(at.read))
	}
	at.Move(Line{Time: time.Unix(2, 0), Text: "x"})
	if len(at.read) != 1 || slices.ContainsFunc(all[:3], at.Again().New) {
		t.Error("lines of an earlier time are new")
	}
}
