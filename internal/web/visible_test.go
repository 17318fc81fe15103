package web

import (
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"

	"atoll/internal/fence"
)

var update = flag.Bool("update", false, "write the vectors' answers again")

// vectors are what the interface's own judgement of a text (web/src/lib/visible.ts) is tested with.
const vectors = "../../web/src/lib/visible.vectors.json"

type vector struct {
	In       string   `json:"in"`
	Shown    string   `json:"shown"`
	Warnings []string `json:"warnings"`
}

// C6: the browser shows a text as the node does. Both are held to the same answers.
func TestVisibleVectors(t *testing.T) {
	b, err := os.ReadFile(vectors)
	if err != nil {
		t.Fatal(err)
	}
	var all []vector
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Fatalf("%d vectors are too few", len(all))
	}
	for i, v := range all {
		shown, warnings := fence.Visible(v.In)
		if *update {
			all[i].Shown, all[i].Warnings = shown, warnings
			continue
		}
		if shown != v.Shown || !slices.Equal(warnings, v.Warnings) {
			t.Errorf("%+q is shown as %q with %q, the vectors say %q with %q", v.In, shown, warnings, v.Shown, v.Warnings)
		}
	}
	if *update {
		write(t, all)
	}
}

// write writes the vectors escaped, so that the file hides nothing from who reads it.
func write(t *testing.T, all []vector) {
	t.Helper()
	out := []byte("[\n")
	for i, v := range all {
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			out = append(out, ",\n"...)
		}
		out = append(out, ascii(line)...)
	}
	if err := os.WriteFile(vectors, append(out, "\n]\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
}

// ascii writes everything else as JSON's escapes.
func ascii(line []byte) []byte {
	const hex = "0123456789abcdef"
	var out []byte
	unit := func(u rune) {
		out = append(out, '\\', 'u', hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15])
	}
	for _, r := range string(line) {
		switch {
		case r < 0x7f:
			out = append(out, byte(r))
		case r < 0x10000:
			unit(r)
		default:
			r -= 0x10000
			unit(0xd800 + r>>10)
			unit(0xdc00 + r&0x3ff)
		}
	}
	return out
}
