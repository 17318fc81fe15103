package mesh

import (
	"context"
	"database/sql"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"atoll/internal/caller"
	"atoll/internal/mesh/invite"
	"atoll/internal/mesh/link"
	"atoll/internal/rpc"

	ma "github.com/multiformats/go-multiaddr"
)

// Status is the result of mesh.status. Enabled is what runs.
type Status struct {
	Enabled   bool     `json:"enabled"`
	Name      string   `json:"name,omitzero"`
	Key       string   `json:"key"`
	KeyWords  []string `json:"key_words"`
	Addresses []string `json:"addresses,omitzero"`
	Peers     []Peer   `json:"peers"`
	Invites   int      `json:"invites,omitzero"` // open ones
	// Held says that no peer gets anything until the owner has looked (mesh.resume).
	Held  bool        `json:"held,omitzero"`
	Radio *RadioState `json:"radio,omitzero"`
	Note  string      `json:"note,omitzero"`
}

// RadioState is how the slow radio is.
type RadioState struct {
	Connected bool  `json:"connected"`
	UsedMS    int64 `json:"airtime_used_ms"` // within the last hour
	LimitMS   int64 `json:"airtime_limit_ms"`
}

// Peer is another node as people see it. Its name is its own word for itself: untrusted text (M4).
type Peer struct {
	Key        string    `json:"key"`
	KeyWords   string    `json:"key_words,omitzero"`
	Name       string    `json:"name"`
	Label      string    `json:"label,omitzero"`
	State      State     `json:"state"`
	Authorized bool      `json:"authorized"`
	Online     bool      `json:"online"`
	Relayed    bool      `json:"relayed,omitzero"` // online by a relay only
	Admits     bool      `json:"admits"`           // it lets this node in, as it last said
	Radio      bool      `json:"radio,omitzero"`
	Since      time.Time `json:"since"`
	LastSeen   time.Time `json:"last_seen,omitzero"`
	Version    string    `json:"version,omitzero"`
	Status     string    `json:"status,omitzero"` // its figures in this node's words
	Figures    *Figures  `json:"figures,omitzero"`
	Shares     shared    `json:"shares"`
	Ceiling    Ceiling   `json:"ceiling"`
}

// Fit leaves out peers where a model could not read so many.
func (s Status) Fit(int) any {
	const most = 20
	if len(s.Peers) > most {
		s.Note = strings.TrimSpace(s.Note + fmt.Sprintf(" Only %d of %d peers are listed here.", most, len(s.Peers)))
		s.Peers = s.Peers[:most]
	}
	return s
}

func (r *Room) statusMethod() rpc.Method {
	return rpc.Spec[rpc.None, Status]{
		Row: rpc.Row{Name: "mesh.status", Summary: "Tells which other nodes this one knows and sees.", Effect: rpc.Read,
			Doors: rpc.People | rpc.Tools | rpc.Peers, Role: caller.Viewer},
		Handle: func(_ context.Context, c caller.Caller, _ rpc.None) (Status, error) { return r.status(c), nil },
	}.Method()
}

func (r *Room) status(c caller.Caller) Status {
	pub, _ := link.PublicKey(r.self) // it was made from a key
	s := Status{Enabled: r.host != nil, Key: r.self, KeyWords: invite.KeyWords(pub), Peers: []Peer{}}
	if r.host == nil {
		return s
	}
	s.Name = plainName(r.cfg.Name())
	if c.IsPeer() { // whom else this node knows is nobody else's business
		if p := r.peer(c.PeerKey()); p != nil {
			s.Peers = append(s.Peers, Peer{Key: p.key, Name: p.name, State: p.state, Authorized: p.state == paired, Online: true, Since: p.since})
		}
		return s
	}
	s.Addresses, s.Peers = r.host.Addrs(), r.shownPeers()
	if !c.May(caller.Owner) {
		s.Addresses = nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, i := range r.invites {
		if i.usedBy == "" && !i.span.Over(r.cfg.Clock) {
			s.Invites++
		}
	}
	if s.Held = r.held; s.Held {
		s.Note = "Peers get nothing until the owner has looked through them (atoll mesh resume)."
	}
	if r.cfg.RadioStatus != nil {
		state := r.cfg.RadioStatus()
		s.Radio = &state
	}
	return s
}

func (r *Room) shownPeers() []Peer {
	out := []Peer{}
	for _, p := range r.snapshot() {
		out = append(out, r.shown(p))
	}
	return out
}

func (r *Room) shown(p *peer) Peer {
	out := Peer{Key: p.key, KeyWords: words(p.key), Name: p.name, Label: p.label, State: p.state, Authorized: p.state == paired, Admits: p.admits,
		Radio: r.isRadio(p.key), Since: p.since, Version: p.version, Figures: p.figures, Shares: p.shared, Ceiling: p.ceiling}
	out.Ceiling.Categories, out.Ceiling.Folders = append([]string{}, p.ceiling.Categories...), append([]string{}, p.ceiling.Folders...)
	if p.seen.UnixMilli() > 0 {
		out.LastSeen = p.seen
	}
	out.Online, out.Relayed = r.host.Online(p.key), r.host.Relayed(p.key)
	if f := p.figures; f != nil {
		out.Status = fmt.Sprintf("up %s, disk %.0f %% full, memory %.0f %% used", (time.Duration(f.UptimeS) * time.Second).Round(time.Minute), f.DiskPercent, f.MemoryPercent)
	}
	return out
}

// isRadio reports whether the peer is a node of the slow radio.
func (r *Room) isRadio(key string) bool { return slices.Contains(r.cfg.Radio, key) }

// inviteAddrs picks addresses for an invite: public ones first, none of this machine alone, few of a kind.
func inviteAddrs(addrs []string) []string {
	const most = 4
	var public, private []string
	for _, a := range addrs {
		m, err := ma.NewMultiaddr(a)
		if err != nil {
			continue
		}
		at := private
		if ip, err := netip.ParseAddr(first(m)); err != nil || !ip.IsPrivate() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			public = append(public, a)
			continue
		}
		private = append(at, a)
	}
	return append([]string{}, append(public, private...)[:min(most, len(public)+len(private))]...)
}

// first is the value of an address's first part.
func first(m ma.Multiaddr) string {
	head, _ := ma.SplitFirst(m)
	if head == nil {
		return ""
	}
	return head.Value()
}

func keyOf(v invite.Invite) string {
	if len(v.Key) == 0 {
		return ""
	}
	return link.KeyOf(v.Key)
}

func deleteItems(key string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM mesh_item WHERE peer = ?", key)
		return err
	}
}
