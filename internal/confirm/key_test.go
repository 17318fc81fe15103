package confirm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// C1: the nonce is 128 random bits, new for each question, and not on the disk; the arguments are not either (C3, H4).
func TestNonce(t *testing.T) {
	b := newBench(t)
	seen := map[string]bool{}
	for range 50 {
		p, out := b.ask(t.Context(), question(owner, "canary"))
		if len(p.Nonce) != 32 || seen[p.Nonce] || p.ActionKey != ActionKey("app_restart", p.Arguments, nil).String() {
			t.Fatalf("%+v", p)
		}
		seen[p.Nonce] = true
		if code := b.decide(owner, p, "decline", ""); code != "" {
			t.Fatal(code)
		}
		<-out
		if n := b.query("SELECT count(*) FROM pending WHERE hex(nonce) = '"+strings.ToUpper(p.Nonce)+"' OR nonce = '"+p.Nonce+"'") +
			b.query("SELECT count(*) FROM audit WHERE body LIKE '%"+p.Nonce+"%'"); n != 0 {
			t.Error("the nonce is stored")
		}
	}
	for _, private := range []bool{true, false} {
		a := question(owner, "secret-name")
		a.Private, a.MayAllow = private, false
		p, out := b.ask(t.Context(), a)
		if p.Summary != a.Summary || string(p.Arguments) != string(a.Args) {
			t.Errorf("the person sees %+v", p)
		}
		b.decide(owner, p, "decline", "")
		<-out
		if private && b.query("SELECT count(*) FROM pending WHERE summary LIKE '%secret-name%'")+b.query("SELECT count(*) FROM audit WHERE body LIKE '%secret-name%'") != 0 {
			t.Error("a private question is on the disk (H3)")
		}
	}
}

// An action's key is of the tool and its arguments, and with a secret it cannot be guessed from them.
func TestActionKey(t *testing.T) {
	keys := map[Key]string{}
	for _, k := range [][3]string{{"app_stop", `{"app":"a"}`}, {"app_start", `{"app":"a"}`}, {"app_stop", `{"app":"b"}`}, {"app_stop", `{}`}, {`app_stop",{"app":"a"}`, ``},
		{"app_stop", `{"app":"a"}`, "k1"}, {"app_stop", `{"app":"a"}`, "k2"}, {"app_stop", `{"value":9007199254740993}`}, {"app_stop", `{"value":9007199254740992}`}} {
		key := ActionKey(k[0], jsontext.Value(k[1]), []byte(k[2]))
		if keys[key] != "" {
			t.Errorf("%q has the key of %s", k, keys[key])
		}
		keys[key] = fmt.Sprint(k)
		if back, err := parseKey(key.String()); err != nil || back != key {
			t.Errorf("%s: %v", key, err)
		}
	}
	for _, s := range []string{"", "00", strings.Repeat("g", 64), strings.Repeat("0", 63), strings.Repeat("0", 66)} {
		if _, err := parseKey(s); err == nil {
			t.Errorf("%q is a key", s)
		}
	}
	args := jsontext.Value(`{"a":1}`)
	ActionKey("x", args, nil)
	if !bytes.Equal(args, []byte(`{"a":1}`)) {
		t.Error("the arguments were changed")
	}
}
