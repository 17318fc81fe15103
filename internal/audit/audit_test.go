package audit

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"atoll/internal/store"
)

type chain struct {
	t   *testing.T
	log *Log
	db  *store.DB
	pub ed25519.PublicKey
	key ed25519.PrivateKey
}

func newChain(t *testing.T, n int) *chain {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "node.db"), Schemas: []store.Schema{Schema()}, Readers: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c := &chain{t: t, db: db}
	c.pub, c.key, _ = ed25519.GenerateKey(nil)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c.log, err = New(Config{DB: db, Key: c.key, Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		e := Entry{Kind: "tool", Event: "intent", Caller: "operator:ada", Session: "s1", Subject: "app_stop", ActionKey: strings.Repeat("ab", 32),
			Args: `{"app":"jellyfin"}`, Code: "c", Outcome: "done", Detail: fmt.Sprintf("<%d> ünï\u2028", i), Untrusted: i%2 == 0}
		if err := c.log.Append(t.Context(), store.Relaxed, e); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *chain) verify(head string) Report {
	c.t.Helper()
	rep, err := c.log.Verify(c.t.Context(), c.pub, head)
	if err != nil {
		c.t.Fatal(err)
	}
	return rep
}

func (c *chain) sql(query string, args ...any) {
	c.t.Helper()
	err := c.db.Write(c.t.Context(), store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// forge writes a record's text anew with a hash that fits it and a signature of another key.
func (c *chain) forge(seq int64, body string) {
	c.t.Helper()
	_, other, _ := ed25519.GenerateKey(nil)
	hash := sha256.Sum256([]byte(body))
	c.sql("INSERT OR REPLACE INTO audit (seq, body, hash, sig) VALUES (?, ?, ?, ?)", seq, body, hash[:], ed25519.Sign(other, signed(hash)))
}

func (c *chain) body(seq int64) string {
	c.t.Helper()
	var body string
	if err := c.db.Reader().QueryRow("SELECT body FROM audit WHERE seq = ?", seq).Scan(&body); err != nil {
		c.t.Fatal(err)
	}
	return body
}

// N2: a whole chain verifies, with its head and with any earlier one, and the empty chain too.
func TestVerifyWhole(t *testing.T) {
	c := newChain(t, 5)
	rep := c.verify("")
	if !rep.OK || rep.Records != 5 || rep.Broken != 0 || rep.HeadAt.IsZero() {
		t.Fatalf("%+v", rep)
	}
	list, err := c.log.List(t.Context(), Filter{})
	if err != nil || len(list) != 5 || list[0].Hash != rep.Head || list[0].Seq != 5 {
		t.Fatalf("%v %v", list, err)
	}
	for _, r := range list {
		if got := c.verify(r.Hash); !got.OK {
			t.Errorf("with the head of record %d: %+v", r.Seq, got)
		}
	}
	if got := c.verify(strings.ToUpper(rep.Head)); !got.OK {
		t.Errorf("a head in capitals: %+v", got)
	}
	if got := newChain(t, 0).verify(""); !got.OK || got.Records != 0 || got.Head != "" {
		t.Errorf("empty: %+v", got)
	}
}

// N2: the first broken or missing record is named, whatever was done to it.
func TestVerifyBroken(t *testing.T) {
	for name, tc := range map[string]struct {
		broken int64
		harm   func(c *chain)
	}{
		"text":            {3, func(c *chain) { c.sql("UPDATE audit SET body = replace(body, 'done', 'gone') WHERE seq = 3") }},
		"one letter":      {3, func(c *chain) { c.sql("UPDATE audit SET body = body || ' ' WHERE seq = 3") }},
		"text emptied":    {3, func(c *chain) { c.sql("UPDATE audit SET body = '' WHERE seq = 3") }},
		"text a number":   {3, func(c *chain) { c.sql("UPDATE audit SET body = 7 WHERE seq = 3") }},
		"text a blob":     {3, func(c *chain) { c.sql("UPDATE audit SET body = x'00ff' WHERE seq = 3") }},
		"hash":            {3, func(c *chain) { c.sql("UPDATE audit SET hash = zeroblob(32) WHERE seq = 3") }},
		"hash cut":        {3, func(c *chain) { c.sql("UPDATE audit SET hash = substr(hash, 1, 31) WHERE seq = 3") }},
		"hash empty":      {3, func(c *chain) { c.sql("UPDATE audit SET hash = x'' WHERE seq = 3") }},
		"signature":       {3, func(c *chain) { c.sql("UPDATE audit SET sig = zeroblob(64) WHERE seq = 3") }},
		"signature empty": {3, func(c *chain) { c.sql("UPDATE audit SET sig = x'' WHERE seq = 3") }},
		"another's":       {3, func(c *chain) { c.sql("UPDATE audit SET sig = (SELECT sig FROM audit WHERE seq = 2) WHERE seq = 3") }},
		"first deleted":   {1, func(c *chain) { c.sql("DELETE FROM audit WHERE seq = 1") }},
		"one deleted":     {3, func(c *chain) { c.sql("DELETE FROM audit WHERE seq = 3") }},
		"deleted, moved up": {3, func(c *chain) {
			c.sql("DELETE FROM audit WHERE seq = 3")
			c.sql("UPDATE audit SET seq = seq - 1 WHERE seq > 3")
		}},
		"renumbered":       {5, func(c *chain) { c.sql("UPDATE audit SET seq = 99 WHERE seq = 5") }},
		"before the first": {1, func(c *chain) { c.sql("UPDATE audit SET seq = -1 WHERE seq = 1") }},
		"two exchanged": {2, func(c *chain) {
			c.sql("UPDATE audit SET seq = 99 WHERE seq = 2")
			c.sql("UPDATE audit SET seq = 2 WHERE seq = 3")
			c.sql("UPDATE audit SET seq = 3 WHERE seq = 99")
		}},
		"one repeated":         {6, func(c *chain) { c.sql("INSERT INTO audit SELECT 6, body, hash, sig FROM audit WHERE seq = 5") }},
		"forged in the middle": {3, func(c *chain) { c.forge(3, strings.Replace(c.body(3), "app_stop", "app_list", 1)) }},
		"forged at the end":    {6, func(c *chain) { c.forge(6, strings.Replace(c.body(5), `"seq":5`, `"seq":6`, 1)) }},
		"forged with its link": {6, func(c *chain) {
			body := strings.Replace(c.body(5), `"seq":5`, `"seq":6`, 1)
			sum := sha256.Sum256([]byte(c.body(5)))
			prev := strings.Index(body, `"prev":"`) + len(`"prev":"`)
			c.forge(6, body[:prev]+hex.EncodeToString(sum[:])+body[prev+64:])
		}},
		"no JSON":    {3, func(c *chain) { c.forge(3, "hello") }},
		"old format": {3, func(c *chain) { c.forge(3, "{}") }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChain(t, 5)
			tc.harm(c)
			if rep := c.verify(""); rep.OK || rep.Broken != tc.broken || rep.Problem == "" {
				t.Errorf("%+v, want %d to be named", rep, tc.broken)
			}
			// The next records do not heal it.
			if err := c.log.Append(t.Context(), store.Relaxed, Entry{Kind: "x"}); err == nil {
				if rep := c.verify(""); rep.OK || rep.Broken != tc.broken {
					t.Errorf("after one more: %+v", rep)
				}
			}
		})
	}
}

// Every text field of a record is under the hash: a change of any one is found.
func TestEveryFieldCounts(t *testing.T) {
	c := newChain(t, 1)
	body := c.body(1)
	var rec Record
	if err := json.Unmarshal([]byte(body), &rec); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*Record){
		func(r *Record) { r.Seq++ }, func(r *Record) { r.At = r.At.Add(time.Nanosecond) }, func(r *Record) { r.Prev = "00" },
		func(r *Record) { r.Kind = "x" }, func(r *Record) { r.Event = "x" }, func(r *Record) { r.Caller = "x" }, func(r *Record) { r.Session = "" },
		func(r *Record) { r.Subject = "x" }, func(r *Record) { r.ActionKey = "" }, func(r *Record) { r.Args = "{}" }, func(r *Record) { r.Code = "x" },
		func(r *Record) { r.Outcome = "x" }, func(r *Record) { r.Detail = "" }, func(r *Record) { r.Untrusted = !r.Untrusted },
	} {
		other := rec
		change(&other)
		text, err := json.Marshal(other)
		if err != nil || string(text) == body {
			t.Fatalf("no change in %s: %v", text, err)
		}
		c.sql("UPDATE audit SET body = ? WHERE seq = 1", string(text))
		if rep := c.verify(""); rep.OK || rep.Broken != 1 {
			t.Errorf("%s verifies", text)
		}
	}
	c.sql("UPDATE audit SET body = ? WHERE seq = 1", body)
	if rep := c.verify(""); !rep.OK {
		t.Errorf("put back: %+v", rep)
	}
}

// N2: a head kept elsewhere shows that the end was cut off, or that the whole record was replaced.
func TestHead(t *testing.T) {
	c := newChain(t, 5)
	head := c.verify("").Head
	for _, wrong := range []string{strings.Repeat("0", 64), "x", head[:63], head + "0"} {
		if rep := c.verify(wrong); rep.OK || rep.Broken != 6 {
			t.Errorf("head %q: %+v", wrong, rep)
		}
	}
	c.sql("DELETE FROM audit WHERE seq = 5")
	if rep := c.verify(""); !rep.OK {
		t.Errorf("without a head a cut end cannot show: %+v", rep)
	}
	if rep := c.verify(head); rep.OK || rep.Broken != 5 || rep.Problem == "" {
		t.Errorf("cut: %+v", rep)
	}
	if err := c.log.Append(t.Context(), store.Durable, Entry{Kind: "tool", Detail: "in its place"}); err != nil {
		t.Fatal(err)
	}
	if rep := c.verify(head); rep.OK {
		t.Errorf("replaced: %+v", rep)
	}
	c.sql("DELETE FROM audit")
	if rep := c.verify(head); rep.OK || rep.Broken != 1 || rep.Records != 0 {
		t.Errorf("emptied: %+v", rep)
	}
}

// Another node's key verifies nothing, and none at all is an error and no panic.
func TestForeignKey(t *testing.T) {
	c := newChain(t, 2)
	other, _, _ := ed25519.GenerateKey(nil)
	if rep, err := c.log.Verify(t.Context(), other, ""); err != nil || rep.OK || rep.Broken != 1 {
		t.Errorf("%+v, %v", rep, err)
	}
	for _, pub := range []ed25519.PublicKey{nil, other[:31], append(other[:32:32], 0)} {
		if rep, err := c.log.Verify(t.Context(), pub, ""); err == nil {
			t.Errorf("a key of %d bytes: %+v", len(pub), rep)
		}
	}
}

// Whoever may only read cannot write, and is told so.
func TestReadOnly(t *testing.T) {
	c := newChain(t, 1)
	reader, err := New(Config{DB: c.db, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Append(t.Context(), store.Relaxed, Entry{Kind: "x"}); err == nil {
		t.Error("written without a key")
	}
	if rep, err := reader.Verify(t.Context(), c.pub, ""); err != nil || !rep.OK || rep.Records != 1 {
		t.Errorf("%+v, %v", rep, err)
	}
	for _, cfg := range []Config{{}, {DB: c.db}, {Now: time.Now}, {DB: c.db, Now: time.Now, Key: c.key[:10]}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("made from %+v", cfg)
		}
	}
}

// A record is there together with what it speaks of, or neither is.
func TestAppendTx(t *testing.T) {
	c := newChain(t, 1)
	no := errors.New("no")
	err := c.db.Write(t.Context(), store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		for range 3 {
			if err := c.log.AppendTx(ctx, tx, Entry{Kind: "tool"}); err != nil {
				return err
			}
		}
		return no
	})
	if rep := c.verify(""); !errors.Is(err, no) || rep.Records != 1 || !rep.OK {
		t.Errorf("%+v, %v", rep, err)
	}
	err = c.log.Append(t.Context(), store.Relaxed, Entry{Kind: "tool", Detail: "a\xffb"})
	if rep := c.verify(""); !rep.OK || err == nil && rep.Records != 2 || err != nil && rep.Records != 1 {
		t.Errorf("bytes that are no text: %+v, %v", rep, err)
	}
}

// Concurrent appends make one chain.
func TestConcurrentAppends(t *testing.T) {
	c := newChain(t, 0)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 10 {
				if err := c.log.Append(t.Context(), store.Durability(i == 0), Entry{Kind: "tool", Caller: fmt.Sprint(w)}); err != nil {
					t.Error(err)
				}
				if _, err := c.log.List(t.Context(), Filter{Limit: 3}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if rep := c.verify(""); !rep.OK || rep.Records != 80 {
		t.Errorf("%+v", rep)
	}
}

// What is exported, whole or in pages, is byte for byte what was hashed.
func TestExport(t *testing.T) {
	c := newChain(t, 7)
	var all bytes.Buffer
	if err := c.log.Export(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(all.String(), "\n"), "\n")
	list, err := c.log.List(t.Context(), Filter{})
	if err != nil || len(lines) != 7 || len(list) != 7 {
		t.Fatalf("%d lines, %d records, %v", len(lines), len(list), err)
	}
	for i, line := range lines {
		if sum := sha256.Sum256([]byte(line)); hex.EncodeToString(sum[:]) != list[6-i].Hash {
			t.Errorf("line %d is not what was hashed: %s", i+1, line)
		}
	}
	for limit := range 9 {
		var paged []string
		for after, first := int64(0), true; first || after != 0; first = false {
			part, next, err := c.log.Page(t.Context(), after, limit)
			if err != nil || next != 0 && next <= after || limit > 0 && len(part) > limit {
				t.Fatalf("page after %d of %d: %d lines, next %d, %v", after, limit, len(part), next, err)
			}
			paged, after = append(paged, part...), next
		}
		if strings.Join(paged, "\n")+"\n" != all.String() {
			t.Errorf("in pages of %d it reads otherwise", limit)
		}
	}
	full := errors.New("full")
	if err := c.log.Export(t.Context(), failing{full}); !errors.Is(err, full) {
		t.Errorf("into a full disk: %v", err)
	}
	if err := c.log.Append(t.Context(), store.Relaxed, Entry{Kind: "x"}); err != nil {
		t.Errorf("after a failed export: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestList(t *testing.T) {
	c := newChain(t, 3)
	if err := c.log.Append(t.Context(), store.Relaxed, Entry{Kind: "grant", Event: "open", Caller: "x' OR '1'='1"}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		f    Filter
		want string
	}{{Filter{}, "4321"}, {Filter{Limit: 2}, "43"}, {Filter{Before: 3}, "21"}, {Filter{Kind: "grant"}, "4"}, {Filter{Kind: "tool", Before: 3, Limit: 1}, "2"},
		{Filter{Kind: "x' OR 1=1 --"}, ""}, {Filter{Limit: -5}, "4321"}, {Filter{Before: 1}, ""}} {
		list, err := c.log.List(t.Context(), tc.f)
		got := ""
		for _, r := range list {
			got += fmt.Sprint(r.Seq)
		}
		if err != nil || got != tc.want || list == nil {
			t.Errorf("%+v: %q, %v", tc.f, got, err)
		}
	}
}
