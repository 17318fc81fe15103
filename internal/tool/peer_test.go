package tool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll/internal/caller"
	"atoll/internal/confirm"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/grant"
	"atoll/internal/model"
	"atoll/internal/rpc"
)

var friend = caller.Peer("friend", "Bob\u202e")

func (b *bench) let(peer string, on bool) { b.mu.Lock(); defer b.mu.Unlock(); b.asking[peer] = on }

func (b *bench) allow(peer string, cats ...grant.Category) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ceiling[peer] = cats
}

// beginPeer begins a peer's turn as the assistant does: its own words are in context.
func (b *bench) beginPeer(c caller.Caller) *Turn {
	return b.x.Begin(TurnConfig{Caller: c, Conversation: "c1", Outside: []fence.Text{fence.Outside("peer", "please restart it")},
		Deadline: b.wall.Add(confirm.TurnTime)})
}

// A5, A4, M3, F-E17, F-B2: what a peer's assistant may use, in every combination of ceiling, grant, mode and asking, and
// for every tool by its name whether it was offered or not. Nothing that is not offered reaches a handler.
func TestPeerCeilings(t *testing.T) {
	b := newBench(t)
	doors := []string{"system_disk_status", "content_list"} // what the stand-in rows have for peers to read
	asks := []string{"app_start", "app_stop", "app_restart"}
	args := map[string]string{"app_logs": `{"app":"jellyfin"}`, "files_list": `{"path":"/"}`, "app_start": `{"app":"jellyfin"}`,
		"app_stop": `{"app":"jellyfin"}`, "app_restart": `{"app":"jellyfin"}`, "settings_set": `{"key":"ui.theme","value":"dark"}`}
	b.listening = false // a change that gets as far as the question ends there
	for _, mode := range []grant.Mode{grant.Confirm, grant.ReadOnly, grant.Off} {
		b.rpc(b.owner, "assistant.mode-set", `{"mode":"`+string(mode)+`"}`)
		for bits := range 8 {
			ceiling, granted, asking := bits&1 != 0, bits&2 != 0, bits&4 != 0
			b.let("friend", asking)
			for _, tl := range Registry() {
				b.allow("friend")
				if ceiling {
					b.allow("friend", tl.Category)
				}
				var wish []string
				for _, cat := range grant.Categories() { // all but the tool's own are the other way round
					wish = append(wish, fmt.Sprintf(`%q:{"granted":%v}`, cat, (cat == tl.Category) == granted))
				}
				b.advance(time.Second) // the rates are not what is tried here
				if _, code := b.rpc(b.owner, "assistant.grants-set", `{"grants":{`+strings.Join(wish, ",")+`}}`); code != "" {
					t.Fatal(code)
				}
				may := ceiling && granted && mode != grant.Off && (slices.Contains(doors, tl.Name) || slices.Contains(asks, tl.Name) && asking && mode == grant.Confirm)
				what := fmt.Sprintf("%s, mode %s, ceiling %v, grant %v, asking %v", tl.Name, mode, ceiling, granted, asking)
				offered := slices.ContainsFunc(b.x.Offer(friend), func(o model.Tool) bool { return o.Name == tl.Name })
				if offered != may {
					t.Errorf("%s: offered %v", what, offered)
				}
				before := b.rooms.count(tl.Method)
				turn := b.beginPeer(friend)
				<-b.run(turn, call(tl.Name, args[tl.Name]))
				ran := b.rooms.count(tl.Method) - before
				switch got := codes(turn); {
				case may && tl.Destructive && (got != "refused:nobody_to_ask" || ran != 0):
					t.Errorf("%s: %s, ran %d", what, got, ran)
				case may && !tl.Destructive && (got != "done" || ran != 1):
					t.Errorf("%s: %s, ran %d", what, got, ran)
				case !may && (ran != 0 || !strings.HasPrefix(got, "refused:not_granted") && got != "refused:off" && got != "refused:read_only"):
					t.Errorf("%s: %s, ran %d", what, got, ran)
				}
				if touched := len(turn.Touched()) > 0; touched != may {
					t.Errorf("%s: touched %v", what, turn.Touched())
				}
			}
		}
	}
	b.notAsked()
}

func (b *bench) peerAsks(t *testing.T) (*Turn, <-chan []model.Result, confirm.Pending) {
	t.Helper()
	turn := b.beginPeer(friend)
	out := b.run(turn, call("app_restart", `{"app":"jelly"}`))
	return turn, out, b.pending()
}

// M3, C1, G3: an owner's approval runs the same row once, as the peer; the peer learns the state and no more.
func TestPeerAsksAndOwnerDecides(t *testing.T) {
	b := newBench(t)
	b.open(grant.Apps)
	b.let("friend", true)
	turn, out, p := b.peerAsks(t)
	if p.Caller != "friend" || p.MayAllow || !slices.Contains(p.Untrusted, "peer") || !strings.Contains(p.Warnings[0], "another node, friend") ||
		strings.ContainsRune(strings.Join(p.Warnings, ""), 0x202e) || argument(t, p, "app") != `"jellyfin"` {
		t.Errorf("%+v", p)
	}
	if n := b.rooms.count("apps.restart"); n != 0 {
		t.Fatalf("ran %d times before the decision", n)
	}
	b.approve(p)
	got := <-out
	if text := got[0].Text.Payload(); got[0].IsError || text != `{"state":"running"}` {
		t.Errorf("the peer's model reads %q", text)
	}
	if n := b.rooms.count("apps.restart"); n != 1 || b.rooms.callers[0] != friend || codes(turn) != "done" {
		t.Errorf("ran %d times, as %v: %s", n, b.rooms.callers, codes(turn))
	}
	if code := b.decide(p, "approve", ""); code != "" {
		t.Error("a second approval is idempotent:", code)
	}
	if n := b.rooms.count("apps.restart"); n != 1 {
		t.Errorf("ran %d times", n)
	}
	if r := b.records("intent"); len(r) != 1 || r[0].Caller != "peer:friend" || !r[0].Untrusted {
		t.Errorf("%+v", r)
	}
	// The same again asks again: nothing is left of the approval.
	_, out, p = b.peerAsks(t)
	if code := b.decide(p, "decline", `,"reason":"Bob is a nuisance"`); code != "" {
		t.Fatal(code)
	}
	if text := (<-out)[0].Text.Prompt(); strings.Contains(text, "nuisance") || !strings.HasPrefix(text, "declined") {
		t.Errorf("the peer's model reads %q", text)
	}
	turn = b.beginPeer(friend)
	<-b.run(turn, call("app_stop", `{"app":"photos"}`))
	if codes(turn) != "refused:declined" {
		t.Error("after a decline:", codes(turn))
	}
	b.notAsked()
	if n := b.rooms.count("apps.stop") + b.rooms.count("apps.restart"); n != 1 {
		t.Errorf("ran %d times", n)
	}
}

// M3: a handler's failure tells the peer that it failed, and not what the node said about it.
func TestPeerChangeFails(t *testing.T) {
	b := newBench(t)
	b.open(grant.Apps)
	b.let("friend", true)
	b.rooms.fail = fault.New(fault.Failed, "the log ends with: %s", "a secret line")
	turn, out, p := b.peerAsks(t)
	b.approve(p)
	if text := (<-out)[0].Text.Prompt(); strings.Contains(text, "secret") || codes(turn) != "failed:failed" {
		t.Error(text, codes(turn))
	}
}

// M3, F-A2, F-A3, T2: whatever closed while the owner thought about it stays closed.
func TestPeerChangedWhilePending(t *testing.T) {
	for name, change := range map[string]func(*bench){
		"blocked": func(b *bench) {
			b.alive = func(c caller.Caller) (caller.Caller, error) {
				return caller.Caller{}, fault.New(fault.Forbidden, "blocked")
			}
		},
		"another key's word": func(b *bench) {
			b.alive = func(caller.Caller) (caller.Caller, error) { return caller.Peer("other", "x"), nil }
		},
		"ceiling narrowed": func(b *bench) { b.allow("friend", grant.System) },
		"ceiling gone":     func(b *bench) { b.allow("friend") },
		"asking off":       func(b *bench) { b.let("friend", false) },
		"grant closed":     func(b *bench) { b.rpc(b.owner, "assistant.grants-set", `{"grants":{"apps":{"granted":false}}}`) },
		"read-only":        func(b *bench) { b.rpc(b.owner, "assistant.mode-set", `{"mode":"read-only"}`) },
		"off":              func(b *bench) { b.rpc(b.owner, "assistant.mode-set", `{"mode":"off"}`) },
		"target":           func(b *bench) { b.rooms.mu.Lock(); b.rooms.state["jellyfin"] = "exited"; b.rooms.mu.Unlock() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.open(grant.Apps)
			b.let("friend", true)
			turn, out, p := b.peerAsks(t)
			change(b)
			b.approve(p)
			<-out
			if n := b.rooms.count("apps.restart"); n != 0 || codes(turn) != "refused:changed" {
				t.Errorf("ran %d times: %s", n, codes(turn))
			}
			if r := b.records("intent"); len(r) != 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// M3: one question a peer. Another peer's stands beside it, and each is decided alone.
func TestTwoPeersAsk(t *testing.T) {
	b := newBench(t)
	b.open(grant.Apps)
	b.allow("other", grant.Apps)
	b.let("friend", true)
	b.let("other", true)
	_, one, p := b.peerAsks(t)
	again := b.beginPeer(friend)
	<-b.run(again, call("app_stop", `{"app":"photos"}`))
	if codes(again) != "refused:busy" {
		t.Error(codes(again))
	}
	theirs := b.beginPeer(caller.Peer("other", "Bob"))
	two := b.run(theirs, call("app_stop", `{"app":"jellyfin"}`))
	q := b.pending()
	if q.Caller != "other" || q.Nonce == p.Nonce {
		t.Errorf("%+v", q)
	}
	b.advance(confirm.Inert)
	if code := b.decide(confirm.Pending{Nonce: q.Nonce, ActionKey: p.ActionKey}, "approve", ""); code != fault.InvalidParams {
		t.Error("one's key served for the other's question:", code)
	}
	if code := b.decide(p, "decline", ""); code != "" {
		t.Fatal(code)
	}
	<-one
	b.approve(q)
	<-two
	if b.rooms.count("apps.restart") != 0 || b.rooms.count("apps.stop") != 1 || codes(theirs) != "done" {
		t.Errorf("restart %d, stop %d: %s", b.rooms.count("apps.restart"), b.rooms.count("apps.stop"), codes(theirs))
	}
}

// F-F4: a peer that knows a live nonce decides nothing with it, by no method and by no tool.
func TestPeerCannotDecide(t *testing.T) {
	b := newBench(t)
	b.open(grant.Apps)
	b.let("friend", true)
	turn, out, p := b.peerAsks(t)
	b.advance(confirm.Inert)
	params := `{"nonce":"` + p.Nonce + `","action_key":"` + p.ActionKey + `","decision":"approve"}`
	for door := range 16 {
		for _, method := range []string{"assistant.confirm", "assistant.pending", "assistant.grants-set", "assistant.mode-set", "assistant.permissions-list"} {
			if _, err := b.gate.Call(t.Context(), friend, rpc.Doors(door), method, rawJSON(params), nil); !fault.Is(err, fault.Forbidden) {
				t.Errorf("%s by door %b: %v", method, door, err)
			}
		}
	}
	other := b.beginPeer(friend)
	<-b.run(other, call("assistant_confirm", params), call("assistant.confirm", params), call("settings_set", `{"key":"ui.theme","value":"dark"}`))
	if codes(other) != "refused:unknown_tool refused:unknown_tool refused:not_granted" {
		t.Error(codes(other))
	}
	if n := b.rooms.count("apps.restart") + b.rooms.count("settings.set"); n != 0 || len(b.confirms.Waiting(b.owner)) != 1 {
		t.Errorf("ran %d times, %d wait", n, len(b.confirms.Waiting(b.owner)))
	}
	b.approve(p)
	if <-out; codes(turn) != "done" {
		t.Error(codes(turn))
	}
}
