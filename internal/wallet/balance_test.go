package wallet

import (
	"net/http"
	"testing"
	"time"

	"atoll/internal/rpc"
)

// F-E15, issue 3: amounts arrive as whole satoshis with every digit; each way to have no balance is its own word and
// leaves the height standing. An amount that is none spoils the balance: it is never shown in part.
func TestBalance(t *testing.T) {
	for _, c := range []struct {
		name     string
		balances string // getbalances; empty is a node without it
		balance  string // getbalance
		url      string // behind the address
		state    WalletState
		want     string // balance_sat
	}{
		{"all of Core", `{"mine":{"trusted":20999999.97690000,"untrusted_pending":1e-8,"immature":0.00000000,"used":0.10000000},"watchonly":{"trusted":3.00000001,"untrusted_pending":0,"immature":0}}`,
			"", "", WalletLoaded, `{"confirmed":2099999997690000,"pending":1,"immature":0,"reused":10000000,"watch_only":300000001}`},
		{"nothing", `{"mine":{"trusted":0.00000000,"untrusted_pending":0.00000000,"immature":0.00000000}}`, "", "", WalletLoaded, `{"confirmed":0,"pending":0,"immature":0}`},
		{"only what is trusted", `{"mine":{"trusted":1}}`, "", "", WalletLoaded, `{"confirmed":100000000}`},
		{"btcwallet", "", "5e-07", "", WalletLoaded, `{"confirmed":50}`},
		{"btcwallet, much", "", "300", "", WalletLoaded, `{"confirmed":30000000000}`},
		{"btcd", "", `!{"code":-1,"message":"This implementation does not implement wallet commands"}`, "", WalletNotSupported, ""},
		{"Core without a wallet", "", "", "", WalletNotSupported, ""},
		{"none loaded", `!{"code":-18,"message":"No wallet is loaded. Load a wallet using loadwallet or create a new one with createwallet."}`, "", "", WalletNoneLoaded, ""},
		{"the named one not loaded", `!{"code":-18,"message":"Requested wallet does not exist or is not loaded"}`, "", "/wallet/savings", WalletNotLoaded, ""},
		{"several", `!{"code":-19,"message":"Multiple wallets are loaded. Please select which wallet to use."}`, "", "", WalletSeveral, ""},
		{"none loaded, old", "", `!{"code":-18,"message":"x"}`, "", WalletNoneLoaded, ""},
		{"an odd error", `!{"code":-4,"message":"x"}`, "1", "", WalletFailed, ""},
		{"a text", `{"mine":{"trusted":"1.0"}}`, "1", "", WalletFailed, ""},
		{"below zero", `{"mine":{"trusted":-0.00000001}}`, "1", "", WalletFailed, ""},
		{"finer than a satoshi", `{"mine":{"trusted":0.000000001}}`, "1", "", WalletFailed, ""},
		{"more than there are", `{"mine":{"trusted":21000000.00000001}}`, "1", "", WalletFailed, ""},
		{"one part bad", `{"mine":{"trusted":1,"untrusted_pending":null}}`, "1", "", WalletFailed, ""},
		{"a name twice", `{"mine":{"trusted":1,"trusted":2}}`, "1", "", WalletFailed, ""},
		{"a name in capitals", `{"mine":{"Trusted":1}}`, "1", "", WalletFailed, ""},
		{"no wallet in it", `{}`, "1", "", WalletFailed, ""},
		{"a number", `1`, "1", "", WalletFailed, ""},
		{"an old one that is none", "", `"1"`, "", WalletFailed, ""},
		{"an old one below zero", "", `-1`, "", WalletFailed, ""},
	} {
		for _, version2 := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				f := newFake(t)
				f.version2 = version2
				f.answers["getbalances"], f.answers["getbalance"] = c.balances, c.balance
				cfg := f.config()
				cfg.URL += c.url
				s, err := open(t, cfg).Status(t.Context())
				if err != nil || *s.Height != 870000 || !*s.Synced || s.Wallet != c.state || (s.BalanceSat == nil) != (c.want == "") {
					t.Fatalf("%+v, %v", s, err)
				}
				if s.BalanceSat != nil {
					if raw, err := rpc.Marshal(s.BalanceSat); err != nil || string(raw) != c.want {
						t.Errorf("%s, %v", raw, err)
					}
				}
				if c.balances != "" && f.count("getbalance") > 0 {
					t.Error("the old question was put to a node that knows the new one")
				}
			})
		}
	}
}

// A whitelist that leaves the wallet out is no wrong password.
func TestBalanceNotAllowed(t *testing.T) {
	f := newFake(t)
	f.denied = []string{"getbalances"}
	if s, err := open(t, f.config()).Status(t.Context()); err != nil || s.Wallet != WalletNotAllowed || s.BalanceSat != nil || *s.Height != 870000 {
		t.Errorf("%+v, %v", s, err)
	}
	f = newFake(t)
	f.denied = []string{"getwalletinfo", "getnetworkinfo", "listwallets"}
	if s, err := open(t, f.config()).Status(t.Context()); err != nil || s.Wallet != WalletLoaded || s.Scanning {
		t.Errorf("%+v, %v", s, err)
	}
}

// A balance that does not hold yet says so.
func TestBalanceLate(t *testing.T) {
	for name, c := range map[string]struct{ method, answer string }{
		"behind":   {"getbalances", `{"mine":{"trusted":1},"lastprocessedblock":{"height":869999}}`},
		"scanning": {"getwalletinfo", `{"scanning":{"duration":3,"progress":0.5}}`},
	} {
		f := newFake(t)
		f.answers[c.method] = c.answer
		s, err := open(t, f.config()).Status(t.Context())
		if err != nil || len(s.Notes) != 1 || s.Notes[0] != NoteBalanceLate || s.Scanning != (name == "scanning") {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	f := newFake(t)
	f.answers["getbalances"] = `{"mine":{"trusted":1},"lastprocessedblock":{"height":-5}}`
	if s, err := open(t, f.config()).Status(t.Context()); err != nil || s.WalletHeight != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

// The node goes away between two questions: the height it told stands.
func TestNodeStopsInTheMiddle(t *testing.T) {
	f := newFake(t)
	f.raw = nil
	cfg := f.config()
	cfg.Timeout = 5 * time.Second
	f.set(func() {
		drop := hangUp("")
		f.raw = func(w http.ResponseWriter, method string) bool {
			return method != "getblockchaininfo" && drop(w, method)
		}
	})
	s, err := open(t, cfg).Status(t.Context())
	if err != nil || *s.Height != 870000 || s.Peers != nil || s.Wallet != WalletFailed {
		t.Errorf("%+v, %v", s, err)
	}
}
