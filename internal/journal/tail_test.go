package journal

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTail(t *testing.T) {
	for _, c := range []struct {
		output string
		n      int
		want   string
	}{
		{"", 10, ""},
		{"a", 10, "a"}, // a line still being written
		{"a\nb\n", 10, "a b"},
		{"a\nb\n", 1, "b"},
		{"a\r\nb\r\n", 2, "a b"},
		{"\n\nb\n", 10, "  b"},
		{"a\xff\xfeb\n", 1, "a\uFFFDb"},
		{"\xe2\x82", 1, "\uFFFD"},
	} {
		j := Open(t.TempDir(), "one", 8<<20)
		put(t, j, c.output)
		if got := shown(t, j, c.n); got != c.want {
			t.Errorf("%q: %q, want %q", c.output, got, c.want)
		}
	}
}

// A line of 10 MB is shown in part and says so; lines around it are there.
func TestLongLine(t *testing.T) {
	j := Open(t.TempDir(), "one", 100<<20)
	put(t, j, "before\n"+strings.Repeat("é", 5<<20)+"the end\nafter\n")
	log, err := j.Tail(500)
	if err != nil || len(log.Lines) != 2 || !log.Truncated {
		t.Fatalf("%d lines, %v, %v", len(log.Lines), log.Truncated, err)
	}
	long := log.Lines[0].Text
	if !strings.HasPrefix(long, "[… the beginning of this line is cut by Atoll]") || !strings.HasSuffix(long, "éthe end") ||
		len(long) > maxLineBytes+100 || log.Lines[1].Text != "after" {
		t.Errorf("%.80q…", long)
	}
	put(t, j, strings.Repeat("x", 5000)+"\n")
	log, err = j.Tail(1)
	if err != nil || !log.Truncated || !strings.HasSuffix(log.Lines[0].Text, "x [… 904 bytes cut by Atoll]") {
		t.Errorf("%+v %v", log, err)
	}
}

// A log of 1 GB costs no more memory than a small one.
func TestHugeLog(t *testing.T) {
	j := Open(t.TempDir(), "one", 2<<30)
	put(t, j, "x")
	if err := os.Truncate(j.part(0), 1<<30); err != nil {
		t.Fatal(err)
	}
	put(t, j, "\n1\n2\n3\n")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	log, err := j.Tail(500)
	runtime.ReadMemStats(&after)
	if err != nil || len(log.Lines) != 4 || log.Lines[3].Text != "3" || !log.Truncated {
		t.Errorf("%d %v", len(log.Lines), err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("%d bytes of memory", used)
	}
}

// No cut falls inside a character (F-C6).
func TestHarmlessCutsBetweenCharacters(t *testing.T) {
	for lead := range 5 {
		line := strings.Repeat("a", lead) + strings.Repeat("€😀", maxLineBytes)
		text, cut := harmless(outLine{text: []byte(line)})
		if !cut || strings.ContainsRune(text, '\uFFFD') || !utf8.ValidString(text) {
			t.Errorf("lead %d: %q", lead, text[len(text)-40:])
		}
	}
}

// Whatever is in the files: at most n lines, each valid and bounded, the newest kept.
func FuzzTail(f *testing.F) {
	f.Add([]byte("a\nb\n"), []byte(`{"t":"2026-01-01T00:00:00Z","at":2,"text":"x"}`+"\n"), 3, int64(0))
	f.Add([]byte("\xff\xfe\n\r\n\x00"), []byte("{\n{}\n"+`{"base":9223372036854775807}`), 1, int64(5))
	f.Add([]byte(strings.Repeat("x", 5000)), []byte(`{"at":-1,"text":"x"}`), 500, int64(1))
	f.Add([]byte(""), []byte(`{"at":0,"text":"x"}{"at":0}`), 2, int64(0))
	f.Fuzz(func(t *testing.T, output, events []byte, n int, from int64) {
		n = 1 + max(0, n)%500
		from = max(0, from) % (1 << 40)
		lines := split(output, from, n)
		log := merge(lines, parseEvents(events), n, from > 0)
		if len(log.Lines) > n {
			t.Fatalf("%d lines of %d", len(log.Lines), n)
		}
		for _, l := range log.Lines {
			if !l.Note && (!utf8.ValidString(l.Text) || len(l.Text) > 3*maxLineBytes+100) {
				t.Fatalf("%q", l.Text)
			}
		}
		if len(output) > 0 && from == 0 && len(lines) != min(n, bytes.Count(bytes.TrimSuffix(output, []byte("\n")), []byte("\n"))+1) {
			t.Fatalf("%d lines of %q", len(lines), output)
		}
	})
}

func TestMergeKeepsOldEventsFromNewLines(t *testing.T) {
	lines := []outLine{{text: []byte("b"), end: 101, cut: true}}
	log := merge(lines, []event{{At: 5, Text: "old"}, {At: 102, Text: "new"}}, 10, true)
	if len(log.Lines) != 2 || log.Lines[1] != (Line{Note: true, Text: "new"}) {
		t.Errorf("%+v", log.Lines)
	}
}
