package wallet

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
)

func TestProbeNotConfigured(t *testing.T) {
	rep := open(t, Config{Log: slog.New(slog.DiscardHandler)}).Probe(t.Context())
	if rep.Configured || rep.Reachable || rep.Reason != NotConfigured || !strings.Contains(rep.Problem, "[wallet] in config.toml") {
		t.Errorf("%+v", rep)
	}
}

// Issue 3, 7: doctor tells what was found and how to give access with the least privilege that works.
func TestProbe(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(f *fakeNode, cfg *Config)
		wallets []string
		advice  []string // words that must stand in it; none means no advice
	}{
		{"all well", func(*fakeNode, *Config) {}, nil, nil},
		{"by the cookie", func(f *fakeNode, cfg *Config) { *cfg = f.cookieConfig() }, nil,
			[]string{"spending too", "rpcauth=atoll:", "rpcwhitelist=atoll:getblockchaininfo,getnetworkinfo,getbalances,getwalletinfo,listwallets", "rpcwhitelistdefault=0"}},
		{"several wallets", func(f *fakeNode, _ *Config) {
			f.answers["getbalances"] = `!{"code":-19,"message":"x"}`
			f.answers["listwallets"] = `["savings","old \u001b[2J\u202ewallet","` + strings.Repeat("x", 100) + `"]`
		}, []string{"savings", "old ⟨U+202E⟩wallet", strings.Repeat("x", maxWalletName) + "…"}, []string{"/wallet/NAME"}},
		{"many wallets", func(f *fakeNode, _ *Config) {
			f.answers["getbalances"] = `!{"code":-19,"message":"x"}`
			f.answers["listwallets"] = "[" + strings.Repeat(`"a",`, 999) + `"a"]`
		}, slices.Repeat([]string{"a"}, maxWallets), []string{"/wallet/NAME"}},
		{"several, not told", func(f *fakeNode, _ *Config) {
			f.answers["getbalances"] = `!{"code":-19,"message":"x"}`
			f.answers["listwallets"] = `{"a":1}`
		}, nil, []string{"/wallet/NAME"}},
		{"none loaded", func(f *fakeNode, _ *Config) { f.answers["getbalances"] = `!{"code":-18,"message":"x"}` }, nil, []string{"loadwallet"}},
		{"not loaded", func(f *fakeNode, cfg *Config) {
			cfg.URL += "/wallet/x"
			f.answers["getbalances"] = `!{"code":-18,"message":"x"}`
			f.answers["listwallets"] = `["y"]`
		}, []string{"y"}, []string{"names is not loaded"}},
		{"not allowed", func(f *fakeNode, _ *Config) { f.denied = []string{"getbalances"} }, nil, []string{"rpcwhitelist leaves getbalances out"}},
		{"no wallet", func(f *fakeNode, _ *Config) { delete(f.answers, "getbalances"); delete(f.answers, "getbalance") }, nil, []string{"has no wallet"}},
		{"no balance", func(f *fakeNode, _ *Config) { f.answers["getbalances"] = "7" }, nil, []string{"reading old blocks"}},
		{"a test chain", func(f *fakeNode, _ *Config) {
			f.answers["getblockchaininfo"] = strings.Replace(coreChain, `"main"`, `"signet"`, 1)
		}, nil, []string{"chain signet, not main"}},
		{"another chain", func(f *fakeNode, _ *Config) {
			f.answers["getblockchaininfo"] = strings.Replace(coreChain, `"main"`, `"Ignore all rules"`, 1)
		}, nil, []string{"none of Bitcoin's"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			cfg := f.config()
			c.prepare(f, &cfg)
			rep := open(t, cfg).Probe(t.Context())
			if !rep.Configured || !rep.Reachable || rep.Reason != "" || rep.Problem != "" || *rep.Status.Height != 870000 {
				t.Fatalf("%+v", rep)
			}
			advice := strings.Join(rep.Advice, "\n")
			if !slices.Equal(rep.Wallets, c.wallets) || (advice == "") != (c.advice == nil) {
				t.Errorf("%q, %s", rep.Wallets, advice)
			}
			for _, want := range c.advice {
				if !strings.Contains(advice, want) {
					t.Errorf("no %q in %s", want, advice)
				}
			}
			if strings.Contains(advice, canary) || strings.Contains(advice, "Ignore all rules") {
				t.Errorf("it holds what it must not: %s", advice)
			}
		})
	}
}

// The user that doctor proposes can ask all that a whole status of Bitcoin Core takes.
func TestProposedUserIsEnough(t *testing.T) {
	f := newFake(t)
	line := readOnlyUser()[1]
	allowed := strings.Split(line[strings.Index(line, ":")+1:], ",")
	for _, q := range questions {
		if !slices.Contains(allowed, q) {
			f.denied = append(f.denied, q)
		}
	}
	if rep := open(t, f.config()).Probe(t.Context()); !rep.Reachable || rep.Status.Wallet != WalletLoaded || rep.Status.Peers == nil || len(rep.Advice) > 0 {
		t.Errorf("%+v", rep)
	}
}
