package mesh

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/fault"
	"atoll/internal/mesh/invite"
	"atoll/internal/mesh/link"
	"atoll/internal/rpc"
	"atoll/internal/store"
)

// messages are one of each kind that other nodes send, as seeds.
func messages(signed []byte) map[byte]any {
	sum := sha256.Sum256(nil)
	return map[byte]any{
		'h': hello{Name: "birch", Version: "1", Addrs: []string{"/ip4/192.168.1.7/tcp/8421"}, Admits: true, Statement: signed, Yours: signed},
		'p': pairAsk{Secret: hex.EncodeToString(make([]byte, invite.SecretSize)), Name: "birch", Addrs: []string{"/ip4/1.2.3.4/tcp/1"}},
		'r': pairReply{State: paired, Name: "birch"},
		's': Figures{UptimeS: 7200, Load1: 0.5, Processors: 4, MemoryPercent: 30, DiskPercent: 40, DiskFree: 1 << 30},
		'c': cataloguePage{Items: []Item{{Path: "films/a", Size: 3, SHA256: hex.EncodeToString(sum[:]), Modified: time.UnixMilli(1e12)}}, More: true},
		'q': Question{Conversation: "c1", Text: "how full is the disk?"},
	}
}

// fuzzed is a room without a network that knows one peer, and what the peer may never change.
type fuzzed struct {
	*Room
	peerKey string
	private ed25519.PrivateKey // the peer's
}

func newFuzzed(t testing.TB) *fuzzed {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "node.db"), Schemas: []store.Schema{Schema()}})
	if err != nil {
		t.Fatal(err)
	}
	own, theirs := sha256.Sum256([]byte("alder")), sha256.Sum256([]byte("birch"))
	private := ed25519.NewKeyFromSeed(theirs[:])
	r, err := New(t.Context(), Config{DB: db, Log: slog.New(slog.DiscardHandler), Key: ed25519.NewKeyFromSeed(own[:]), Clock: clock.Real(), Enabled: true,
		Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Downloads: filepath.Join(t.TempDir(), "downloads"), Quota: 1 << 20,
		Name: func() string { return "alder" }, Open: func(caller.Caller, string) bool { return false }, Cancel: func(string) {}, Changed: func() {},
		Status:    func(context.Context, caller.Caller) (Figures, error) { return Figures{}, nil },
		Catalogue: (&house{}).giveCatalogue, OpenFile: (&house{}).giveFile, Ask: (&house{}).ask,
		Record: func(context.Context, *sql.Tx, audit.Entry) error { return nil }, Raise: func(context.Context, Notice) {}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), db.Close() })
	return &fuzzed{r, link.KeyOf(private.Public().(ed25519.PublicKey)), private}
}

// signed is the peer's own statement of a generation.
func (f *fuzzed) signed() []byte {
	return statement{runID{1}, 7}.signed(f.private)
}

// reset forgets what was heard, in memory and on the disk.
func (f *fuzzed) reset(t *testing.T) {
	t.Helper()
	p := &peer{key: f.peerKey, state: paired, name: "birch", since: time.UnixMilli(1e12), ceiling: Ceiling{Categories: []string{"system"}, Folders: []string{"films"}}}
	f.Room.mu.Lock()
	defer f.Room.mu.Unlock()
	f.peers, f.invites = map[string]*peer{p.key: p}, map[[sha256.Size]byte]*invitation{}
	err := f.cfg.DB.Write(t.Context(), store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(putPeer(ctx, tx, p.key, p), deleteItems(p.key)(ctx, tx))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// kinds are the messages: hello, pairing and its reply, state, a page of the catalogue, a question.
const kinds = "hprscq"

// FuzzMessage: whatever a peer puts into a message, it changes what the peer says about itself and nothing else: no trust,
// no ceiling, no generation, no other peer. What is kept is bounded, can be shown, and is there after a restart (M1, M4, A5).
func FuzzMessage(f *testing.F) {
	room := newFuzzed(f)
	for kind, m := range messages(room.signed()) {
		raw, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(strings.IndexByte(kinds, kind)), raw)
	}
	f.Add(byte(0), []byte(`{"name":"`+strings.Repeat("é", 100)+`\u0000\u202e","version":"x","addrs":["/unix/etc","/dns4/x/tcp/1"],"admits":false,"statement":"AAAA"}`))
	f.Add(byte(3), []byte(`{"uptime_s":-1,"load_1":1e308,"processors":0,"memory_percent":0,"disk_percent":0,"disk_free_bytes":0}`))
	f.Add(byte(4), []byte(`{"items":[{"path":"../x","size_bytes":9223372036854775807,"modified":"0000-01-01T00:00:00Z","sha256":"zz"}]}`))
	f.Fuzz(func(t *testing.T, kind byte, raw []byte) {
		room.reset(t)
		kind = kinds[int(kind)%len(kinds)]
		generation, held := room.generation, room.held
		room.hears(t, kind, raw)
		if room.generation != generation || room.held != held || len(room.peers) != 1 || len(room.invites) != 0 {
			t.Fatalf("%c %q changed more than the peer's own words", kind, raw)
		}
		p := room.peer(room.peerKey)
		if p == nil || p.state != paired || p.label != "" || p.ceiling.Asking || !slices.Equal(p.ceiling.Categories, []string{"system"}) || !slices.Equal(p.ceiling.Folders, []string{"films"}) {
			t.Fatalf("%c %q changed its own standing: %+v", kind, raw, p)
		}
		if _, ok := readStatement(room.private.Public().(ed25519.PublicKey), p.statement); !ok && p.statement != nil {
			t.Fatalf("%q left a statement that it did not sign", raw)
		}
		for _, s := range []string{p.name, p.version} {
			if !utf8.ValidString(s) || utf8.RuneCountInString(s) > maxName {
				t.Fatalf("%q is kept", s)
			}
		}
		if len(p.addrs) > maxAddrs || slices.ContainsFunc(p.addrs, func(a string) bool { return link.CheckAddr(a) != nil }) {
			t.Fatalf("%q is kept", p.addrs)
		}
		shown, err := rpc.Marshal(room.shown(p))
		if err != nil || len(shown) > 16<<10 {
			t.Fatalf("%c %q cannot be shown: %d bytes, %v", kind, raw, len(shown), err)
		}
		again := &Room{cfg: room.cfg, self: room.self, peers: map[string]*peer{}, invites: map[[32]byte]*invitation{}}
		if err := again.load(t.Context()); err != nil {
			t.Fatalf("%c %q: the node does not start again: %v", kind, raw, err)
		}
		if kept := again.peers[p.key]; kept != nil && (kept.name != p.name || !slices.Equal(kept.addrs, p.addrs)) {
			t.Fatalf("%+v is kept as %+v", p, kept)
		}
	})
}

// hears takes one message as the protocols do, after the same strict reading.
func (f *fuzzed) hears(t *testing.T, kind byte, raw []byte) {
	t.Helper()
	ctx := t.Context()
	read := func(v any) bool { return json.Unmarshal(raw, v, json.RejectUnknownMembers(true)) == nil }
	switch kind {
	case 'h':
		var h hello
		if read(&h) {
			f.heard(ctx, f.peerKey, h)
		}
	case 'p':
		var ask pairAsk
		if !read(&ask) {
			return
		}
		if secret, err := hex.DecodeString(ask.Secret); err == nil {
			if _, err := f.used(ctx, "a stranger", sha256.Sum256(secret), ask); !fault.Is(err, fault.Forbidden) {
				t.Errorf("%q: %v", raw, err)
			}
		}
	case 'r':
		var reply pairReply
		if read(&reply) && reply.State != asking && reply.State != paired {
			if _, err := f.accepted(ctx, owner, f.peerKey, "", nil, reply); err == nil {
				t.Errorf("%q was taken for an answer", raw)
			}
		}
	case 's':
		var v Figures
		if read(&v) && v.plausible() {
			f.Room.mu.Lock()
			next := f.peers[f.peerKey].clone()
			next.figures = &v
			f.peers[f.peerKey] = next
			f.Room.mu.Unlock()
		}
	case 'c':
		f.hearsPage(t, read)
	case 'q':
		var q Question
		if read(&q) && checkQuestion(q.Text) == nil && (strings.TrimSpace(q.Text) == "" || len(q.Text) > maxQuestion) {
			t.Errorf("%q is a question", raw)
		}
	}
}

func (f *fuzzed) hearsPage(t *testing.T, read func(any) bool) {
	t.Helper()
	var page cataloguePage
	if !read(&page) {
		return
	}
	var good []Item
	for _, i := range page.Items {
		if goodItem(i) && !slices.ContainsFunc(good, func(o Item) bool { return o.Path == i.Path }) {
			good = append(good, i)
		}
	}
	if err := f.keepCatalogue(t.Context(), f.peerKey, good, false); err != nil {
		t.Fatalf("%+v cannot be kept: %v", good, err)
	}
	l, err := f.Received(t.Context(), f.peerKey, "", 1000)
	if err != nil || l.Total != len(good) || l.Bytes < 0 {
		t.Fatalf("%+v is listed as %+v, %v", good, l, err)
	}
	if _, err := rpc.Marshal(l); err != nil {
		t.Fatalf("%+v cannot be shown: %v", l, err)
	}
}
