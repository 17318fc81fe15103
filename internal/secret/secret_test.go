package secret

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

const canary = "canary-7f3a91"

// inside is how other packages keep a secret: in a field that formatting cannot call methods on.
type inside struct {
	Open   String
	hidden String
}

// N3, F-D15: no verb, no log and no marshaller shows the text, wherever the secret lies.
func TestNeverPrinted(t *testing.T) {
	s := New(canary)
	values := []any{s, &s, inside{s, s}, &inside{s, s}, []String{s}, map[string]String{"k": s}, []inside{{s, s}},
		struct{ in inside }{inside{s, s}}, fmt.Errorf("key %v: %w", s, fmt.Errorf("%v", s))}
	for _, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%b", "%o", "%c", "%e", "%t", "%U", "%08.3v", "%p", "%T", "%z", "%w"} {
			got := fmt.Sprintf(verb, v)
			if strings.Contains(got, canary) || strings.Contains(strings.ToLower(got), fmt.Sprintf("%x", canary)) {
				t.Errorf("%s of %T shows it: %s", verb, v, got)
			}
		}
		for name, log := range map[string]func(*bytes.Buffer) slog.Handler{
			"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
			"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		} {
			var b bytes.Buffer
			slog.New(log(&b)).Info("x", "v", v, slog.Group("g", "v", v))
			if strings.Contains(b.String(), canary) {
				t.Errorf("slog %s of %T shows it: %s", name, v, b.String())
			}
		}
		if raw, err := json.Marshal(v); err == nil && bytes.Contains(raw, []byte(canary)) {
			t.Errorf("json of %T shows it: %s", v, raw)
		}
	}
	if got := fmt.Sprintf("%s|%v|%q", s, s, s); got != "***|***|***" {
		t.Errorf("printed as %q", got)
	}
	if raw, err := json.Marshal(s); err != nil || string(raw) != `"***"` {
		t.Errorf("json: %s, %v", raw, err)
	}
}

func TestReveal(t *testing.T) {
	if got := New(canary).Reveal(); got != canary {
		t.Errorf("revealed %q", got)
	}
	var zero String
	if !zero.Empty() || zero.Reveal() != "" || !New("").Empty() || New("x").Empty() {
		t.Error("empty is not told from full")
	}
	if got := fmt.Sprint(zero); got != "***" {
		t.Errorf("whether there is a secret shows: %q", got)
	}
}
