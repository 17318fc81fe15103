package account

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
)

func gate(h *house) *rpc.Gate {
	return rpc.NewGate(rpc.Config{Methods: h.Methods(), Log: slog.New(slog.DiscardHandler), Now: h.now})
}

func call(t *testing.T, g *rpc.Gate, c caller.Caller, method, params string) (string, error) {
	t.Helper()
	out, err := g.Call(t.Context(), c, rpc.People, method, jsontext.Value(params), nil)
	if err != nil {
		return "", err
	}
	b, err := rpc.Marshal(out)
	return string(b), err
}

// SPEC section 3: who may call what, and that no tool and no peer may call any of it (F-A7).
func TestRows(t *testing.T) {
	h, _ := newHouse(t)
	g := gate(h)
	want := map[string]caller.Role{"auth.login": caller.Nobody, "auth.setup": caller.Nobody, "auth.logout": caller.Viewer,
		"auth.sessions": caller.Viewer, "auth.revoke": caller.Viewer, "auth.passwd": caller.Viewer, "users.list": caller.Owner,
		"users.add": caller.Owner, "users.remove": caller.Owner, "users.set-role": caller.Owner}
	if len(g.Names()) != len(want) {
		t.Fatal(g.Names())
	}
	for _, name := range g.Names() {
		row, _ := g.Row(name)
		if row.Role != want[name] || row.Doors != rpc.People {
			t.Errorf("%s: role %s, doors %d", name, row.Role, row.Doors)
		}
	}
}

// G4: ten logins in five minutes from one address, right ones too; another address is not held up.
func TestLoginRate(t *testing.T) {
	h, _ := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	g := gate(h)
	in := `{"username":"ada","password":"` + goodPassword + `"}`
	for range 10 {
		if _, err := call(t, g, caller.Stranger("192.0.2.1"), "auth.login", in); err != nil {
			t.Fatal(err)
		}
	}
	_, err := call(t, g, caller.Stranger("192.0.2.1"), "auth.login", in)
	if !fault.Is(err, fault.RateLimited) || fault.Of(err).RetryAfter <= 0 {
		t.Fatal(err)
	}
	if _, err := call(t, g, caller.Stranger("192.0.2.2"), "auth.login", in); err != nil {
		t.Fatal(err)
	}
}

func TestUsersOverTheGate(t *testing.T) {
	h, _ := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	h.mustAdd(t, "vic", caller.Member)
	g := gate(h)
	owner, _ := h.in(t, "ada", goodPassword)
	member, memberToken := h.in(t, "vic", goodPassword)
	ada := owner.Caller
	for _, c := range []struct{ method, params, want string }{
		{"users.add", `{"username":"Ben","role":"viewer","password":"` + goodPassword + `"}`, `{"username":"ben","role":"viewer"}`},
		{"users.set-role", `{"username":"ben","role":"member"}`, `{"username":"ben","role":"member"}`},
		{"users.remove", `{"username":"ben"}`, `{"username":"ben","removed":true}`},
	} {
		if got, err := call(t, g, ada, c.method, c.params); err != nil || got != c.want {
			t.Errorf("%s: %s %v", c.method, got, err)
		}
		if _, err := call(t, g, member.Caller, c.method, c.params); !fault.Is(err, fault.Forbidden) {
			t.Errorf("%s by a member: %v", c.method, err)
		}
	}
	for _, c := range []struct{ method, params, field string }{
		{"users.add", `{"username":"ben","role":"king","password":"` + goodPassword + `"}`, "role"},
		{"users.add", `{"username":"ben","role":"viewer"}`, "password"},
		{"users.add", `{"username":"ben","role":"viewer","password":"` + goodPassword + `","Role":"owner"}`, "Role"},
		{"users.set-role", `{"username":"vic","role":3}`, "role"},
		{"auth.passwd", `{"old":"x","new":"y","user":"ada"}`, "user"},
		{"auth.revoke", `{}`, "id"},
	} {
		_, err := call(t, g, ada, c.method, c.params)
		wantCode(t, err, fault.InvalidParams, c.field)
		if strings.Contains(fault.Of(err).Public, goodPassword) {
			t.Error("the words repeat the password")
		}
	}
	if got, err := call(t, g, ada, "users.list", ""); err != nil || !strings.HasPrefix(got, `{"users":[{"username":"ada","role":"owner"`) {
		t.Fatal(got, err)
	}
	if got, err := call(t, g, member.Caller, "auth.sessions", ""); err != nil || !strings.Contains(got, `"current":true`) {
		t.Fatal(got, err)
	}
	if got, err := call(t, g, member.Caller, "auth.logout", ""); err != nil || got != `{"logged_out":true}` {
		t.Fatal(got, err)
	}
	dead(t, h, "logged out", memberToken)
}

// The record of an owner's act names the owner and the session.
func TestRecordsNameWhoDidIt(t *testing.T) {
	h, _ := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	s, _ := h.in(t, "ada", goodPassword)
	if _, err := call(t, gate(h), s.Caller, "users.add", `{"username":"ben","role":"viewer","password":"`+goodPassword+`"}`); err != nil {
		t.Fatal(err)
	}
	rec := h.records(t)[0]
	if rec.Caller != "operator:ada" || rec.Session != s.Caller.Session() || rec.Subject != "ben" || rec.Detail != "as viewer" || rec.Args != "" {
		t.Fatalf("%+v", rec)
	}
}
