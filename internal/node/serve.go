package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"atoll/internal/account"
	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/httpd"
	"atoll/internal/rpc"
	"atoll/internal/secret"
)

// Options are what Serve and Try are told by the command line.
type Options struct {
	DataDir string
	Listen  string // over the environment and the file; empty means theirs
	Version string
	Environ []string
	Out     io.Writer // the one line with the one-time address
	Log     *slog.Logger
}

func (o Options) config(dir string) (Config, error) {
	s, err := LoadSettings(dir, o.Environ)
	if err != nil {
		return Config{}, err
	}
	if o.Listen != "" {
		s.Listen = o.Listen
		if err := s.Check(); err != nil {
			return Config{}, err
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return Config{}, err
	}
	return Config{DataDir: dir, Settings: s, Version: o.Version, Executable: exe, Log: o.Log, Clock: clock.Real()}, nil
}

// Serve runs a node until ctx ends.
func Serve(ctx context.Context, o Options) (err error) {
	cfg, err := o.config(o.DataDir)
	if err != nil {
		return err
	}
	n, err := New(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	listeners, err := n.Listen(ctx)
	if err != nil {
		return err
	}
	scheme := "http://"
	if cfg.Settings.TLSCert != "" {
		scheme = "https://"
	}
	base := scheme + listeners[0].Addr().String()
	if address, ok := n.SetupAddress(ctx, base); ok {
		fmt.Fprintf(o.Out, "Create the owner, within one hour: %s\n", address)
	}
	o.Log.Info("the node is ready", "address", base, "data", cfg.DataDir, "version", cfg.Version)
	return n.Run(ctx, listeners...)
}

// Trial is a node that runs in this process, with its owner logged in.
type Trial struct {
	Address  string
	Token    secret.String
	CSRF     string
	Username string
	DataDir  string
	Close    func() error
}

// Try starts a node on a directory of its own and logs its owner in; nothing of the session is written to a file. The
// node listens only on its socket.
func Try(ctx context.Context, o Options) (*Trial, error) {
	dir, temporary := o.DataDir, o.DataDir == ""
	if temporary {
		var err error
		if dir, err = os.MkdirTemp("", "atoll-try-"); err != nil {
			return nil, err
		}
	}
	cleanup := func() error {
		if temporary {
			return os.RemoveAll(dir)
		}
		return nil
	}
	t, err := try(ctx, o, dir, cleanup)
	if err != nil {
		return nil, errors.Join(err, cleanup())
	}
	return t, nil
}

func try(ctx context.Context, o Options, dir string, cleanup func() error) (*Trial, error) {
	cfg, err := o.config(dir)
	if err != nil {
		return nil, err
	}
	cfg.StopApps = true
	n, err := New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	login, err := n.trialOwner(ctx)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	path := filepath.Join(dir, "atoll.sock")
	socket, err := httpd.ListenSocket(path)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	run, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- n.Run(run, []net.Listener{socket}...) }()
	token, _ := login.SessionCookie()
	return &Trial{Address: "unix://" + path, Token: token, CSRF: login.CSRF, Username: login.Username, DataDir: dir,
		Close: func() error {
			stop()
			return errors.Join(<-done, n.Close(), cleanup())
		}}, nil
}

// trialName is the owner that try logs in as.
const trialName = "you"

// trialOwner creates the owner as anybody does who has the one-time token. On a directory that has an owner already, try
// asks for nothing and so gets nothing: that node is served, not tried.
func (n *Node) trialOwner(ctx context.Context) (account.Login, error) {
	token, ok := n.accounts.SetupToken(ctx)
	if !ok {
		return account.Login{}, fmt.Errorf("%s already belongs to an owner; run atoll serve on it and log in", n.dir.path)
	}
	params, err := rpc.Marshal(map[string]string{"token": token, "username": trialName, "password": rand.Text()})
	if err != nil {
		return account.Login{}, err
	}
	result, err := n.gate.Call(ctx, caller.Stranger("socket"), rpc.People, "auth.setup", params, nil)
	if err != nil {
		return account.Login{}, err
	}
	return result.(account.Login), nil
}
