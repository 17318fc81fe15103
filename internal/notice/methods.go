package notice

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
	"atoll/internal/store"
)

type listParams struct {
	Kind Kind `json:"kind"`
	All  bool `json:"all"` // the acknowledged ones too
}

type listResult struct {
	Notices []Item `json:"notices"`
}

type ackParams struct {
	ID int64 `json:"id" rpc:"required"`
}

type ackResult struct {
	Notice Item `json:"notice"`
}

// Methods are the rows by which people read and acknowledge notices. The assistant has no door to them.
func (r *Room) Methods() []rpc.Method {
	return []rpc.Method{
		rpc.Spec[listParams, listResult]{
			Row: rpc.Row{Name: "notices.list", Summary: "Lists what the owner should know.", Effect: rpc.Read, Doors: rpc.People, Role: caller.Member},
			Rule: func(_ context.Context, _ caller.Caller, p listParams) error {
				if p.Kind != "" && !slices.Contains(kinds(), p.Kind) {
					return fault.New(fault.InvalidParams, "kind must be security, configuration or operation, or left out for all").At("kind")
				}
				return nil
			},
			Handle: func(ctx context.Context, _ caller.Caller, p listParams) (listResult, error) {
				items, err := r.List(ctx, p.Kind, p.All)
				if err != nil {
					return listResult{}, fault.Wrap(err, fault.Unavailable, "the notices cannot be read now")
				}
				return listResult{items}, nil
			},
		}.Method(),
		rpc.Spec[ackParams, ackResult]{
			Row: rpc.Row{Name: "notices.ack", Summary: "Marks a notice as seen.", Effect: rpc.Write, Doors: rpc.People, Role: caller.Owner},
			Handle: func(ctx context.Context, c caller.Caller, p ackParams) (ackResult, error) {
				item, err := r.acknowledge(ctx, c, p.ID)
				return ackResult{item}, err
			},
		}.Method(),
	}
}

// acknowledge marks a notice; one that is marked already stays as it is.
func (r *Room) acknowledge(ctx context.Context, c caller.Caller, id int64) (Item, error) {
	var item Item
	changed := false
	err := r.cfg.DB.Write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) (err error) {
		item, err = scan(tx.QueryRowContext(ctx, "UPDATE notice SET acked = ?, acked_by = ? WHERE id = ? AND acked = 0 RETURNING "+columns,
			max(1, r.cfg.Now().UnixMilli()), c.Name(), id))
		if changed = err == nil; !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		item, err = scan(tx.QueryRowContext(ctx, "SELECT "+columns+" FROM notice WHERE id = ?", id))
		return err
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Item{}, fault.New(fault.NotFound, "there is no such notice; notices.list has those there are").At("id")
	case err != nil:
		return Item{}, fault.Wrap(err, fault.Unavailable, "the notice cannot be marked now; is the disk full or read-only?")
	}
	r.mu.Lock()
	delete(r.told, id)
	r.mu.Unlock()
	if changed && r.cfg.OnNotice != nil {
		r.cfg.OnNotice(item)
	}
	return item, nil
}
