// Package mesh tells which other nodes this one knows. It opens no socket: this version has no mesh, and says so.
package mesh

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"atoll/internal/caller"
	"atoll/internal/rpc"
)

// Config is what a Room needs.
type Config struct {
	Log     *slog.Logger
	Enabled bool // [mesh] enabled in config.toml
}

// Room answers mesh.status.
type Room struct{ asked bool }

// New says in the log where the configuration asks for what this version does not have.
func New(cfg Config) (*Room, error) {
	if cfg.Log == nil {
		return nil, errors.New("mesh: a log is needed")
	}
	if cfg.Enabled {
		cfg.Log.Warn("mesh.enabled is set, but " + none + "; nothing listens for other nodes")
	}
	return &Room{asked: cfg.Enabled}, nil
}

const none = "this version of Atoll has no mesh yet"

// Status is the result of mesh.status. Enabled is what runs, not what was asked for; Note says where they differ.
type Status struct {
	Enabled bool   `json:"enabled"`
	Peers   []Peer `json:"peers"`
	Note    string `json:"note,omitzero"`
}

// Peer is another node. Its name is its own word for itself: untrusted text (M4).
type Peer struct {
	Key        string    `json:"key"`
	Name       string    `json:"name"`
	Authorized bool      `json:"authorized"`
	LastSeen   time.Time `json:"last_seen,omitzero"`
}

// Methods are the room's rows.
func (r *Room) Methods() []rpc.Method {
	return []rpc.Method{
		rpc.Spec[rpc.None, Status]{
			Row: rpc.Row{Name: "mesh.status", Summary: "Tells which other nodes this one knows and sees.", Effect: rpc.Read,
				Doors: rpc.People | rpc.Tools | rpc.Peers, Role: caller.Viewer},
			Handle: func(context.Context, caller.Caller, rpc.None) (Status, error) {
				s := Status{Peers: []Peer{}}
				if r.asked {
					s.Note = "mesh.enabled is set, but " + none
				}
				return s, nil
			},
		}.Method(),
	}
}
