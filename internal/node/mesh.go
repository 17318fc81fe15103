package node

import (
	"context"
	"database/sql"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"

	"atoll/internal/assistant"
	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/content"
	"atoll/internal/event"
	"atoll/internal/fault"
	"atoll/internal/grant"
	"atoll/internal/mesh"
	"atoll/internal/mesh/radio"
	"atoll/internal/model"
	"atoll/internal/model/local"
	"atoll/internal/notice"
	"atoll/internal/rpc"
)

// openMesh opens the room of the peers. It listens once the rest is built, which it asks through n.
func (n *Node) openMesh(ctx context.Context) (err error) {
	s, m := n.cfg.Settings, n.cfg.Settings.Mesh
	cfg := mesh.Config{DB: n.db, Log: n.cfg.Log, Clock: n.cfg.Clock, Key: n.key, Enabled: m.Enabled, Name: n.settings.NodeName, Version: n.cfg.Version,
		Listen: m.Listen, Discover: m.Discover, Relays: m.Relays, ServeRelay: m.Relay, Downloads: n.dir.file("downloads"), Quota: int64(m.QuotaGB * 1e9),
		Open:      func(c caller.Caller, category string) bool { return n.grants.Open(c, grant.Category(category)) },
		Status:    n.figures,
		Catalogue: n.catalogue, OpenFile: n.openShared, Ask: n.answerPeer,
		Cancel:  func(peer string) { n.assistant.CancelPeer(peer) },
		Record:  func(ctx context.Context, tx *sql.Tx, e audit.Entry) error { return n.audit.AppendTx(ctx, tx, e) },
		Raise:   n.raiseMesh,
		Changed: func() { n.bus.Publish(event.Event{Name: "mesh", Owners: true, Data: struct{}{}}) }}
	for _, c := range peerCategories() {
		cfg.Categories = append(cfg.Categories, string(c))
	}
	if m.Enabled && m.Radio != "" {
		if err := n.openRadio(&cfg); err != nil {
			return err
		}
	}
	if n.mesh, err = mesh.New(ctx, cfg); err != nil {
		return err
	}
	if s.Mesh.Radio != "" && !m.Enabled {
		n.cfg.Log.Warn("mesh.radio is set, and the mesh is off, so the radio is not used")
	}
	return nil
}

// peerCategories are those of which a peer can have anything: a row of theirs has a door for peers, or for their requests.
func peerCategories() []grant.Category {
	return []grant.Category{grant.System, grant.Apps, grant.Content, grant.Mesh}
}

// openRadio makes the radio and its nodes peers.
func (n *Node) openRadio(cfg *mesh.Config) (err error) {
	m := n.cfg.Settings.Mesh
	for _, listed := range m.RadioNodes {
		l, err := radio.ParseListed(listed)
		if err != nil {
			return fmt.Errorf("mesh.radio_nodes: %w", err)
		}
		cfg.Radio = append(cfg.Radio, mesh.RadioKey(radio.NodeID(l.Node)))
	}
	n.radio, err = radio.New(radio.Config{Address: m.Radio, Log: n.cfg.Log, Nodes: m.RadioNodes,
		Ask: func(ctx context.Context, node uint32, question string) (string, error) {
			return n.mesh.AskByRadio(ctx, mesh.RadioKey(radio.NodeID(node)), question)
		},
		Refused: n.radioRefused})
	cfg.RadioStatus = func() mesh.RadioState {
		st := n.radio.Status()
		return mesh.RadioState{Connected: st.Connected, UsedMS: st.Used.Milliseconds(), LimitMS: st.Allowed.Milliseconds()}
	}
	return err
}

// radioRefused tells of what somebody on the air should not have sent; the rest is traffic.
func (n *Node) radioRefused(r radio.Refusal) {
	switch r.Reason {
	case radio.Unlisted, radio.Unproved, radio.WrongKey, radio.ByInternet:
		n.raiseMesh(context.Background(), mesh.Notice{Security: true, Key: "radio:" + string(r.Reason) + radio.NodeID(r.Node),
			What: fmt.Sprintf("The radio refused a question that claims to be from %s (%s). Nothing was answered.", radio.NodeID(r.Node), r.Reason),
			Do:   "If you know the node, list it, with its key, in mesh.radio_nodes."})
	}
}

// runRadio keeps the link to the radio.
func (n *Node) runRadio(ctx context.Context) {
	if n.radio == nil {
		return
	}
	if err := n.radio.Run(ctx); err != nil && ctx.Err() == nil {
		n.cfg.Log.Error("the radio is given up", "err", err)
	}
}

// ceiling is what the owner allowed a peer, as the grants count it (A5).
func (n *Node) ceiling(peer string) []grant.Category {
	var out []grant.Category
	for _, c := range n.mesh.Ceiling(peer) {
		out = append(out, grant.Category(c))
	}
	return out
}

// alive re-reads who asks: a session's account, or a peer's standing.
func (n *Node) alive(ctx context.Context, c caller.Caller) (caller.Caller, error) {
	if !c.IsPeer() {
		return n.accounts.Alive(ctx, c)
	}
	if !n.mesh.Alive(c.PeerKey()) {
		return caller.Caller{}, fault.New(fault.Forbidden, "the other node is not let in any more")
	}
	return c, nil
}

// figures are what a peer may see of the system: numbers out of the rows that its chat could read too.
func (n *Node) figures(ctx context.Context, c caller.Caller) (mesh.Figures, error) {
	var info struct {
		CPUs   int     `json:"cpus"`
		Load1  float64 `json:"load1"`
		Total  uint64  `json:"memory_total_bytes"`
		Used   uint64  `json:"memory_used_bytes"`
		Uptime int64   `json:"uptime_s"`
	}
	var disks struct {
		Disks []struct {
			UsedPercent int    `json:"used_percent"`
			Free        uint64 `json:"free_bytes"`
		} `json:"disks"`
	}
	if err := n.read(ctx, c, "system.info", &info); err != nil {
		return mesh.Figures{}, err
	}
	if err := n.read(ctx, c, "system.disk-status", &disks); err != nil {
		return mesh.Figures{}, err
	}
	out := mesh.Figures{UptimeS: info.Uptime, Load1: info.Load1, Processors: info.CPUs}
	if info.Total > 0 {
		out.MemoryPercent = float64(info.Used*1000/info.Total) / 10
	}
	for _, d := range disks.Disks {
		if p := float64(d.UsedPercent); p >= out.DiskPercent {
			out.DiskPercent, out.DiskFree = p, int64(d.Free)
		}
	}
	return out, nil
}

// read calls a row as the peer, by the door of its tools.
func (n *Node) read(ctx context.Context, c caller.Caller, method string, out any) error {
	result, err := n.rooms.Call(ctx, c, rpc.Tools, method, nil, nil)
	if err != nil {
		return err
	}
	raw, err := rpc.Marshal(result)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, out)
}

// catalogue is a page of what is shared with a peer: what has a hash, since the rest cannot be fetched.
func (n *Node) catalogue(c caller.Caller, after string, count int) ([]mesh.Item, bool, error) {
	out := make([]mesh.Item, 0, count)
	for {
		items, more, err := n.content.Page(c, after, count-len(out))
		for _, i := range items {
			if after = i.Path; i.SHA256 != "" {
				out = append(out, mesh.Item{Path: i.Path, Size: i.Size, Modified: i.Modified, SHA256: i.SHA256})
			}
		}
		if err != nil || !more || len(out) == count {
			return out, more, err
		}
	}
}

func (n *Node) openShared(c caller.Caller, path string) (io.ReadSeekCloser, mesh.Item, error) {
	f, i, err := n.content.OpenFile(c, path)
	if err != nil {
		return nil, mesh.Item{}, err
	}
	return f, mesh.Item{Path: i.Path, Size: i.Size, Modified: i.Modified, SHA256: i.SHA256}, nil
}

// maxReceived bounds one listing of a peer's catalogue.
const maxReceived = 1000

// received lists what a peer last said it shares.
func (n *Node) received(ctx context.Context, peer, prefix string) (content.Listing, error) {
	l, err := n.mesh.Received(ctx, peer, prefix, maxReceived)
	if err != nil {
		return content.Listing{}, err
	}
	out := content.Listing{Items: []content.Item{}, Total: l.Total, TotalBytes: l.Bytes, Truncated: l.Truncated}
	for _, i := range l.Items {
		out.Items = append(out.Items, content.Item{Peer: l.Peer, Path: i.Path, Size: i.Size, Modified: i.Modified, SHA256: i.SHA256})
	}
	return out, nil
}

// answerPeer runs a peer's question as a turn of the peer.
func (n *Node) answerPeer(ctx context.Context, c caller.Caller, q mesh.Question, say func(string) error) (mesh.Answer, error) {
	a, err := n.assistant.Ask(ctx, c, assistant.PeerQuestion{Conversation: q.Conversation, Text: q.Text}, say)
	return mesh.Answer{Conversation: a.Conversation}, err
}

// forPeers is the model that answers other nodes, with its own budget (B4).
func (n *Node) forPeers(ctx context.Context, configured model.Client) (out assistant.Peers, err error) {
	m := n.cfg.Settings.Mesh
	if !m.Enabled {
		return out, nil
	}
	if m.Assistant == "configured" && configured.Info().Backend != "local" {
		out.Model = configured
	} else if out.Model, err = local.New(local.Config{Peer: true, Names: n.names}); err != nil {
		return out, err
	}
	if m.DailyBudgetUSD > 0 {
		out.Budget, err = assistant.NewPeersBudget(ctx, n.db, n.cfg.Clock, int64(m.DailyBudgetUSD*1e6))
	}
	return out, err
}

func (n *Node) raiseMesh(ctx context.Context, v mesh.Notice) {
	kind := notice.Operation
	if v.Security {
		kind = notice.Security
	}
	n.raise(ctx, kind, v.Key, v.What, v.Do)
}
