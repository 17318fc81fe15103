package httpd

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"atoll/internal/caller"
	"atoll/internal/event"
	"atoll/internal/fault"
)

func TestEventsNeedASession(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	want(t, "no cookie", g.stranger().get(t, "/events", nil), 401, fault.Unauthenticated)
	p := g.login(t, "ada")
	for name, change := range map[string]func(*http.Request){
		"another site":         header("Sec-Fetch-Site", "cross-site"),
		"a sibling":            header("Sec-Fetch-Site", "same-site"),
		"another origin":       header("Origin", "http://evil.example"),
		"another port":         header("Origin", "http://127.0.0.1:1"),
		"an origin of nowhere": header("Origin", "null"),
	} {
		want(t, name, p.get(t, "/events", change), 403, fault.Forbidden)
	}
}

// Section 3: first the current state, then what happens; each to whom it concerns.
func TestEvents(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	g.add(t, "vic", caller.Member)
	ada, vic := g.login(t, "ada"), g.login(t, "vic")
	g.setState(event.Event{Name: "confirm", Data: text{"waiting"}})
	a, v := ada.events(t, ""), vic.events(t, "")
	for _, st := range []*sse{a, v} {
		st.expect(t, "confirm", `{"text":"waiting"}`)
		if e := st.expect(t, "synced", `{"events":1}`); e.id == "" {
			t.Fatal("no id to resume from")
		}
	}
	g.bus.Publish(event.Event{Name: "notice", Owners: true, Data: text{"for owners"}})
	g.bus.Publish(event.Event{Name: "apps", Account: 2, Data: text{"for vic"}})
	a.expect(t, "notice", `{"text":"for owners"}`)
	v.expect(t, "apps", `{"text":"for vic"}`)
}

// F-C7: after a reload, or in a second client, there are as many cards as pendings; an answered one does not come back.
func TestResume(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p := g.login(t, "ada")
	st := p.events(t, "")
	st.expect(t, "synced", `{"events":0}`)
	publish := func(name, what string, state bool) {
		g.bus.Publish(event.Event{Name: name, Owners: true, State: state, Data: text{what}})
	}
	publish("notice", "seen", false)
	id := st.expect(t, "notice", `{"text":"seen"}`).id
	st.close()
	publish("confirm", "one", true)
	publish("confirm-ended", "one", false)
	publish("confirm", "two", true)
	publish("notice", "missed", false)
	g.setState(event.Event{Name: "confirm", Data: text{"two"}})
	st = p.events(t, id)
	st.expect(t, "confirm", `{"text":"two"}`)
	if e := st.expect(t, "synced", `{"events":1}`); e.id != id {
		t.Fatalf("id %q: what is still to come would be lost with it, want %q", e.id, id)
	}
	st.expect(t, "confirm-ended", `{"text":"one"}`)
	st.expect(t, "notice", `{"text":"missed"}`)
	publish("notice", "new", false)
	st.expect(t, "notice", `{"text":"new"}`)
	for _, foreign := range []string{"0", "1", "x", "-5", "99999999999999999999999999", "18446744073709551615"} {
		st := p.events(t, foreign)
		st.expect(t, "confirm", `{"text":"two"}`)
		st.expect(t, "synced", `{"events":1}`)
		st.close()
	}
}

// F-A19: a reader that fell behind the ring gets the current state again.
func TestFallenBehindIsSynced(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p := g.login(t, "ada")
	res, err := http.DefaultTransport.RoundTrip(p.request(t, http.MethodGet, "/events", nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	st := &sse{res: res, events: make(chan sseEvent, 4*event.Ring), done: make(chan struct{})}
	t.Cleanup(st.close)
	g.setState(event.Event{Name: "confirm", Data: text{"still waiting"}}) // after the first state, which came with the header
	// Nobody reads: the writer fills the connection and stands, the ring goes on.
	for range event.Ring * 3 {
		g.bus.Publish(event.Event{Name: "flood", Owners: true, Data: text{strings.Repeat("x", 8<<10)}})
	}
	go st.read()
	st.expect(t, "synced", `{"events":0}`)
	for {
		e, ok := st.next(t)
		if !ok {
			t.Fatal("the stream ended")
		}
		if e.name != "flood" {
			if e.name != "confirm" {
				t.Fatalf("%+v", e)
			}
			break
		}
	}
	st.expect(t, "synced", `{"events":1}`)
}

// G6: streams end with their session, at once, by whatever way it ends.
func TestRevokedSessionEndsItsStreams(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p, other := g.login(t, "ada"), g.login(t, "ada")
	one, two, kept := p.events(t, ""), p.events(t, ""), other.events(t, "")
	for _, st := range []*sse{one, two, kept} {
		st.expect(t, "synced", `{"events":0}`)
	}
	s, err := g.accounts.Resolve(t.Context(), secretOf(p), "x")
	if err != nil {
		t.Fatal(err)
	}
	want(t, "revoke", other.call(t, "auth.revoke", `{"id":"`+s.Caller.Session()+`"}`), 200, "")
	one.expectEnd(t)
	two.expectEnd(t)
	g.bus.Publish(event.Event{Name: "notice", Owners: true, Data: text{"x"}})
	kept.expect(t, "notice", `{"text":"x"}`)
	want(t, "the revoked session", p.get(t, "/events", nil), 401, fault.Unauthenticated)
	want(t, "logout", other.call(t, "auth.logout", `{}`), 200, "")
	kept.expectEnd(t)
	if g.bus.Listening(s.Caller.Account()) {
		t.Fatal("somebody still listens")
	}
}

// Eight streams an operator; the ninth is told when to come back, and a place that is left is free.
func TestEightStreams(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p, second := g.login(t, "ada"), g.login(t, "ada")
	var streams []*sse
	for range event.MaxStreams {
		st := p.events(t, "")
		st.expect(t, "synced", `{"events":0}`)
		streams = append(streams, st)
	}
	a := second.get(t, "/events", nil)
	want(t, "the ninth", a, 429, fault.RateLimited)
	if a.header.Get("Retry-After") == "" {
		t.Fatal("no Retry-After")
	}
	streams[0].close()
	for deadline := time.Now().Add(10 * time.Second); ; {
		r := second.request(t, http.MethodGet, "/events", nil, nil)
		res, err := second.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the place is still taken")
		}
	}
}

// A stream shows life, and ends by itself when its session runs out.
func TestEventsKeepAlive(t *testing.T) {
	g := newRig(t, func(c *Config) { c.Times.KeepAlive = 20 * time.Millisecond })
	g.add(t, "ada", caller.Owner)
	p := g.login(t, "ada")
	st := p.events(t, "")
	st.expect(t, "synced", `{"events":0}`)
	st.expect(t, "comment", "still here")
	st.expect(t, "comment", "still here")
	if strings.Contains(fmt.Sprint(g.log), p.cookie) {
		t.Fatal("the cookie is in the log")
	}
}
