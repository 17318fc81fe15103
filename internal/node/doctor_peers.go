package node

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"atoll/internal/app/docker"
	"atoll/internal/app/systemd"
	"atoll/internal/secret"
	"atoll/internal/wallet"
)

// peerTime bounds the look at each peer.
const peerTime = 15 * time.Second

// doctorPeers looks for what the configuration says is on this machine: container engine, units, Bitcoin node. What is
// neither there nor configured is no fault.
func doctorPeers(ctx context.Context, dir string, s Settings) []Finding {
	quiet := slog.New(slog.DiscardHandler)
	out := doctorEngine(ctx, s, quiet)
	out = append(out, doctorUnits(ctx, s, quiet)...)
	out = append(out, doctorWallet(ctx, dir, s, quiet)...)
	return append(out, doctorMesh(ctx, s)...)
}

func doctorEngine(ctx context.Context, s Settings, log *slog.Logger) []Finding {
	if s.Apps.Docker == "off" || s.Apps.Docker == "" {
		return []Finding{{Name: "container engine", OK: true, Detail: "switched off (apps.docker)"}}
	}
	ctx, cancel := context.WithTimeout(ctx, peerTime)
	defer cancel()
	cfg := dockerConfig(s)
	cfg.Log = log
	r, err := docker.Probe(ctx, cfg)
	f := Finding{Name: "container engine"}
	switch {
	case err != nil:
		f.Detail, f.Fix = words(err), "correct apps.docker in config.toml"
	case r.Up:
		f.OK, f.Detail = true, fmt.Sprintf("%s %s at %s, API %s", r.Engine, r.Version, r.Socket, r.API)
		f.Fix = strings.Join(r.Besides, "\n")
	case r.Absent:
		f.OK, f.Detail = true, r.Problem
	default:
		f.Detail, f.Fix = r.Problem, strings.Join(r.Besides, "\n")
	}
	return []Finding{f}
}

func doctorUnits(ctx context.Context, s Settings, log *slog.Logger) []Finding {
	if len(s.Apps.SystemdUnits) == 0 {
		return []Finding{{Name: "systemd units", OK: true, Detail: "none listed (apps.systemd_units)"}}
	}
	ctx, cancel := context.WithTimeout(ctx, peerTime)
	defer cancel()
	cfg := systemdConfig(s)
	cfg.Log = log
	r, err := systemd.Probe(ctx, cfg)
	if err != nil {
		return []Finding{{Name: "systemd units", Detail: words(err), Fix: "correct apps.systemd_units in config.toml"}}
	}
	if r.Bus != nil {
		return []Finding{{Name: "systemd", Detail: words(r.Bus)}}
	}
	out := []Finding{{Name: "systemd", OK: true, Detail: "version " + r.Version}}
	if r.Rule != "" {
		out[0].Fix = "to let " + r.User + " start and stop these units and no other, put this into " + systemd.RuleFile + ":\n" + r.Rule
	}
	for _, u := range r.Units {
		f := Finding{Name: "unit " + u.Name, OK: u.Problem == "", Detail: string(u.State)}
		if !f.OK {
			f.Detail = u.Problem
		}
		out = append(out, f)
	}
	j := Finding{Name: "journal", OK: r.Journal == nil, Detail: "can be read"}
	if !j.OK {
		j.Detail = words(r.Journal)
	}
	return append(out, j)
}

func doctorWallet(ctx context.Context, dir string, s Settings, log *slog.Logger) []Finding {
	f := Finding{Name: "bitcoin node"}
	room, err := wallet.New(walletConfig(dir, s, log))
	if err != nil {
		f.Detail, f.Fix = words(err), "correct [wallet] in config.toml"
		return []Finding{f}
	}
	defer room.Close()
	ctx, cancel := context.WithTimeout(ctx, peerTime)
	defer cancel()
	r := room.Probe(ctx)
	f.Fix = strings.Join(r.Advice, "\n")
	switch {
	case !r.Configured:
		f.OK, f.Detail = true, "none configured (wallet.url)"
	case !r.Reachable:
		f.Detail = r.Problem
	default:
		f.OK, f.Detail = true, fmt.Sprintf("chain %s, height %s of %s, wallet %s", r.Status.Chain, number(r.Status.Height), number(r.Status.Headers), r.Status.Wallet)
		if len(r.Wallets) > 0 {
			f.Detail += ": " + strings.Join(r.Wallets, ", ")
		}
	}
	return []Finding{f}
}

func number(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return strconv.FormatInt(*n, 10)
}

// walletConfig is the wallet room's, with its password read from the secrets at each attempt.
func walletConfig(dir string, s Settings, log *slog.Logger) wallet.Config {
	return wallet.Config{Log: log, URL: s.Wallet.URL, User: s.Wallet.User, CookieFile: s.Wallet.CookieFile,
		Password: func() (secret.String, error) {
			text, err := secretFile(dir, "bitcoin-rpc-password")
			return secret.New(text), err
		}}
}
