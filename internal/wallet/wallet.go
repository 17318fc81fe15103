// Package wallet tells the state of the owner's Bitcoin node over JSON-RPC. It only reads, by a closed list of questions;
// it holds no key, cannot pay, and writes nothing of what it learns anywhere (H3).
package wallet

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"atoll/internal/caller"
	"atoll/internal/fence"
	"atoll/internal/rpc"
	"atoll/internal/secret"
)

// Config is what a Room needs. With a URL there is exactly one way in: CookieFile, or User with Password.
type Config struct {
	Log *slog.Logger
	// URL is [wallet] url in config.toml; empty means no Bitcoin node. The path may name a wallet: /wallet/NAME.
	URL        string
	User       string // [wallet] user
	CookieFile string // [wallet] cookie_file, a full path
	// Password reads secrets/bitcoin-rpc-password anew at each attempt; an empty secret means there is none. Needed with
	// User.
	Password func() (secret.String, error)
	// Timeout bounds a whole answer; zero means 10 seconds.
	Timeout time.Duration
	Now     func() time.Time // nil means time.Now
}

// defaultTimeout bounds a whole answer, however many questions it takes.
const defaultTimeout = 10 * time.Second

// Room answers wallet.status. It is safe for concurrent use.
type Room struct {
	cfg    Config
	url    string // checked; empty means not configured
	named  bool   // the address names a wallet
	http   *http.Client
	shared shared
}

// New checks the configuration and sends nothing. The words of its error never hold the address, which could carry a
// password.
func New(cfg Config) (*Room, error) {
	switch {
	case cfg.Log == nil:
		return nil, errors.New("wallet: a log is needed")
	case cfg.Timeout < 0:
		return nil, errors.New("wallet: a timeout cannot be negative")
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Room{cfg: cfg, http: newHTTP(), shared: newShared()}
	if cfg.URL == "" {
		if cfg.User != "" || cfg.CookieFile != "" {
			return nil, errors.New("wallet.user or wallet.cookie_file is set, but wallet.url is not: set it too, for example http://127.0.0.1:8332")
		}
		return r, nil
	}
	if err := r.checkAddress(); err != nil {
		return nil, err
	}
	return r, checkAccess(cfg)
}

func (r *Room) checkAddress() error {
	u, err := url.Parse(r.cfg.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("wallet.url must look like http://127.0.0.1:8332")
	case u.User != nil:
		return errors.New("wallet.url must hold no user or password; set wallet.user, and put the password into " + passwordFile)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("wallet.url must have nothing behind the port but /wallet/NAME")
	}
	path, name := u.EscapedPath(), ""
	if path != "" && path != "/" {
		if name = strings.TrimPrefix(path, "/wallet/"); name == path || strings.Contains(name, "/") {
			return errors.New("wallet.url must have nothing behind the port but /wallet/NAME")
		}
	}
	r.url, r.named = u.String(), name != ""
	if u.Scheme == "http" && !here(u.Hostname()) {
		r.cfg.Log.Warn("wallet.url begins with http:// and names another machine: the password and all answers cross the network in the clear")
	}
	return nil
}

// here reports whether a host is this machine.
func here(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && net.IP(ip.AsSlice()).IsLoopback()
}

func checkAccess(cfg Config) error {
	switch {
	case cfg.CookieFile != "" && cfg.User != "":
		return errors.New("wallet.cookie_file and wallet.user are both set: keep one")
	case cfg.CookieFile != "" && !filepath.IsAbs(cfg.CookieFile):
		return errors.New("wallet.cookie_file must be a full path")
	case cfg.CookieFile != "":
		return nil
	case cfg.User == "":
		return errors.New("wallet.url is set, but no way in: set wallet.cookie_file, or wallet.user and put its password into " + passwordFile)
	case strings.Contains(cfg.User, ":") || !printable(cfg.User) || len(cfg.User) > 128:
		return errors.New("wallet.user must be one word without a colon")
	case cfg.Password == nil:
		return errors.New("wallet: a password is needed with a user")
	}
	return nil
}

// Close lets go of the connection to the node.
func (r *Room) Close() { r.http.CloseIdleConnections() }

// Methods are the room's rows.
func (r *Room) Methods() []rpc.Method {
	return []rpc.Method{
		rpc.Spec[rpc.None, Status]{
			Row: rpc.Row{Name: "wallet.status", Summary: "Tells height, sync and balance of the Bitcoin node, or that none is configured.",
				Effect: rpc.Read, Doors: rpc.People | rpc.Tools, Role: caller.Owner, Facts: true},
			Handle: func(ctx context.Context, _ caller.Caller, _ rpc.None) (Status, error) { return r.Status(ctx) },
		}.Method(),
	}
}

// notConfigured says where a Bitcoin node is configured.
func notConfigured() Status {
	return Status{Key: fence.Word("wallet.url"), File: fence.Word("config.toml")}
}
