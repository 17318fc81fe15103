package confirm

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/fault"
	"atoll/internal/rpc"
	"atoll/internal/store"
)

// Bounds of a standing permission (C11).
const (
	MaxAllow       = 24 * time.Hour
	maxUsesPerHour = 3
)

// permission lets one exact action of one account pass without a dialog.
type permission struct {
	id          string
	account     int64
	key         Key
	fingerprint string
	tool        string
	summary     string
	span        clock.Span
	uses        []time.Time // the last maxUsesPerHour uses
}

// Permission is the wire form.
type Permission struct {
	ID        string    `json:"id"`
	Account   int64     `json:"account"`
	Tool      string    `json:"tool"`
	Summary   string    `json:"summary"`
	ActionKey string    `json:"action_key"`
	Since     time.Time `json:"since"`
	ExpiresAt time.Time `json:"expires_at"`
	UsedLastH int       `json:"used_last_hour"`
}

// Permitted returns a Ticket if a standing permission of the caller's account covers exactly this action on exactly this
// target, and nothing untrusted is in context. Otherwise nil: then a person is asked.
func (r *Room) Permitted(a Ask) *Ticket {
	if len(a.Untrusted) > 0 || !a.MayAllow || !a.Caller.IsOperator() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropEndedLocked(context.Background())
	if r.maybeRan(a.Key) { // a person must read that it may already have run (T14)
		return nil
	}
	for _, p := range r.permissions {
		if p.account == a.Caller.Account() && p.key == a.Key && p.fingerprint == a.Preview.Fingerprint && r.usable(p) {
			return &Ticket{hash: hashNonce(newNonce()), ask: a, permission: p.id}
		}
	}
	return nil
}

func (r *Room) usable(p *permission) bool {
	return !p.span.Over(r.cfg.Clock) && p.usedLastHour(r.cfg.Clock.Now()) < maxUsesPerHour
}

func (p *permission) usedLastHour(now time.Time) int {
	n := 0
	for _, u := range p.uses {
		if now.Sub(u) < time.Hour {
			n++
		}
	}
	return n
}

// usePermission counts one use in the spending transaction and returns the uses with it; r.mu is held.
func (r *Room) usePermission(ctx context.Context, tx *sql.Tx, t *Ticket) ([]time.Time, error) {
	p, ok := r.permissions[t.permission]
	if !ok || !r.usable(p) {
		return nil, fault.New(fault.Changed, "the standing permission has ended; ask again to be asked")
	}
	uses := append(slices.Clone(p.uses), r.cfg.Clock.Now())
	uses = uses[max(0, len(uses)-maxUsesPerHour):]
	_, err := tx.ExecContext(ctx, "UPDATE permission SET uses = ? WHERE id = ?", formatUses(uses), p.id)
	return uses, err
}

// wish is the permission that would come of an approval.
func (r *Room) wish(p *pending) *permission {
	return &permission{id: newNonce(), account: p.ask.Caller.Account(), key: p.ask.Key, fingerprint: p.ask.Preview.Fingerprint,
		tool: p.ask.Tool, summary: p.ask.Summary, span: r.cfg.Clock.Span(min(p.allow, MaxAllow))}
}

// allowLocked keeps the permission that came with an approval, in the place of an older one for the same action, whose
// uses still count. If it cannot be written, there is none and the log says so; the approved action runs all the same.
func (r *Room) allowLocked(ctx context.Context, t *Ticket) {
	p := r.wish(t.pending)
	older := []string{}
	for id, q := range r.permissions {
		if q.account == p.account && q.key == p.key {
			older, p.uses = append(older, id), append(p.uses, q.uses...)
		}
	}
	err := r.cfg.DB.Write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM permission WHERE account = ? AND action_key = ?", p.account, p.key.String())
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO permission VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", p.id, p.account, p.key.String(),
			p.fingerprint, p.tool, p.summary, p.span.From().Unix(), p.span.Until().Unix(), formatUses(p.uses))
		if err != nil {
			return err
		}
		e := t.ask.entry("given")
		e.Kind, e.Detail = "permission", "until "+p.span.Until().UTC().Format(time.RFC3339)
		return r.cfg.Audit.AppendTx(ctx, tx, e)
	})
	if err != nil {
		r.cfg.Log.Error("a standing permission could not be kept; the next time asks again", "err", err)
		return
	}
	for _, id := range older {
		delete(r.permissions, id)
	}
	r.permissions[p.id] = p
}

// DropAllPermissions ends every standing permission: the mode changed.
func (r *Room) DropAllPermissions(ctx context.Context) {
	_, _ = r.dropPermissions(ctx, func(*permission) bool { return true })
}

func (r *Room) dropPermissions(ctx context.Context, which func(*permission) bool) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropPermissionsLocked(ctx, which)
}

// dropEndedLocked closes for good what is over, so that a clock set right again opens none of it (C4).
func (r *Room) dropEndedLocked(ctx context.Context) {
	_, _ = r.dropPermissionsLocked(ctx, func(p *permission) bool { return p.span.Over(r.cfg.Clock) })
}

// dropPermissionsLocked closes those selected, and those that an approval is about to bring. It returns how many there
// were and whether one's end was not written down; such a one is closed until the next start.
func (r *Room) dropPermissionsLocked(ctx context.Context, which func(*permission) bool) (n int, failed error) {
	for p := range r.allowing {
		if which(r.wish(p)) {
			p.allow = 0
			delete(r.allowing, p)
		}
	}
	for id, p := range r.permissions {
		if !which(p) {
			continue
		}
		delete(r.permissions, id) // closed in memory whatever the disk says
		n++
		err := r.cfg.DB.Write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) error {
			return endPermissions(ctx, tx, r.cfg.Audit, "id = ?", id)
		})
		if err != nil {
			r.cfg.Log.Error("the end of a standing permission was not written down; it is closed until the next start", "err", err)
			failed = err
		}
	}
	if n > 0 {
		r.cfg.DB.Settle(ctx) // a lost log brings none of them back
	}
	return n, failed
}

// EndPermissions takes the standing permissions of an account off the disk and writes that down, in a transaction of which
// they are a part (C11). A Room on the same file is told by EndSessions.
func EndPermissions(ctx context.Context, tx *sql.Tx, log *audit.Log, account int64) error {
	return endPermissions(ctx, tx, log, "account = ?", account)
}

// endPermissions records each that is still there, so that each ends once.
func endPermissions(ctx context.Context, tx *sql.Tx, log *audit.Log, where string, arg any) error {
	rows, err := tx.QueryContext(ctx, "DELETE FROM permission WHERE "+where+" RETURNING tool, action_key", arg)
	if err != nil {
		return err
	}
	defer rows.Close()
	var ended []audit.Entry
	for rows.Next() {
		e := audit.Entry{Kind: "permission", Event: "ended"}
		if err := rows.Scan(&e.Subject, &e.ActionKey); err != nil {
			return err
		}
		ended = append(ended, e)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, e := range ended {
		if err := log.AppendTx(ctx, tx, e); err != nil {
			return err
		}
	}
	return nil
}

func (r *Room) loadPermissions(ctx context.Context) error {
	rows, err := r.cfg.DB.Reader().QueryContext(ctx, "SELECT id, account, action_key, fingerprint, tool, summary, from_at, until_at, uses FROM permission")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var p permission
		var key, uses string
		var from, until int64
		if err := rows.Scan(&p.id, &p.account, &key, &p.fingerprint, &p.tool, &p.summary, &from, &until, &uses); err != nil {
			return err
		}
		if p.key, err = parseKey(key); err != nil {
			return err
		}
		p.span, p.uses = r.cfg.Clock.Resume(time.Unix(from, 0), time.Unix(until, 0)), parseUses(uses)
		r.permissions[p.id] = &p
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil { // closed before the write below, which may need the connection
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropEndedLocked(ctx)
	return nil
}

func formatUses(uses []time.Time) string {
	words := make([]string, len(uses))
	for i, u := range uses {
		words[i] = strconv.FormatInt(u.Unix(), 10)
	}
	return strings.Join(words, " ")
}

func parseUses(s string) []time.Time {
	var uses []time.Time
	for w := range strings.FieldsSeq(s) {
		if n, err := strconv.ParseInt(w, 10, 64); err == nil {
			uses = append(uses, time.Unix(n, 0))
		}
	}
	return uses
}

type permissionsResult struct {
	Permissions []Permission `json:"permissions"`
}

type revokeParams struct {
	ID string `json:"id" rpc:"required"`
}

func (r *Room) permissionMethods() []rpc.Method {
	return []rpc.Method{
		rpc.Spec[rpc.None, permissionsResult]{
			Row: rpc.Row{Name: "assistant.permissions-list", Summary: "Lists the actions that may run for a time without asking.",
				Effect: rpc.Read, Doors: rpc.People, Role: caller.Owner},
			Handle: func(context.Context, caller.Caller, rpc.None) (permissionsResult, error) {
				return r.listPermissions(), nil
			},
		}.Method(),
		rpc.Spec[revokeParams, permissionsResult]{
			Row: rpc.Row{Name: "assistant.permissions-revoke", Summary: "Ends one standing permission.",
				Effect: rpc.Write, Doors: rpc.People, Role: caller.Owner},
			Handle: func(ctx context.Context, _ caller.Caller, p revokeParams) (permissionsResult, error) {
				n, err := r.dropPermissions(ctx, func(q *permission) bool { return q.id == p.ID })
				switch {
				case n == 0:
					return permissionsResult{}, fault.New(fault.NotFound, "no such permission").At("id")
				case err != nil:
					return permissionsResult{}, fault.Wrap(err, fault.Unavailable, "it is closed, but that could not be written down, so the next start "+
						"opens it again; make room on the disk, restart and look at the list")
				}
				return r.listPermissions(), nil
			},
		}.Method(),
	}
}

func (r *Room) listPermissions() permissionsResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropEndedLocked(context.Background())
	out := []Permission{}
	now := r.cfg.Clock.Now()
	for _, p := range r.permissions {
		out = append(out, Permission{ID: p.id, Account: p.account, Tool: p.tool, Summary: p.summary, ActionKey: p.key.String(),
			Since: p.span.From(), ExpiresAt: p.span.Until(), UsedLastH: p.usedLastHour(now)})
	}
	slices.SortFunc(out, func(a, b Permission) int { return a.Since.Compare(b.Since) })
	return permissionsResult{out}
}
