package systemd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"atoll/internal/app"
)

// One entry of the journal, in every form that journalctl writes: text, bytes, too large, several values, several lines.
func TestParseEntry(t *testing.T) {
	one := func(message string) string {
		return `{"__REALTIME_TIMESTAMP":"1700000000123456","_SYSTEMD_UNIT":"a.service","MESSAGE":` + message + `,"OTHER":null}`
	}
	const hidden = "[a line that the journal does not show]"
	long := strings.Repeat("é", app.MaxLine)
	for _, tc := range []struct {
		line string
		want []string
		cut  bool
	}{
		{one(`"hello"`), []string{"hello"}, false},
		{one(`""`), []string{""}, false},
		{one(`[104,105]`), []string{"hi"}, false},
		{one(`[104,255,0]`), []string{"h\uFFFD\x00"}, false},
		{one(`[]`), []string{""}, false},
		{one(`null`), []string{hidden}, true},
		{one(`["first","second"]`), []string{"first"}, false},
		{one(`[[104,105],"second"]`), []string{"hi"}, false},
		{one(`[256]`), []string{hidden}, true},
		{one(`[-1]`), []string{hidden}, true},
		{one(`[[[1]]]`), []string{hidden}, true},
		{one(`{"a":1}`), []string{hidden}, true},
		{one(`7`), []string{hidden}, true},
		{one(`"one\ntwo\r\n\nfour\n"`), []string{"one", "two", "", "four"}, false},
		{one(`"10%\r20%"`), []string{"10% 20%"}, false},
		{one(`"` + long + `"`), []string{fmt.Sprintf("%s [… %d bytes cut by Atoll]", long[:app.MaxLine-64], app.MaxLine+64)}, true},
		{`{"MESSAGE":"x"`, nil, true},
		{`{"MESSAGE":"x","MESSAGE":"y"}`, nil, true},
		{`[]`, nil, true},
		{`{"_SYSTEMD_UNIT":["a.service","b.service"],"MESSAGE":"x"}`, nil, true},
	} {
		lines, cut := parseEntry([]byte(tc.line), "a.service")
		var texts []string
		for _, l := range lines {
			texts = append(texts, l.Text)
			if l.Stream != streamOutput || !l.Time.Equal(time.UnixMicro(1700000000123456)) {
				t.Errorf("%.60s: %+v", tc.line, l)
			}
		}
		if !slices.Equal(texts, tc.want) || cut != tc.cut {
			t.Errorf("%.100s: got %.100q, cut %t", tc.line, texts, cut)
		}
	}
}

// Only the field that journald itself sets says whose a line is: a program cannot speak as systemd, nor another unit as
// this one.
func TestStreams(t *testing.T) {
	for line, want := range map[string]string{
		`{"MESSAGE":"x","_SYSTEMD_UNIT":"a.service","SYSLOG_IDENTIFIER":"systemd","UNIT":"a.service"}`: "output",
		`{"MESSAGE":"x","_SYSTEMD_UNIT":"init.scope","UNIT":"a.service"}`:                              "systemd",
		`{"MESSAGE":"x","UNIT":"a.service"}`:                                                           "systemd",
		`{"MESSAGE":"x","_SYSTEMD_UNIT":"b.service","SYSTEMD_UNIT":"a.service"}`:                       "systemd",
	} {
		if lines, _ := parseEntry([]byte(line), "a.service"); len(lines) != 1 || string(lines[0].Stream) != want {
			t.Errorf("%s: %+v", line, lines)
		}
	}
}

// A line without end is passed over in bounded memory; what follows it is read. Noise between entries is no entry.
func TestEntries(t *testing.T) {
	entry := `{"MESSAGE":"x","_SYSTEMD_UNIT":"a.service"}` + "\n"
	in := "-- No entries --\n" + entry + `{"MESSAGE":"` + strings.Repeat("y", 3*maxEntry) + `"}` + "\n\n" + entry + strings.TrimSpace(entry)
	var got []string
	err := entries(strings.NewReader(in), "a.service", func(lines []app.Line, cut bool) error {
		for _, l := range lines {
			got = append(got, fmt.Sprintf("%s %t", l.Text, cut))
		}
		return nil
	})
	if want := []string{"x false", "[a line too long to be read here] true", "x false", "x false"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %.200q, %v", got, err)
	}
	stop := errors.New("stop")
	count := 0
	err = entries(strings.NewReader(entry+entry), "a.service", func([]app.Line, bool) error { count++; return stop })
	if err != stop || count != 1 {
		t.Errorf("%d entries, %v", count, err)
	}
}

func TestTail(t *testing.T) {
	few := tail{most: 2}
	for i := range 5 {
		few.add(app.Line{Text: fmt.Sprint(i)})
	}
	if len(few.lines) != 2 || few.lines[1].Text != "4" || few.short {
		t.Errorf("%+v", few)
	}
	big := tail{most: 1000}
	for range 200 {
		big.add(app.Line{Text: strings.Repeat("x", app.MaxLine)})
	}
	if len(big.lines) != maxTail/app.MaxLine || !big.short {
		t.Errorf("%d lines, short %t", len(big.lines), big.short)
	}
	none := tail{}
	none.add(app.Line{Text: "x"})
	if len(none.lines) != 0 {
		t.Errorf("%+v", none)
	}
}

// Whatever stands in the journal, a line is one line of bounded, valid text.
func FuzzParseEntry(f *testing.F) {
	for _, s := range []string{`{"MESSAGE":"a\nb"}`, `{"MESSAGE":[1,2,255]}`, `{"MESSAGE":null}`, `{"MESSAGE":["a",[1]]}`, `{"__REALTIME_TIMESTAMP":"-1"}`,
		`{"MESSAGE":"\ud800"}`, `{"MESSAGE":"` + strings.Repeat(`\u00e9`, 20000) + `"}`, "{", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		lines, _ := parseEntry(b, "a.service")
		for _, l := range lines {
			if !utf8.ValidString(l.Text) || len(l.Text) > app.MaxLine || strings.ContainsAny(l.Text, "\r\n") || !l.Stream.Plain() {
				t.Errorf("%.200q", l.Text)
			}
		}
	})
}
