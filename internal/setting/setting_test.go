package setting

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/rpc"
	"atoll/internal/store"
)

func database(t *testing.T, path string) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: path, Schemas: []store.Schema{Schema()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func config(db *store.DB) Config {
	return Config{DB: db, Log: slog.New(slog.DiscardHandler), Name: "home", Version: "0.1.0", Backend: "local", Mode: func() string { return "confirm" }}
}

func room(t *testing.T, cfg Config) *Room {
	t.Helper()
	r, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func fresh(t *testing.T) *Room {
	return room(t, config(database(t, filepath.Join(t.TempDir(), "node.db"))))
}

func gate(r *Room) *rpc.Gate {
	return rpc.NewGate(rpc.Config{Methods: r.Methods(), Log: slog.New(slog.DiscardHandler)})
}

func as(role caller.Role) caller.Caller { return caller.Operator(1, "ann", role, "s1", "127.0.0.1") }

func call(t *testing.T, r *Room, c caller.Caller, door rpc.Doors, method, params string) (string, error) {
	t.Helper()
	result, err := gate(r).Call(t.Context(), c, door, method, jsontext.Value(params), nil)
	if err != nil {
		return "", err
	}
	raw, err := rpc.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw), nil
}

func wantFault(t *testing.T, err error, code fault.Code, field string) {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code != code || f.Field != field || f.Public == "" {
		t.Errorf("got %v, want %s at %q", err, code, field)
	}
}

// T5: the lists are these and no others.
func TestTheTwoLists(t *testing.T) {
	r := fresh(t)
	if got := strings.Join(r.Keys(), " "); got != "node.name ui.theme ui.language disk.warn_percent" {
		t.Errorf("settable: %s", got)
	}
	got, err := call(t, r, as(caller.Viewer), rpc.People, "settings.get", "{}")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"settings":{` +
		`"assistant.backend":{"value":"local","type":"string","settable":false},` +
		`"assistant.mode":{"value":"confirm","type":"string","settable":false},` +
		`"disk.warn_percent":{"value":90,"type":"integer","settable":true,"min":50,"max":99},` +
		`"node.name":{"value":"home","type":"string","settable":true},` +
		`"node.version":{"value":"0.1.0","type":"string","settable":false},` +
		`"ui.language":{"value":"en","type":"enum","settable":true,"choices":["en","de","es","fr","it","nl","pl","pt"]},` +
		`"ui.theme":{"value":"auto","type":"enum","settable":true,"choices":["auto","light","dark"]}}}`
	if got != want {
		t.Errorf("readable:\n%s\nwant\n%s", got, want)
	}
}

// T5 by name: nothing secret, no address, no grant, nothing that widens authority can be read or set.
func TestNothingThatWidensAuthority(t *testing.T) {
	r := fresh(t)
	for _, key := range []string{
		"secrets", "claude-api-key", "openai-api-key", "assistant.api_key", "assistant.base_url", "assistant.model", "assistant.local_first",
		"assistant.daily_budget_usd", "listen", "mesh.listen", "mesh.enabled", "trusted_proxies", "insecure", "hosts", "tls.key", "data_dir",
		"grants", "assistant.grants", "grants.apps", "mode", "files.roots", "content.dir", "wallet.url", "wallet.user", "wallet.cookie_file",
		"apps.docker", "apps.systemd_units", "users", "role", "password", "csrf", "node.key", "NODE.NAME", "node.name ", "node.name\\u0000assistant.confirm",
		"node\u2024name",
	} {
		for _, door := range []rpc.Doors{rpc.People, rpc.Tools} {
			got, err := call(t, r, as(caller.Owner), door, "settings.get", `{"key":"`+key+`"}`)
			if got != "" {
				t.Errorf("%s was read: %s", key, got)
			}
			wantFault(t, err, fault.Rule, "key")
			if f := fault.Of(err); fence.Sentence("settings_get", f.Public, f.Values()...).IsOutside() {
				t.Errorf("the host's own words count as somebody else's: %s", f.Public)
			}
			got, err = call(t, r, as(caller.Owner), door, "settings.set", `{"key":"`+key+`","value":"x"}`)
			if got != "" {
				t.Errorf("%s was set: %s", key, got)
			}
			wantFault(t, err, fault.Rule, "key")
		}
	}
	for _, key := range []string{"assistant.mode", "assistant.backend", "node.version"} {
		_, err := call(t, r, as(caller.Owner), rpc.People, "settings.set", `{"key":"`+key+`","value":"off"}`)
		wantFault(t, err, fault.Rule, "key")
	}
	for _, list := range [][]Key{settableKeys(), readOnly()} {
		for _, k := range list {
			for _, word := range []string{"key", "secret", "token", "url", "listen", "address", "grant", "role", "password", "host", "proxy", "root", "dir"} {
				if strings.Contains(strings.TrimPrefix(string(k), "node."), word) {
					t.Errorf("%s is on a list", k)
				}
			}
		}
	}
}

func TestWhoMay(t *testing.T) {
	r := fresh(t)
	peer := caller.Peer("key", "name")
	for _, c := range []caller.Caller{{}, as(caller.Viewer), as(caller.Member), peer} {
		_, err := call(t, r, c, rpc.Tools, "settings.set", `{"key":"ui.theme","value":"dark"}`)
		wantFault(t, err, fault.Forbidden, "")
	}
	_, err := call(t, r, peer, rpc.Tools, "settings.get", "{}")
	wantFault(t, err, fault.Forbidden, "")
	if r.value(Theme) != fence.Word("auto") {
		t.Error("somebody who may not changed the theme")
	}
}

func TestSetAndPreview(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.db")
	cfg := config(database(t, path))
	var told []string
	cfg.OnChange = func(key string) { told = append(told, key) }
	r := room(t, cfg)
	steps := []struct{ params, before, after, result string }{
		{`{"key":"ui.theme","value":"dark"}`, "auto", "dark", `{"key":"ui.theme","value":"dark","previous":"auto"}`},
		{`{"key":"disk.warn_percent","value":80}`, "90", "80", `{"key":"disk.warn_percent","value":80,"previous":90}`},
		{`{"key":"node.name","value":"Küche 2"}`, "home", "Küche 2", `{"key":"node.name","value":"Küche 2","previous":"home"}`},
		{`{"key":"ui.language","value":"de"}`, "en", "de", `{"key":"ui.language","value":"de","previous":"en"}`},
	}
	for _, s := range steps {
		p, err := gate(r).Prepare(t.Context(), as(caller.Owner), rpc.Tools, "settings.set", jsontext.Value(s.params))
		if err != nil {
			t.Fatal(err)
		}
		pv, err := p.Preview()
		if err != nil || pv.Before != s.before || pv.After != s.after || pv.Target == "" || pv.Fingerprint == "" {
			t.Errorf("preview %+v, %v", pv, err)
		}
		if got, err := call(t, r, as(caller.Owner), rpc.Tools, "settings.set", s.params); err != nil || got != s.result {
			t.Errorf("%s gave %s, %v", s.params, got, err)
		}
	}
	if strings.Join(told, " ") != "ui.theme disk.warn_percent node.name ui.language" {
		t.Errorf("told %v", told)
	}
	r.cfg.DB.Close()
	again := room(t, config(database(t, path)))
	if again.NodeName() != "Küche 2" || again.WarnPercent() != 80 || again.value(Theme) != fence.Word("dark") {
		t.Error("a value was lost over a restart")
	}
	// U1: a name of one word is a fact, one with more is not.
	if isFact(t, again.entries(NodeName)) || !isFact(t, again.entries(Theme)) || !isFact(t, again.entries(DiskWarnPercent)) {
		t.Error("the values are graded wrongly")
	}
	if !isFact(t, fresh(t).entries("")) {
		t.Error("the settings of a fresh node are not facts")
	}
}

func isFact(t *testing.T, entries map[fence.Word]entry) bool {
	t.Helper()
	raw, err := rpc.Marshal(getResult{entries})
	if err != nil {
		t.Fatal(err)
	}
	return !fence.Facts("test", getResult{entries}, string(raw)).IsOutside()
}

// G5, F-E15: digits are exact, and what does not fit is refused at "value" with what was expected. Nothing changes.
func TestBadValues(t *testing.T) {
	r := fresh(t)
	for key, values := range map[string][]string{
		"disk.warn_percent": {"49", "100", "9007199254740993", "90.0", "9e1", "90.5", `"90"`, "-90", "true", "null", "{}", "[90]", "18446744073709551700", "-0"},
		"ui.theme":          {`"Dark"`, `"dark "`, `"blue"`, `""`, "1", "true", "null", `"d\u0430rk"`},
		"ui.language":       {`"EN"`, `"xx"`, `"en-US"`, "7"},
		"node.name": {`""`, `" a"`, `"a "`, `"a\n"`, `"a\u0000"`, `"a\u202eb"`, `"a\u200bb"`, `"\u3164"`, `"\u2800"`, `"a\u00a0b"`, `"\u0301a"`,
			`"a\u0301\u0301\u0301\u0301"`, `"` + strings.Repeat("a", 64) + `"`, "1", "null", `"\u001b[2J"`, `"a\ufe0f"`, `"a\ue000"`, `{"a":1}`},
	} {
		for _, v := range values {
			got, err := call(t, r, as(caller.Owner), rpc.Tools, "settings.set", `{"key":"`+key+`","value":`+v+`}`)
			if got != "" {
				t.Errorf("%s = %s was accepted: %s", key, v, got)
			}
			wantFault(t, err, fault.InvalidParams, "value")
			if f := fault.Of(err); !strings.Contains(f.Public, key) || !strings.Contains(f.Public, "must be") {
				t.Errorf("the words do not say what was expected: %s", f.Public)
			} else if fence.Sentence("settings_set", f.Public, f.Values()...).IsOutside() {
				t.Errorf("the host's own words count as somebody else's: %s", f.Public)
			}
		}
	}
	for params, field := range map[string]string{
		`{"key":"ui.theme"}`: "value", `{"value":"dark"}`: "key", `{"key":1,"value":"dark"}`: "key", `{"key":"ui.theme","value":"dark","mode":"off"}`: "mode",
		`{"key":"ui.theme","Key":"node.name","value":"dark"}`: "Key", `{"key":"ui.theme","value":"dark","value":"light"}`: "value",
	} {
		_, err := call(t, r, as(caller.Owner), rpc.People, "settings.set", params)
		wantFault(t, err, fault.InvalidParams, field)
	}
	if rows := count(t, r.cfg.DB); rows != 0 || r.NodeName() != "home" || r.WarnPercent() != 90 {
		t.Errorf("a refused value left something behind: %d rows", rows)
	}
	for _, good := range []string{"a", "Wohnzimmer", "家のサーバー", "नमस्ते", "O'Brien \"x\" <b>", strings.Repeat("ß", 63), "Zoé"} {
		if !nameable(good) {
			t.Errorf("%q is refused", good)
		}
	}
}

func count(t *testing.T, db *store.DB) (n int) {
	t.Helper()
	if err := db.Reader().QueryRowContext(t.Context(), "SELECT count(*) FROM setting").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A damaged row, or one of a later version, is said, does not count, and is not overwritten.
func TestDamagedRows(t *testing.T) {
	db := database(t, filepath.Join(t.TempDir(), "node.db"))
	err := db.Write(t.Context(), store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO setting VALUES ('disk.warn_percent', '1e2'), ('node.name', '"a'), ('ui.theme', X'00FF'), ('future.key', '1'), ('ui.language', '"de"')`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(db)
	damaged := map[string]bool{}
	cfg.OnDamaged = func(key string, _ error) { damaged[key] = true }
	r := room(t, cfg)
	if r.NodeName() != "home" || r.WarnPercent() != 90 || r.value(Theme) != fence.Word("auto") || r.value(Language) != fence.Word("de") {
		t.Error("a damaged row counts, or a whole one does not")
	}
	if len(damaged) != 3 || !damaged["disk.warn_percent"] || !damaged["node.name"] || !damaged["ui.theme"] {
		t.Errorf("told of %v", damaged)
	}
	if n := count(t, db); n != 5 {
		t.Errorf("%d rows are left", n)
	}
}

func TestAFailedWriteChangesNothing(t *testing.T) {
	r := fresh(t)
	r.cfg.DB.Close()
	_, err := call(t, r, as(caller.Owner), rpc.People, "settings.set", `{"key":"ui.theme","value":"dark"}`)
	wantFault(t, err, fault.Unavailable, "")
	if r.value(Theme) != fence.Word("auto") {
		t.Error("the memory changed without the file")
	}
}

func TestChangesAndReadsTogether(t *testing.T) {
	r := fresh(t)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			if _, err := r.set(t.Context(), DiskWarnPercent, jsontext.Value(strconv.Itoa(50+i))); err != nil {
				t.Error(err)
			}
			_, _ = r.WarnPercent(), r.entries("")
		})
	}
	group.Wait()
	var text string
	if err := r.cfg.DB.Reader().QueryRowContext(t.Context(), "SELECT value FROM setting").Scan(&text); err != nil || text != strconv.Itoa(r.WarnPercent()) {
		t.Errorf("the file has %s, the memory %d, %v", text, r.WarnPercent(), err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := New(t.Context(), Config{}); err == nil {
		t.Error("an empty config was accepted")
	}
	cfg := config(database(t, filepath.Join(t.TempDir(), "node.db")))
	cfg.Name = "a\u202eb"
	if r := room(t, cfg); r.NodeName() != "atoll" {
		t.Error("a hostile host name became the node's name")
	}
}

// Every hostile string of the collection is either refused or stored and given back byte for byte.
func TestHostileNames(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "attacks", "unicode.jsonl"))
	if err != nil {
		t.Skip("the collection of hostile strings is not beside this checkout:", err)
	}
	r := fresh(t)
	for line := range strings.Lines(string(raw)) {
		var c struct {
			ID   string `json:"id"`
			Text string `json:"text"`
			Hex  string `json:"hex"`
		}
		if err := json.Unmarshal([]byte(line), &c, json.RejectUnknownMembers(false)); err != nil {
			t.Fatal(err)
		}
		if b, err := hex.DecodeString(c.Hex); err == nil && len(b) > 0 {
			c.Text = string(b)
		}
		quoted, err := jsontext.AppendQuote(nil, c.Text)
		if err != nil {
			quoted = []byte(`"` + c.Text + `"`)
		}
		if _, err := call(t, r, as(caller.Owner), rpc.Tools, "settings.set", `{"key":"node.name","value":`+string(quoted)+`}`); err != nil {
			if f := fault.Of(err); f.Code != fault.InvalidParams || strings.Contains(f.Public, c.Text) && len(c.Text) > 3 {
				t.Errorf("%s: %v", c.ID, err)
			}
			continue
		}
		if r.NodeName() != c.Text || strings.ContainsAny(c.Text, "\u202e\u2066\u200b\ufeff\x1b\n\x00") {
			t.Errorf("%s: %q became %q", c.ID, c.Text, r.NodeName())
		}
	}
}

func FuzzAccept(f *testing.F) {
	for _, s := range []string{`"dark"`, "90", "9007199254740993", `"\ud800"`, `"\u202e"`, "{", `"`, "", "1e2", "nul", "\"\xff\""} {
		for _, k := range settableKeys() {
			f.Add(string(k), []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, key string, raw []byte) {
		s, v, err := accept(Key(key), jsontext.Value(raw))
		if err != nil {
			if fault.Of(err).Field == "" {
				t.Fatalf("no field: %v", err)
			}
			return
		}
		again, err := s.parse(jsontext.Value(render(v)))
		if err != nil || again != v || !utf8.ValidString(words(v)) {
			t.Fatalf("%q does not survive being stored: %v, %v", raw, again, err)
		}
	})
}
