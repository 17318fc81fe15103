package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/fault"
	"atoll/internal/grant"
	"atoll/internal/mesh"
	"atoll/internal/mesh/radio/radiotest"
	"atoll/internal/rpc"
	"atoll/internal/tool"
)

// meshNode is a whole node with the mesh on, and its owner.
type meshNode struct {
	*Node
	t     *testing.T
	owner caller.Caller
	dir   string
}

func newMeshNode(t *testing.T, edit func(*Settings)) *meshNode {
	t.Helper()
	return newMeshNodeAt(t, clock.Real(), edit)
}

func newMeshNodeAt(t *testing.T, now clock.Clock, edit func(*Settings)) *meshNode {
	t.Helper()
	m := &meshNode{t: t, dir: t.TempDir(), owner: caller.Operator(1, "ada", caller.Owner, "s1", "127.0.0.1")}
	put := func(name, text string) {
		if err := os.MkdirAll(filepath.Join(m.dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("apps/clock.yaml", "command: [sleep, \"1000\"]\nuser: root\nautostart: true\n")
	s := settingsFor(t, m.dir)
	s.Mesh.Enabled, s.Mesh.Listen, s.Mesh.Discover = true, []string{"/ip4/127.0.0.1/tcp/0"}, false
	if edit != nil {
		edit(&s)
	}
	var err error
	if m.Node, err = New(t.Context(), Config{DataDir: m.dir, Settings: s, Version: "test", Executable: "/bin/true", Log: slog.New(slog.DiscardHandler), Clock: now, StopApps: true}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	for _, f := range append(m.runApps(), m.mesh.Run, m.runRadio, m.content.Run) {
		g.Go(func() { f(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		g.Wait()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *meshNode) call(method string, params, out any) error {
	m.t.Helper()
	raw, err := json.Marshal(params)
	if err != nil {
		m.t.Fatal(err)
	}
	got, err := m.gate.Call(m.t.Context(), m.owner, rpc.People, method, jsontext.Value(raw), nil)
	if err != nil || out == nil {
		return err
	}
	if raw, err = rpc.Marshal(got); err != nil {
		m.t.Fatal(err)
	}
	return json.Unmarshal(raw, out)
}

func (m *meshNode) must(method string, params, out any) {
	m.t.Helper()
	if err := m.call(method, params, out); err != nil {
		m.t.Fatalf("%s: %v", method, err)
	}
}

func (m *meshNode) open(categories ...string) {
	m.t.Helper()
	grants := map[string]any{}
	for _, c := range categories {
		grants[c] = map[string]any{"granted": true}
	}
	m.must("assistant.grants-set", map[string]any{"grants": grants}, nil)
}

func until(t *testing.T, what string, good func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for !good() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s: never", what)
		}
	}
}

// friends are two nodes of which b is let in at a.
func friends(t *testing.T) (a, b *meshNode, keyB string) {
	t.Helper()
	a, b = newMeshNode(t, nil), newMeshNode(t, nil)
	return a, b, befriend(t, a, b)
}

func befriend(t *testing.T, a, b *meshNode) (keyB string) {
	t.Helper()
	var v mesh.Invite
	a.must("mesh.invite", struct{}{}, &v)
	b.must("mesh.accept", map[string]any{"code": v.Code, "key_words": strings.Join(v.KeyWords, " "), "label": "a"}, nil)
	var s mesh.Status
	b.must("mesh.status", struct{}{}, &s)
	a.must("mesh.admit", map[string]any{"peer": s.Key, "key_words": strings.Join(s.KeyWords, " ")}, nil)
	return s.Key
}

func (m *meshNode) ask(question string) (string, error) {
	m.t.Helper()
	var r mesh.Reply
	err := m.call("mesh.ask", map[string]any{"peer": "a", "question": question}, &r)
	return r.Text, err
}

func (m *meshNode) state(app string) string {
	m.t.Helper()
	var list struct {
		Apps []struct {
			App   string `json:"app"`
			State string `json:"state"`
			PID   int    `json:"pid"`
		} `json:"apps"`
	}
	m.must("apps.list", struct{}{}, &list)
	for _, a := range list.Apps {
		if a.App == app {
			return a.State
		}
	}
	return ""
}

// A5 with everything in its place: an answer comes from what both the ceiling and the owner's grants open, at the moment.
func TestPeerIsAnsweredUnderItsCeiling(t *testing.T) {
	a, b, key := friends(t)
	if _, err := b.ask("how full is the disk?"); !strings.Contains(errText(err), "not open") {
		t.Error("with nothing allowed:", err)
	}
	a.must("mesh.allow", map[string]any{"peer": key, "categories": []string{"system"}}, nil)
	if _, err := b.ask("how full is the disk?"); err == nil {
		t.Error("allowed, and the owner's own assistant may not: answered")
	}
	a.open("system")
	if text, err := b.ask("how full is the disk?"); err != nil || !strings.Contains(text, "%") {
		t.Errorf("%q, %v", text, err)
	}
	for _, q := range []string{"is the clock app running?", "restart clock", "which peers are online?", "list my files"} {
		if text, err := b.ask(q); err == nil && (strings.Contains(text, "running") || strings.Contains(text, "Restarted") || strings.Contains(text, "12D3")) {
			t.Errorf("%s: %q", q, text)
		}
	}
	a.must("assistant.grants-set", map[string]any{"grants": map[string]any{"system": map[string]any{"granted": false}}}, nil)
	if _, err := b.ask("how full is the disk?"); err == nil {
		t.Error("answered after the owner closed the category")
	}
	if got := a.state("clock"); got != "running" {
		t.Error("the app is", got)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// M3: with asking on, a change that a peer wants is a question to the owner, and runs once approved; a decline mutes.
func TestPeerAsksForAChange(t *testing.T) {
	a, b, key := friends(t)
	a.open("apps")
	until(t, "running", func() bool { return a.state("clock") == "running" })
	a.must("mesh.allow", map[string]any{"peer": key, "categories": []string{"apps"}}, nil)
	if text, _ := b.ask("stop clock"); a.state("clock") != "running" || len(a.confirms.Waiting(a.owner)) != 0 {
		t.Fatal("with asking off:", text)
	}
	sub, err := a.bus.Subscribe(1, true, "s1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	a.must("mesh.allow", map[string]any{"peer": key, "categories": []string{"apps"}, "asking": true}, nil)
	for _, decision := range []string{"approve", "decline"} {
		want := map[string]string{"approve": "stop clock", "decline": "start clock"}[decision]
		answer := make(chan string, 1)
		go func() { text, _ := b.ask(want); answer <- text }()
		until(t, "asked", func() bool { return len(a.confirms.Waiting(a.owner)) == 1 })
		p := a.confirms.Waiting(a.owner)[0]
		if p.Caller != key || !strings.Contains(strings.Join(p.Warnings, " "), "another node") || p.MayAllow {
			t.Errorf("%+v", p)
		}
		params := map[string]any{"nonce": p.Nonce, "action_key": p.ActionKey, "decision": decision}
		until(t, "decided", func() bool { err := a.call("assistant.confirm", params, nil); return !fault.Is(err, fault.TooSoon) })
		text := <-answer
		if got := a.state("clock"); got != "stopped" && got != "exited" {
			t.Errorf("after %s the app is %s; the peer reads %q", decision, got, text)
		}
	}
	if text, _ := b.ask("start clock"); len(a.confirms.Waiting(a.owner)) != 0 || a.state("clock") == "running" {
		t.Error("asked again after a decline:", text)
	}
}

// M5: a question by radio is a peer's question, answered under that node's ceiling in parts that are acknowledged.
func TestRadioQuestion(t *testing.T) {
	device := radiotest.New(radiotest.Config{Own: 0x11223344, Nodes: []radiotest.Node{{Num: 0xa1b2c3d4, Long: "Ada's radio", Short: "ADA"}}})
	defer device.Close()
	address, err := device.Listen()
	if err != nil {
		t.Fatal(err)
	}
	n := newMeshNode(t, func(s *Settings) { s.Mesh.Radio, s.Mesh.RadioNodes = address, []string{"!a1b2c3d4"} })
	<-device.Ready()
	n.open("system")
	reply := func(question string) string {
		device.Deliver(radiotest.Packet{From: 0xa1b2c3d4, Payload: []byte(question)})
		select {
		case p := <-device.Sent():
			if p.To != 0xa1b2c3d4 {
				t.Errorf("sent to %08x", p.To)
			}
			return string(p.Payload)
		case <-time.After(time.Minute):
			t.Fatal("no answer")
			return ""
		}
	}
	if text := reply("how full is the disk?"); strings.Contains(text, "%") {
		t.Error("answered without a ceiling:", text)
	}
	key := mesh.RadioKey("!a1b2c3d4")
	n.must("mesh.allow", map[string]any{"peer": key, "categories": []string{"system"}}, nil)
	if text := reply("how full is the disk?"); !strings.Contains(text, "%") {
		t.Error(text)
	}
	n.must("mesh.block", map[string]any{"peer": key}, nil)
	if text := reply("how full is the disk?"); strings.Contains(text, "%") {
		t.Error("a blocked radio node was answered:", text)
	}
	device.Deliver(radiotest.Packet{From: 0x01020304, Payload: []byte("how full is the disk?")})
	until(t, "told", func() bool {
		var list struct {
			Notices []struct {
				What string `json:"what"`
			} `json:"notices"`
		}
		n.must("notices.list", struct{}{}, &list)
		for _, v := range list.Notices {
			if strings.Contains(v.What, "!01020304") {
				return true
			}
		}
		return false
	})
}

// A ceiling can be made of the categories that have a door for peers, and of no other: what is shown as open must be.
func TestPeerCategories(t *testing.T) {
	n := newMeshNode(t, nil)
	open := map[grant.Category]bool{}
	for _, tl := range tool.Registry() {
		if row, _ := n.gate.Row(tl.Method); row.Doors&(rpc.Peers|rpc.Asked) != 0 {
			open[tl.Category] = true
		}
	}
	for _, c := range grant.Categories() {
		if slices.Contains(peerCategories(), c) != open[c] {
			t.Errorf("%s: listed %v, has a door %v", c, !open[c], open[c])
		}
	}
}

// A block during a peer's turn ends it, and the question that it had put to the owner; nothing runs.
func TestBlockedDuringATurn(t *testing.T) {
	a, b, key := friends(t)
	a.open("apps")
	until(t, "running", func() bool { return a.state("clock") == "running" })
	sub, err := a.bus.Subscribe(1, true, "s1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	a.must("mesh.allow", map[string]any{"peer": key, "categories": []string{"apps"}, "asking": true}, nil)
	ended := make(chan error, 1)
	go func() { _, err := b.ask("stop clock"); ended <- err }()
	until(t, "asked", func() bool { return len(a.confirms.Waiting(a.owner)) == 1 })
	p := a.confirms.Waiting(a.owner)[0]
	a.must("mesh.block", map[string]any{"peer": key}, nil)
	if err := <-ended; err == nil {
		t.Error("a blocked peer was answered")
	}
	until(t, "the question to be gone", func() bool { return len(a.confirms.Waiting(a.owner)) == 0 })
	if err := a.call("assistant.confirm", map[string]any{"nonce": p.Nonce, "action_key": p.ActionKey, "decision": "approve"}, nil); err == nil {
		t.Error("the question of a blocked peer was approved")
	}
	if got := a.state("clock"); got != "running" {
		t.Error("the app is", got)
	}
}

// Two nodes whose clocks are an hour apart, either way, pair and answer each other: each counts by its own.
func TestClocksApart(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		real := clock.Real()
		a, b := newMeshNode(t, nil), newMeshNodeAt(t, clock.New(func() time.Time { return real.Now().Add(off) }, real.Mono), nil)
		key := befriend(t, a, b)
		a.open("system")
		a.must("mesh.allow", map[string]any{"peer": key, "categories": []string{"system"}}, nil)
		if text, err := b.ask("how full is the disk?"); err != nil || !strings.Contains(text, "%") {
			t.Errorf("%s: %q, %v", off, text, err)
		}
	}
}
