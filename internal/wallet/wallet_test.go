package wallet

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/rpc"
)

func status(t *testing.T, cfg Config, c caller.Caller, params string) (any, error) {
	t.Helper()
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g := rpc.NewGate(rpc.Config{Methods: r.Methods(), Log: cfg.Log})
	return g.Call(t.Context(), c, rpc.Tools, "wallet.status", jsontext.Value(params), nil)
}

var owner = caller.Operator(1, "ann", caller.Owner, "s1", "127.0.0.1")

// SPEC 4, Wallet: "not configured" is a clear answer, and plain facts.
func TestNotConfigured(t *testing.T) {
	got, err := status(t, Config{Log: slog.New(slog.DiscardHandler)}, owner, "{}")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := rpc.Marshal(got)
	if err != nil || string(raw) != `{"configured":false,"supported":false,"config_key":"wallet.url","config_file":"config.toml"}` {
		t.Errorf("%s, %v", raw, err)
	}
	if fence.Facts("wallet_status", got, string(raw)).IsOutside() {
		t.Error("the answer is fenced")
	}
}

func TestConfiguredIsNotClaimedToWork(t *testing.T) {
	var log bytes.Buffer
	got, err := status(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil)), URL: "http://127.0.0.1:8332"}, owner, "{}")
	if got != nil && err == nil || !fault.Is(err, fault.NotConfigured) {
		t.Errorf("%v, %v", got, err)
	}
	if !strings.Contains(log.String(), "cannot read a Bitcoin node yet") || strings.Contains(log.String(), "8332") {
		t.Errorf("the log says %s", log.String())
	}
}

func TestBadAddressIsNotRepeated(t *testing.T) {
	for _, bad := range []string{"http://user:hunter2@host:1", "ftp://hunter2", "hunter2", "http://", "http://[hunter2", "://hunter2"} {
		_, err := New(Config{Log: slog.New(slog.DiscardHandler), URL: bad})
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "wallet.url") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("an empty config was accepted")
	}
}

func TestWhoMay(t *testing.T) {
	for _, c := range []caller.Caller{{}, caller.Operator(1, "m", caller.Member, "s", ""), caller.Peer("k", "n")} {
		if _, err := status(t, Config{Log: slog.New(slog.DiscardHandler)}, c, "{}"); !fault.Is(err, fault.Forbidden) {
			t.Errorf("%s: %v", c, err)
		}
	}
	if _, err := status(t, Config{Log: slog.New(slog.DiscardHandler)}, owner, `{"url":"x"}`); fault.Of(err).Field != "url" {
		t.Error(err)
	}
}
