package grant

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
)

// A1: a change that cannot be written, or not recorded, is no change: memory and file stay as they were.
func TestWriteFails(t *testing.T) {
	b := newBench(t)
	r := b.room()
	b.set(r, `{"grants":{"apps":{"granted":true}}}`)
	before := table(t, r)
	changes := func(why string) {
		t.Helper()
		for method, params := range map[string]string{"assistant.grants-set": `{"grants":{"apps":{"granted":false},"wallet":{"granted":true}}}`, "assistant.mode-set": `{"mode":"off"}`} {
			if code := b.call(r, owner, method, params); code != fault.Unavailable {
				t.Errorf("%s: %s: %q", why, method, code)
			}
		}
		if after := table(t, r); after != before || len(b.modes) != 0 {
			t.Errorf("%s: before %s, after %s, told %v", why, before, after, b.modes)
		}
	}
	b.full = errors.New("disk full")
	changes("no audit")
	b.full = nil
	if open(b.room()) != "apps" {
		t.Error("the file changed without a record")
	}
	dir := filepath.Dir(b.path)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	changes("no directory")
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if got := table(t, b.room()); got != before {
		t.Errorf("after a restart: %s", got)
	}
	if err := errors.Join(os.Rename(b.path, b.path+".away"), os.Mkdir(b.path, 0o700), os.WriteFile(filepath.Join(b.path, "x"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	changes("a directory in its place")
	b.pass(time.Second)
	if got := open(r); got != "apps" {
		t.Errorf("open: %q", got)
	}
}

// A2: only the owner changes grants and mode, only in whole and sensible steps, and each is recorded.
func TestSet(t *testing.T) {
	b := newBench(t)
	r := b.room()
	for _, c := range []caller.Caller{{}, member, caller.Operator(3, "vic", caller.Viewer, "s", ""), caller.Peer("k", "owner"), caller.Stranger("x"), owner.Narrow(caller.Member)} {
		for _, m := range r.Methods() {
			if code := b.call(r, c, m.Name, `{}`); code != fault.Forbidden {
				t.Errorf("%s by %s: %q", m.Name, c, code)
			}
			if m.Doors != rpc.People {
				t.Errorf("%s has doors %b: the assistant could reach it", m.Name, m.Doors)
			}
		}
	}
	for _, params := range []string{`{}`, `{"grants":null}`, `{"grants":[]}`, `{"grants":{"shell":{"granted":true}}}`, `{"grants":{"Apps":{"granted":true}}}`,
		`{"grants":{"apps":{"granted":true},"shell":{"granted":true}}}`, `{"grants":{"apps":{"granted":"true"}}}`, `{"grants":{"apps":{"granted":1}}}`,
		`{"grants":{"apps":{"granted":true},"apps":{"granted":false}}}`, `{"grants":{"apps":{"granted":true,"forever":true}}}`, `{"grants":{"apps":true}}`,
		`{"grants":{"apps":{"granted":true,"expires_at":"2026-05-01T12:00:00Z"}}}`, `{"grants":{"apps":{"granted":true,"expires_at":"2020-01-01T00:00:00Z"}}}`,
		`{"grants":{"apps":{"granted":true,"expires_at":"9999-12-31T00:00:00Z"}}}`, `{"grants":{"apps":{"granted":true,"expires_at":"tomorrow"}}}`,
		`{"grants":{"apps":{"granted":true,"expires_at":1777777777}}}`, `{"grants":{"apps":{"granted":false,"expires_at":"2026-05-01T13:00:00Z"}}}`} {
		if code := b.call(r, owner, "assistant.grants-set", params); code != fault.InvalidParams {
			t.Errorf("%s: %q", params, code)
		}
	}
	for _, params := range []string{`{}`, `{"mode":""}`, `{"mode":"OFF"}`, `{"mode":"on"}`, `{"mode":null}`, `{"mode":"off","x":1}`} {
		if code := b.call(r, owner, "assistant.mode-set", params); code != fault.InvalidParams {
			t.Errorf("%s: %q", params, code)
		}
	}
	if open(r) != "" || r.Mode() != Confirm || len(b.records) != 0 || len(b.modes) != 0 {
		t.Errorf("open %q, mode %s, records %v", open(r), r.Mode(), b.records)
	}
	b.set(r, `{"grants":{"apps":{"granted":true},"files":{"granted":true,"expires_at":"2026-05-01T15:00:00+02:00"},"system":{"granted":false}}}`)
	if code := b.call(r, owner, "assistant.mode-set", `{"mode":"off"}`); code != "" || r.Mode() != Off || len(b.modes) != 1 {
		t.Errorf("%q, %s, %v", code, r.Mode(), b.modes)
	}
	var got []string
	for _, e := range b.records {
		got = append(got, strings.Join([]string{e.Kind, e.Event, e.Caller, e.Session, e.Subject, e.Detail}, "|"))
	}
	want := "grant|close|operator:ada|s1|system|\ngrant|open|operator:ada|s1|apps|for good\ngrant|open|operator:ada|s1|files|until 2026-05-01T13:00:00Z\ngrant|mode|operator:ada|s1|off|"
	if strings.Join(got, "\n") != want {
		t.Errorf("recorded\n%s", strings.Join(got, "\n"))
	}
}
