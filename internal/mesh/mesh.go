// Package mesh knows the other nodes that the owner let in, and what each may ask of this one (M1–M5, A5). Off, it opens
// no socket. It decides nothing about a peer's assistant: that is a turn like any other, with the peer as its caller.
package mesh

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/fault"
	"atoll/internal/limit"
	"atoll/internal/mesh/download"
	"atoll/internal/mesh/link"
	"atoll/internal/store"
)

// Config is what a Room needs. Where Enabled is false only DB, Log, Clock and Key are.
type Config struct {
	DB      *store.DB // has Schema
	Log     *slog.Logger
	Clock   clock.Clock
	Key     ed25519.PrivateKey // the node's; its public part is what peers know this node by (M1)
	Enabled bool
	Name    func() string // what this node calls itself
	Version string

	Listen     []string // multiaddrs; empty means link's default port on all interfaces
	Discover   bool     // find nodes on the local network
	Relays     []string // multiaddrs with /p2p/… of nodes that the owner named
	ServeRelay bool     // carry the connections of this node's peers

	Downloads string // the directory for what is fetched
	Quota     int64  // bytes

	// Categories are what a ceiling can be made of.
	Categories []string
	// Open reports whether the peer's ceiling and the owner's live grants both hold the category (A5).
	Open func(c caller.Caller, category string) bool
	// Status gives what a peer may see of the system; Catalogue and OpenFile what is shared with it.
	Status    func(ctx context.Context, c caller.Caller) (Figures, error)
	Catalogue func(c caller.Caller, after string, n int) (items []Item, more bool, err error)
	OpenFile  func(c caller.Caller, path string) (io.ReadSeekCloser, Item, error)
	// Ask runs a peer's question as a turn of that peer.
	Ask func(ctx context.Context, c caller.Caller, q Question, say func(string) error) (Answer, error)
	// Cancel ends the turns and questions of a peer that may no longer ask.
	Cancel func(peer string)

	// Record writes to the audit in the transaction of the change.
	Record func(ctx context.Context, tx *sql.Tx, e audit.Entry) error
	// Raise tells the owner; the same key is told once until it is acknowledged.
	Raise func(ctx context.Context, n Notice)
	// Changed is told when what mesh.status shows is another. It must not block.
	Changed func()

	// Radio nodes that may ask over a slow radio, by their key in mesh.status; each is a peer like the others.
	Radio []string
	// RadioStatus tells how the radio is; nil where there is none.
	RadioStatus func() RadioState
}

// Notice is what the owner is told.
type Notice struct {
	Security bool
	Key      string
	What, Do string
}

// Item is one file that a node shares.
type Item struct {
	Path     string    `json:"path"`
	Size     int64     `json:"size_bytes"`
	Modified time.Time `json:"modified"`
	SHA256   string    `json:"sha256"`
}

// Figures are what a peer may see of the system: numbers only.
type Figures struct {
	UptimeS       int64   `json:"uptime_s"`
	Load1         float64 `json:"load_1"`
	Processors    int     `json:"processors"`
	MemoryPercent float64 `json:"memory_percent"`
	DiskPercent   float64 `json:"disk_percent"` // of the fullest disk
	DiskFree      int64   `json:"disk_free_bytes"`
}

// Question is a peer's question. An empty Conversation begins one.
type Question struct {
	Conversation string `json:"conversation,omitzero"`
	Text         string `json:"text"`
}

// Answer is what goes back to a peer beside the text that was streamed.
type Answer struct {
	Conversation string `json:"conversation"`
}

// Room holds the peers. It is safe for concurrent use.
type Room struct {
	cfg       Config
	self      string // this node's key
	run       runID
	host      *link.Host
	downloads *download.Store
	bursts    *limit.Limiter // refusals a peer that are worth a notice

	mu         sync.RWMutex     // guards the rest
	peers      map[string]*peer // a peer is replaced, never changed
	invites    map[[32]byte]*invitation
	expected   map[string]int // nodes that this one is about to ask to pair
	generation uint64
	held       bool

	wake    chan string   // a peer that may be reachable now
	found   chan sighting // nodes of the local network
	keeping singleflight.Group
}

// New reads the peers and, where the mesh is on, makes the node's host. Start has it listen, Run keeps in touch with the
// peers, Close ends it.
func New(ctx context.Context, cfg Config) (*Room, error) {
	if cfg.DB == nil || cfg.Log == nil || len(cfg.Key) != ed25519.PrivateKeySize {
		return nil, errors.New("mesh: a database, a log and the node's key are needed")
	}
	r := &Room{cfg: cfg, self: link.KeyOf(cfg.Key.Public().(ed25519.PublicKey)), peers: map[string]*peer{},
		invites: map[[32]byte]*invitation{}, expected: map[string]int{}, wake: make(chan string, 64), found: make(chan sighting, 64)}
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	if !cfg.Enabled {
		return r, nil
	}
	if err := r.begin(ctx); err != nil {
		return nil, fmt.Errorf("mesh: %w", err)
	}
	return r, r.open()
}

func (r *Room) open() (err error) {
	c := r.cfg
	if c.Name == nil || c.Open == nil || c.Status == nil || c.Catalogue == nil || c.OpenFile == nil || c.Ask == nil || c.Cancel == nil ||
		c.Record == nil || c.Raise == nil || c.Changed == nil {
		return errors.New("mesh: the Config is not complete")
	}
	if r.bursts, err = limit.New(limit.Config{Max: 1000, Soft: burst, Window: burstWindow, MaxKeys: maxPeers + 1, Now: r.monotonic}); err != nil {
		return err
	}
	if r.downloads, err = download.New(download.Config{Dir: c.Downloads, Quota: c.Quota, Now: c.Clock.Now}); err != nil {
		return err
	}
	r.host, err = link.New(link.Config{Key: c.Key, Listen: c.Listen, Discover: c.Discover, Relays: c.Relays, ServeRelay: c.ServeRelay,
		Standing: r.standing, OnPeer: r.onPeer, OnFound: r.onFound, OnRefused: r.onRefused, Protocols: r.protocols(), Log: c.Log, Now: r.monotonic})
	if err != nil {
		return errors.Join(err, r.downloads.Close())
	}
	return nil
}

// monotonic is the clock that cannot be set, for limits.
func (r *Room) monotonic() time.Time { return time.Time{}.Add(r.cfg.Clock.Mono()) }

// Start has the node listen for others, once all that they can ask for is there.
func (r *Room) Start() error {
	if r.host == nil {
		return nil
	}
	return r.host.Start()
}

// Enabled reports whether the mesh is on.
func (r *Room) Enabled() bool { return r.host != nil }

// Close ends all connections and waits for what runs.
func (r *Room) Close() error {
	if r.host == nil {
		return nil
	}
	return errors.Join(r.host.Close(), r.downloads.Close())
}

// off is the answer of rows that need the mesh.
func (r *Room) off() error {
	if r.host == nil {
		return fault.New(fault.NotConfigured, "the mesh is off; set [mesh] enabled = true in config.toml, or ATOLL_MESH_ENABLED=1, and start the node again")
	}
	return nil
}

// caller is the peer as who asks. Nobody but a node whose key was verified gets here (A5).
func (r *Room) caller(key string) caller.Caller {
	name := ""
	if p := r.peer(key); p != nil {
		name = p.name
	}
	return caller.Peer(key, name)
}

// Alive reports whether the peer may still ask: paired, not blocked, and nothing is held.
func (r *Room) Alive(key string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	p := r.peers[key]
	return p != nil && p.state == paired && !r.held
}

// Ceiling is what the owner allowed the peer: nothing unless it is paired (A5).
func (r *Room) Ceiling(key string) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	p := r.peers[key]
	if p == nil || p.state != paired || r.held {
		return nil
	}
	return p.ceiling.Categories
}

// Folders are the folders of the shared content that the peer may see; "" is all of it.
func (r *Room) Folders(key string) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	p := r.peers[key]
	if p == nil || p.state != paired || r.held || !slices.Contains(p.ceiling.Categories, contentCategory) {
		return nil
	}
	return p.ceiling.Folders
}

// shares reports whether the peer may have a file of the shared content, by its path.
func (r *Room) shares(key, path string) bool {
	return slices.ContainsFunc(r.Folders(key), func(f string) bool { return f == "" || path == f || strings.HasPrefix(path, f+"/") })
}

// Asking reports whether the owner wants to be asked about the peer's destructive requests (M3).
func (r *Room) Asking(key string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	p := r.peers[key]
	return p != nil && p.state == paired && !r.held && p.ceiling.Asking
}

// standing is the host's question at every connection and every stream.
func (r *Room) standing(key string) link.Standing {
	r.mu.RLock()
	defer r.mu.RUnlock()
	switch p := r.peers[key]; {
	case p != nil && p.state == paired:
		return link.Known
	case p != nil && p.state == asking, p == nil && (r.expected[key] > 0 || r.invitingLocked()):
		return link.Guest
	}
	return link.Stranger
}
