package confirm

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/fault"
	"atoll/internal/fence"
)

// muteTime is how long a peer asks for nothing after a decline (M3).
const muteTime = 24 * time.Hour

// clockStep is how far back the clock may seem to stand at a start and still count as right.
const clockStep = 2 * time.Second

// maxPeerName is how many characters of a peer's own name a dialog shows.
const maxPeerName = 64

const muteSchema = `
CREATE TABLE mute (
	peer     TEXT PRIMARY KEY,
	from_at  INTEGER NOT NULL, -- Unix seconds
	until_at INTEGER NOT NULL
) WITHOUT ROWID`

// Asking reports whether the peer may ask for changes at all (M3). It does not say whether it is muted.
func (r *Room) Asking(c caller.Caller) bool {
	return c.IsPeer() && c.PeerKey() != "" && r.cfg.Asking != nil && r.cfg.Asking(c.PeerKey())
}

// fromPeer marks a question as another node's: it can never be allowed for a time (C11), and who asks stands in the
// host's words, not in the peer's.
func fromPeer(a Ask) Ask {
	a.MayAllow = false
	if !slices.Contains(a.Untrusted, "peer") {
		a.Untrusted = append([]string{"peer"}, a.Untrusted...)
	}
	name, notes := fence.Visible(shorten(a.Caller.Name()))
	words := fmt.Sprintf("asked by another node, %s; the name \"%s\" is its own word", shownCaller(a.Caller), strings.ReplaceAll(name, `"`, "⟨U+0022⟩"))
	warnings := []string{words}
	for _, n := range notes {
		warnings = append(warnings, "the node's name: "+n)
	}
	a.Warnings = append(warnings, a.Warnings...)
	return a
}

// shownCaller is who asks as a dialog shows it: an account's name, or a peer's key.
func shownCaller(c caller.Caller) string {
	if !c.IsPeer() {
		return c.Name()
	}
	key, _ := fence.Visible(c.PeerKey())
	return key
}

func shorten(name string) string {
	n := 0
	for i := range name {
		if n == maxPeerName {
			return name[:i] + "…"
		}
		n++
	}
	return name
}

// mayAskLocked holds a peer to one question at a time and to its mute; r.mu is held.
func (r *Room) mayAskLocked(c caller.Caller) error {
	if !c.IsPeer() {
		return nil
	}
	if span, ok := r.mutes[c.PeerKey()]; ok {
		if left := muteLeft(span, r.cfg.Clock); left > 0 {
			return fault.New(fault.Declined, "the owner declined a request of this node, so it may ask for no change for a day; nothing was changed").
				ForModel("NOT executed and NOT queued: the owner declined a request of this node and is not asked again for a day.").After(left)
		}
		delete(r.mutes, c.PeerKey())
	}
	for _, p := range r.pendings {
		if p.ask.Caller.IsPeer() && p.ask.Caller.PeerKey() == c.PeerKey() {
			return fault.New(fault.Busy, "one request of this node waits for the owner already; nothing was changed").
				ForModel("NOT executed and NOT queued: one request of this node already waits for the owner.")
		}
	}
	return nil
}

// muteLeft goes by the clock that cannot be set: no change of the wall's ends a mute.
func muteLeft(s clock.Span, c clock.Clock) time.Duration {
	return max(0, s.Until().Sub(s.From())-s.Age(c))
}

func keepMute(ctx context.Context, tx *sql.Tx, peer string, s clock.Span) error {
	_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO mute VALUES (?, ?, ?)", peer, s.From().Unix(), s.Until().Unix())
	return err
}

// loadMutes takes up the mutes of an earlier run. One that seems to begin in the future starts anew: the clock was set
// back, and that opens nothing.
func (r *Room) loadMutes(ctx context.Context) error {
	rows, err := r.cfg.DB.Reader().QueryContext(ctx, "SELECT peer, from_at, until_at FROM mute")
	if err != nil {
		return err
	}
	defer rows.Close()
	now := r.cfg.Clock.Now()
	for rows.Next() {
		var peer string
		var from, until int64
		if err := rows.Scan(&peer, &from, &until); err != nil {
			return err
		}
		left := min(time.Unix(until, 0).Sub(now), muteTime)
		if now.Add(clockStep).Before(time.Unix(from, 0)) {
			left = muteTime
		}
		if left > 0 {
			r.mutes[peer] = r.cfg.Clock.Span(left)
		}
	}
	return rows.Err()
}

// Redeem is rpc.Approval: true once, after Spend, for the peer that asked and for the very call that the owner saw.
func (t *Ticket) Redeem(c caller.Caller, method string, canonical jsontext.Value) bool {
	same := t.pending != nil && c.IsPeer() && c.PeerKey() == t.ask.Caller.PeerKey() && method != "" && method == t.ask.Method &&
		bytes.Equal(canonical, t.ask.Args)
	return same && t.pending.redeemable.CompareAndSwap(true, false)
}
