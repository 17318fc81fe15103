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
	"atoll/internal/secret"
)

func status(t *testing.T, cfg Config, c caller.Caller, params string) (any, error) {
	t.Helper()
	g := rpc.NewGate(rpc.Config{Methods: open(t, cfg).Methods(), Log: cfg.Log})
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
	if err != nil || string(raw) != `{"configured":false,"reachable":false,"config_key":"wallet.url","config_file":"config.toml"}` {
		t.Errorf("%s, %v", raw, err)
	}
	if fence.Facts("wallet_status", got, string(raw)).IsOutside() {
		t.Error("the answer is fenced")
	}
}

// SPEC 4, Wallet: what the assistant reads of a healthy node, whole and exact, and plain facts.
func TestStatusThroughTheGate(t *testing.T) {
	for _, version2 := range []bool{false, true} {
		f := newFake(t)
		f.version2 = version2
		got, err := status(t, f.config(), owner, "{}")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := rpc.Marshal(got)
		if want := `{"configured":true,"reachable":true,"chain":"main","height":870000,"headers":870000,"synced":true,"progress_ppm":999999,` +
			`"tip_time":"2027-01-15T08:00:00Z","pruned":false,"peers":11,"wallet":"loaded",` +
			`"balance_sat":{"confirmed":12345678,"pending":1,"immature":5000000000},"wallet_height":870000,` +
			`"version":280100,"subversion":"/Satoshi:28.1.0/"}`; err != nil || string(raw) != want {
			t.Errorf("%s, %v", raw, err)
		}
		if fence.Facts("wallet_status", got, string(raw)).IsOutside() {
			t.Error("the answer is fenced")
		}
	}
}

func TestConfigurationIsOneWayIn(t *testing.T) {
	password := func() (secret.String, error) { return secret.New(canary), nil }
	for name, c := range map[string]struct {
		cfg  Config
		want string // in the error; empty means accepted
	}{
		"cookie":             {Config{URL: "http://127.0.0.1:8332", CookieFile: "/x/.cookie"}, ""},
		"user":               {Config{URL: "http://[::1]:8332/", User: "atoll", Password: password}, ""},
		"a wallet":           {Config{URL: "http://127.0.0.1:8332/wallet/my%20coins", User: "atoll", Password: password}, ""},
		"neither":            {Config{URL: "http://127.0.0.1:8332", Password: password}, "wallet.cookie_file, or wallet.user"},
		"both":               {Config{URL: "http://127.0.0.1:8332", User: "a", CookieFile: "/x", Password: password}, "both set"},
		"no url":             {Config{User: "a", Password: password}, "wallet.url is not"},
		"no url, cookie":     {Config{CookieFile: "/x"}, "wallet.url is not"},
		"relative cookie":    {Config{URL: "http://127.0.0.1:8332", CookieFile: ".bitcoin/.cookie"}, "wallet.cookie_file"},
		"user with a colon":  {Config{URL: "http://127.0.0.1:8332", User: "a:" + canary, Password: password}, "wallet.user"},
		"user with a break":  {Config{URL: "http://127.0.0.1:8332", User: "a\r\n" + canary, Password: password}, "wallet.user"},
		"no reader":          {Config{URL: "http://127.0.0.1:8332", User: "a"}, "password"},
		"a secret in it":     {Config{URL: "http://a:" + canary + "@127.0.0.1:8332", CookieFile: "/x"}, "wallet.url must hold no user"},
		"a query":            {Config{URL: "http://127.0.0.1:8332/?x=" + canary, CookieFile: "/x"}, "wallet.url"},
		"another path":       {Config{URL: "http://127.0.0.1:8332/rest/" + canary, CookieFile: "/x"}, "wallet.url"},
		"a path of a wallet": {Config{URL: "http://127.0.0.1:8332/wallet/a/" + canary, CookieFile: "/x"}, "wallet.url"},
		"another scheme":     {Config{URL: "ftp://" + canary, CookieFile: "/x"}, "wallet.url"},
		"no scheme":          {Config{URL: canary, CookieFile: "/x"}, "wallet.url"},
		"no host":            {Config{URL: "http://", CookieFile: "/x"}, "wallet.url"},
		"no address":         {Config{URL: "http://[" + canary, CookieFile: "/x"}, "wallet.url"},
		"timeout":            {Config{URL: "http://127.0.0.1:8332", CookieFile: "/x", Timeout: -1}, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Log = slog.New(slog.DiscardHandler)
			_, err := New(c.cfg)
			if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), canary)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if _, err := New(Config{}); err == nil {
		t.Error("an empty config was accepted")
	}
}

// A password that crosses a network in the clear is worth a word in the log, which never holds the address.
func TestInTheClear(t *testing.T) {
	for address, warns := range map[string]bool{"http://127.0.0.1:8332": false, "http://localhost:1": false, "http://[::1]:1": false,
		"https://192.0.2.1:1": false, "http://192.0.2.1:8332": true, "http://node.example:1": true, "http://[::ffff:127.0.0.1]:1": false} {
		var log bytes.Buffer
		open(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil)), URL: address, CookieFile: "/x"})
		if got := strings.Contains(log.String(), "in the clear"); got != warns || strings.Contains(log.String(), "192.0.2.1") {
			t.Errorf("%s: %s", address, log.String())
		}
	}
}

func TestWhoMay(t *testing.T) {
	f := newFake(t)
	for _, c := range []caller.Caller{{}, caller.Operator(1, "m", caller.Member, "s", ""), caller.Peer("k", "n")} {
		if _, err := status(t, f.config(), c, "{}"); !fault.Is(err, fault.Forbidden) {
			t.Errorf("%s: %v", c, err)
		}
	}
	if _, err := status(t, f.config(), owner, `{"url":"x"}`); fault.Of(err).Field != "url" {
		t.Error(err)
	}
	if f.conns.Load() != 0 {
		t.Error("the node was asked")
	}
}
