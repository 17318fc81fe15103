// Package wallet tells the state of the owner's Bitcoin node. It only reads, holds no key and cannot pay. This version
// knows that none is configured, and says so where one is.
package wallet

import (
	"context"
	"errors"
	"log/slog"
	"net/url"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/rpc"
)

// Config is what a Room needs.
type Config struct {
	Log *slog.Logger
	URL string // [wallet] url in config.toml; empty means no Bitcoin node
}

// Room answers wallet.status.
type Room struct{ configured bool }

// New checks the configuration. The words of its error never hold the address, which could carry a password.
func New(cfg Config) (*Room, error) {
	if cfg.Log == nil {
		return nil, errors.New("wallet: a log is needed")
	}
	if cfg.URL == "" {
		return &Room{}, nil
	}
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New("wallet.url must look like http://127.0.0.1:8332")
	case u.User != nil:
		return nil, errors.New("wallet.url must hold no user or password; set wallet.user, and put the password into the secrets directory")
	}
	cfg.Log.Warn("wallet.url is set, but this version of Atoll cannot read a Bitcoin node yet")
	return &Room{configured: true}, nil
}

// Status is the result of wallet.status while no Bitcoin node is configured. Key and File say where one is configured;
// Supported is false in a version that would not read it.
type Status struct {
	Configured bool       `json:"configured"`
	Supported  bool       `json:"supported"`
	Key        fence.Word `json:"config_key"`
	File       fence.Word `json:"config_file"`
}

// Methods are the room's rows.
func (r *Room) Methods() []rpc.Method {
	return []rpc.Method{
		rpc.Spec[rpc.None, Status]{
			Row: rpc.Row{Name: "wallet.status", Summary: "Tells whether a Bitcoin node is configured.", Effect: rpc.Read,
				Doors: rpc.People | rpc.Tools, Role: caller.Owner, Facts: true},
			Handle: func(context.Context, caller.Caller, rpc.None) (Status, error) {
				if r.configured {
					return Status{}, fault.New(fault.NotConfigured, "a Bitcoin node is set in config.toml, but this version of Atoll cannot read one yet")
				}
				return Status{Key: "wallet.url", File: "config.toml"}, nil
			},
		}.Method(),
	}
}
