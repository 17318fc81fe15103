package mesh

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/mesh/invite"
	"atoll/internal/mesh/link"
	"atoll/internal/store"
)

// Times of invites. They are short: an invite is used while both owners talk to each other, and an old copy of the data
// directory holds none that still counts.
const (
	inviteTime    = 15 * time.Minute
	maxInviteTime = 24 * time.Hour
	maxInvites    = 8  // open at once
	maxKept       = 64 // with those that are used and not over
)

// pairTime bounds the whole of reaching another node and asking it.
const pairTime = 30 * time.Second

// invitation is an invite that this node made. Who used it stays known until it ends, so that its answer can be repeated
// to the one and refused to others.
type invitation struct {
	hash   [sha256.Size]byte
	span   clock.Span
	usedBy string
}

// pairAsk is what a node says that uses an invite.
type pairAsk struct {
	Secret string   `json:"secret"` // hex
	Name   string   `json:"name"`
	Addrs  []string `json:"addrs"`
}

// pairReply tells it how it stands now.
type pairReply struct {
	State State  `json:"state"`
	Name  string `json:"name"`
}

func (r *Room) loadInvites(ctx context.Context) error {
	rows, err := r.cfg.DB.Reader().QueryContext(ctx, "SELECT hash, from_at, till_at, used_by FROM mesh_invite")
	if err != nil {
		return fmt.Errorf("mesh: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var hash []byte
		var from, until int64
		i := &invitation{}
		if err := rows.Scan(&hash, &from, &until, &i.usedBy); err != nil {
			return fmt.Errorf("mesh: %w", err)
		}
		if copy(i.hash[:], hash) != sha256.Size {
			continue
		}
		i.span = r.cfg.Clock.Resume(time.UnixMilli(from), time.UnixMilli(until))
		r.invites[i.hash] = i
	}
	return rows.Err()
}

// invitingLocked reports whether an invite is open, so that strangers get as far as the pair protocol; mu is held.
func (r *Room) invitingLocked() bool {
	for _, i := range r.invites {
		if i.usedBy == "" && !i.span.Over(r.cfg.Clock) {
			return true
		}
	}
	return false
}

// invite makes one. Those that are over make room.
func (r *Room) invite(ctx context.Context, c caller.Caller, d time.Duration, addrs []string) (invite.Invite, *invitation, error) {
	v := invite.Invite{Key: r.cfg.Key.Public().(ed25519.PublicKey), Secret: invite.NewSecret(), Addrs: addrs}
	i := &invitation{hash: sha256.Sum256(v.Secret[:]), span: r.cfg.Clock.Span(d)}
	r.mu.Lock()
	defer r.mu.Unlock()
	var over [][sha256.Size]byte
	open := 0
	for hash, other := range r.invites {
		if other.span.Over(r.cfg.Clock) {
			over = append(over, hash)
		} else if other.usedBy == "" {
			open++
		}
	}
	if open >= maxInvites || len(r.invites)-len(over) >= maxKept {
		return v, nil, fault.New(fault.Rule, "%d invites are open; withdraw one (atoll mesh uninvite), or wait until one ends", maxInvites)
	}
	e := by(c, "invite", "until "+i.span.Until().UTC().Format(time.RFC3339))
	e.Kind = "mesh"
	err := r.cfg.DB.Write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		for _, hash := range over {
			if _, err := tx.ExecContext(ctx, "DELETE FROM mesh_invite WHERE hash = ?", hash[:]); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO mesh_invite VALUES (?, ?, ?, '')", i.hash[:], i.span.From().UnixMilli(), i.span.Until().UnixMilli()); err != nil {
			return err
		}
		return r.cfg.Record(ctx, tx, e)
	})
	if err != nil {
		return v, nil, fault.Wrap(err, fault.Unavailable, "the invite cannot be written down, so there is none")
	}
	for _, hash := range over {
		delete(r.invites, hash)
	}
	r.invites[i.hash] = i
	r.cfg.Changed()
	return v, i, nil
}

// withdraw ends all open invites.
func (r *Room) withdraw(ctx context.Context, c caller.Caller) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, i := range r.invites {
		if i.usedBy == "" && !i.span.Over(r.cfg.Clock) {
			n++
		}
	}
	e := by(c, "uninvite", "")
	e.Kind = "mesh"
	err := r.cfg.DB.Write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM mesh_invite"); err != nil {
			return err
		}
		return r.cfg.Record(ctx, tx, e)
	})
	if err != nil {
		return 0, fault.Wrap(err, fault.Unavailable, "the invites cannot be withdrawn now")
	}
	r.invites = map[[sha256.Size]byte]*invitation{}
	r.cfg.Changed()
	return n, nil
}

// servePair answers a node that uses an invite. It is not let in by that: the owner compares the words and decides.
func (r *Room) servePair(ctx context.Context, from string, s *link.Stream) error {
	var ask pairAsk
	if err := s.Receive(&ask); err != nil {
		return err
	}
	secret, err := hex.DecodeString(ask.Secret)
	if err != nil || len(secret) != invite.SecretSize {
		return fault.New(fault.InvalidParams, "that is no secret of an invite").At("secret")
	}
	state, err := r.used(ctx, from, sha256.Sum256(secret), ask)
	if err != nil {
		return err
	}
	return s.Send(pairReply{State: state, Name: plainName(r.cfg.Name())})
}

const noInvite = "this invite does not exist, has ended, or was used by another node; ask for a new one"

// used spends an invite on the node that brought its secret, durably, once (M1).
func (r *Room) used(ctx context.Context, from string, hash [sha256.Size]byte, ask pairAsk) (State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, p := r.invites[hash], r.peers[from]
	switch {
	case i != nil && i.usedBy == from && p != nil:
		return p.state, nil // the answer was lost on the way
	case i != nil && i.usedBy != "" && i.usedBy != from:
		r.cfg.Raise(context.WithoutCancel(ctx), Notice{Security: true, Key: "mesh-invite-used:" + hex.EncodeToString(hash[:8]),
			What: "A second node used an invite that had been used already. It was refused.",
			Do:   "Somebody else has seen the invite. Compare the words of the node that asks before you let it in."})
		fallthrough
	case i == nil || i.usedBy != "" || i.span.Over(r.cfg.Clock):
		return "", fault.New(fault.Forbidden, noInvite)
	case p != nil && p.state == paired:
		return paired, r.spendLocked(ctx, from, i) // for one use is for one use
	case p != nil && p.state == blocked, len(r.peers) >= maxPeers, r.countLocked(asking) >= maxAsking:
		return "", fault.New(fault.Forbidden, "this node takes no more requests to pair now")
	}
	next := &peer{key: from, state: asking, name: plainName(ask.Name), addrs: goodAddrs(ask.Addrs), since: r.cfg.Clock.Now(), seen: r.cfg.Clock.Now()}
	e := audit.Entry{Event: "asked", Caller: caller.Peer(from, "").String(), Outcome: "done"}
	err := r.changeLocked(ctx, from, next, e, func(ctx context.Context, tx *sql.Tx) error { return spend(ctx, tx, from, hash) })
	if err != nil {
		return "", err
	}
	r.invites[hash] = &invitation{hash: hash, span: i.span, usedBy: from}
	r.cfg.Raise(context.WithoutCancel(ctx), Notice{Security: true, Key: "mesh-asks:" + from,
		What: fmt.Sprintf("Another node used your invite and asks to be let in. Its key words are: %s. It calls itself %s.", words(from), quoted(next.name)),
		Do:   "Compare the words with its owner. If they are the same: atoll mesh admit " + from + ", or the page Mesh. If not: atoll mesh block " + from + "."})
	return asking, nil
}

// spendLocked uses an invite up where nothing else changes; mu is held.
func (r *Room) spendLocked(ctx context.Context, from string, i *invitation) error {
	e := audit.Entry{Kind: "mesh", Event: "asked", Caller: caller.Peer(from, "").String(), Subject: from, Outcome: "done", Detail: "it is paired already"}
	err := r.cfg.DB.Write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		if err := spend(ctx, tx, from, i.hash); err != nil {
			return err
		}
		return r.cfg.Record(ctx, tx, e)
	})
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "this cannot be written down, so nothing was changed")
	}
	r.invites[i.hash] = &invitation{hash: i.hash, span: i.span, usedBy: from}
	r.cfg.Changed()
	return nil
}

func spend(ctx context.Context, tx *sql.Tx, from string, hash [sha256.Size]byte) error {
	_, err := tx.ExecContext(ctx, "UPDATE mesh_invite SET used_by = ? WHERE hash = ?", from, hash[:])
	return err
}

func (r *Room) countLocked(s State) (n int) {
	for _, p := range r.peers {
		if p.state == s {
			n++
		}
	}
	return n
}

// words are the key words of a peer, or nothing for one that has no such key.
func words(key string) string {
	pub, err := link.PublicKey(key)
	if err != nil {
		return ""
	}
	return strings.Join(invite.KeyWords(pub), " ")
}

func shownName(name string) string {
	shown, _ := fence.Visible(name)
	return shown
}

// goodAddrs keeps the addresses that can be dialled.
func goodAddrs(addrs []string) []string {
	var out []string
	for _, a := range addrs {
		if len(out) < maxAddrs && link.CheckAddr(a) == nil && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// accept uses another node's invite. Its key stands in the invite, so that no other node can answer in its place; this
// owner's decision for it is the accepting itself, after the words were shown.
func (r *Room) accept(ctx context.Context, c caller.Caller, v invite.Invite, label string) (*peer, State, error) {
	key := link.KeyOf(v.Key)
	if key == r.self {
		return nil, "", fault.New(fault.Rule, "this is an invite of this node itself").At("code")
	}
	if err := r.acceptable(key); err != nil { // before the invite is spent
		return nil, "", err
	}
	r.expect(key, true)
	defer r.expect(key, false)
	ctx, cancel := context.WithTimeout(ctx, pairTime)
	defer cancel()
	var reply pairReply
	err := r.host.Connect(ctx, key, v.Addrs)
	if err == nil {
		err = r.exchange(ctx, key, "pair", pairAsk{Secret: hex.EncodeToString(v.Secret[:]), Name: plainName(r.cfg.Name()), Addrs: r.host.Addrs()}, &reply)
	}
	if err != nil {
		return nil, "", r.remote(key, err)
	}
	next, err := r.accepted(ctx, c, key, label, append(slices.Clone(v.Addrs), r.host.PeerAddrs(key)...), reply)
	if err != nil {
		return nil, "", err
	}
	r.soon(key)
	return next, reply.State, nil
}

// accepted pairs this node with one that has answered to its own invite. What the owner set for the node stays, and a
// block that came meanwhile stands.
func (r *Room) accepted(ctx context.Context, c caller.Caller, key, label string, addrs []string, reply pairReply) (*peer, error) {
	if reply.State != asking && reply.State != paired {
		return nil, fault.New(fault.Failed, "the other node's answer is none that this version of atoll knows")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.acceptableLocked(key); err != nil {
		return nil, err
	}
	now := r.cfg.Clock.Now()
	next := &peer{key: key}
	if old := r.peers[key]; old != nil {
		next = old.clone()
	}
	if next.state != paired {
		next.state, next.since, next.ceiling = paired, now, Ceiling{}
	}
	if label != "" {
		next.label = label
	}
	next.name, next.addrs, next.seen, next.admits = plainName(reply.Name), goodAddrs(addrs), now, reply.State == paired
	return next, r.changeLocked(ctx, key, next, by(c, "accept", ""))
}

func (r *Room) acceptable(key string) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.acceptableLocked(key)
}

func (r *Room) acceptableLocked(key string) error {
	switch p := r.peers[key]; {
	case p != nil && p.state == blocked:
		return fault.New(fault.Rule, "that node is blocked; remove it first (atoll mesh remove)").At("code")
	case p == nil && len(r.peers) >= maxPeers:
		return fault.New(fault.Rule, "this node knows %d others, which is the most; remove one first (atoll mesh remove)", maxPeers).At("code")
	}
	return nil
}

func (r *Room) expect(key string, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if on {
		r.expected[key]++
	} else if r.expected[key]--; r.expected[key] <= 0 {
		delete(r.expected, key)
	}
}

// exchange asks one question of one frame and reads one answer.
func (r *Room) exchange(ctx context.Context, key, protocol string, ask, reply any) error {
	s, err := r.host.Open(ctx, key, protocol)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Send(ask); err != nil {
		return err
	}
	return s.Receive(reply)
}

// remote words an error of talking to a peer: what the peer said about it is its own text and is shown as such.
func (r *Room) remote(key string, err error) error {
	name := "the other node"
	if p := r.peer(key); p != nil {
		name = p.called()
	}
	if f := link.Said(err); f != nil {
		return fault.Wrap(err, told(f.Code), "%s refused: %s", name, quoted(f.Message)).After(f.RetryAfter)
	}
	return fault.Wrap(err, fault.Unavailable, "%s cannot be reached now; is it on, and its address still the same?", name)
}

// told is the code under which another node's refusal is passed on: those that say something about this node's own session,
// request or dialog are no other node's to give.
func told(c fault.Code) fault.Code {
	switch c {
	case fault.NotGranted, fault.Rule, fault.ReadOnly, fault.Off, fault.Busy, fault.Budget, fault.RateLimited, fault.Cancelled, fault.Changed, fault.TooLarge,
		fault.InvalidParams, fault.NotFound, fault.NotConfigured, fault.Unavailable, fault.ModelFailed:
		return c
	case fault.Forbidden:
		return fault.NotGranted
	}
	return fault.Failed
}
