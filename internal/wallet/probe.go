package wallet

import (
	"context"
	"strings"

	"github.com/go-json-experiment/json"
)

// Report is what a look at the node found, for doctor. Wallets and Status.Warnings are the node's words.
type Report struct {
	Configured bool
	Reachable  bool // the node told its chain
	Status     Status
	Reason     Reason   // why it was not reached
	Problem    string   // the same in words, with what to do
	Wallets    []string // names of loaded wallets, where wallet.url has to name one
	Advice     []string // what would be better, and lines for bitcoin.conf, with the least privilege that works
}

const (
	maxWallets    = 16
	maxWalletName = 64 // bytes
)

// Probe asks the node once, past what Status keeps, and changes nothing.
func (r *Room) Probe(ctx context.Context) Report {
	if r.url == "" {
		return Report{Reason: NotConfigured, Problem: "no Bitcoin node is configured: set url, and cookie_file or user, under [wallet] in config.toml"}
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	rep := Report{Configured: true}
	s, l, p := r.look(ctx)
	if p != nil {
		rep.Reason, rep.Problem, rep.Advice = p.reason, p.err.Public, r.adviceFor(p.reason)
		return rep
	}
	rep.Reachable, rep.Status = true, s
	if s.Wallet == WalletSeveral || s.Wallet == WalletNotLoaded {
		rep.Wallets = l.wallets(ctx)
	}
	rep.Advice = append(r.adviceFor(""), adviceOn(s)...)
	return rep
}

// wallets lists the names of the loaded wallets, as far as the node tells them.
func (l *look) wallets(ctx context.Context) []string {
	raw, p := l.ask(ctx, listWallets)
	var names []string
	if p != nil || raw.Kind() != '[' || json.Unmarshal(raw, &names) != nil {
		return nil
	}
	names = names[:min(len(names), maxWallets)]
	for i, n := range names {
		names[i] = shown(n, maxWalletName)
	}
	return names
}

// readOnlyUser are the lines of bitcoin.conf for a user who can only ask what Atoll asks. rpcwhitelistdefault=0 leaves
// other users as they are. With getbalances allowed the fallbacks for other nodes are not needed.
func readOnlyUser() []string {
	var list []string
	for _, m := range []method{getBlockchainInfo, getNetworkInfo, getBalances, getWalletInfo, listWallets} {
		list = append(list, m.String())
	}
	return []string{
		"rpcauth=atoll:SALT$HASH (share/rpcauth/rpcauth.py of Bitcoin Core, called with atoll, prints this line and a password for " + passwordFile + ")",
		"rpcwhitelist=atoll:" + strings.Join(list, ","),
		"rpcwhitelistdefault=0",
	}
}

// adviceFor says how to give access after a problem, or with none how to give less.
func (r *Room) adviceFor(reason Reason) []string {
	var why string
	switch reason {
	case WrongPassword, PasswordMissing, NotAllowed, CookieBad:
		why = "in bitcoin.conf, a user that can only read:"
	case CookieDenied:
		why = "with Bitcoin Core 28 or newer: rpccookieperms=group in bitcoin.conf, Atoll's user in the node's group, and the folders above the cookie open to the group (chmod g+x); the cookie opens all that the node can do, so a user that can only read is safer (wallet.user instead of wallet.cookie_file), in bitcoin.conf:"
	case "":
		if r.cfg.CookieFile == "" {
			return nil
		}
		why = "the cookie opens all that the node can do, spending too; a user that can only read is safer (wallet.user instead of wallet.cookie_file), in bitcoin.conf:"
	default:
		return nil
	}
	return append([]string{why}, readOnlyUser()...)
}

// adviceOn says what to do about a wallet that gives no balance, and what kind of chain it is.
func adviceOn(s Status) []string {
	var out []string
	switch s.Wallet {
	case WalletNoneLoaded:
		out = append(out, "no wallet is loaded: load one in the node (bitcoin-cli loadwallet NAME true)")
	case WalletNotLoaded:
		out = append(out, "the wallet that wallet.url names is not loaded: load it, or name another")
	case WalletSeveral:
		out = append(out, "several wallets are loaded: name one at the end of wallet.url, as in /wallet/NAME")
	case WalletNotSupported:
		out = append(out, "this node has no wallet (btcd, or Bitcoin Core with disablewallet=1): height and sync are shown, a balance is not")
	case WalletNotAllowed:
		out = append(out, "the user's rpcwhitelist leaves getbalances out: add it to see a balance")
	case WalletNoAnswer, WalletFailed:
		out = append(out, "the wallet gave no balance: it may be reading old blocks; look at the node's log if this stays")
	}
	switch s.Chain {
	case "main":
	case "other":
		out = append(out, "the node's chain is none of Bitcoin's that Atoll knows: check that wallet.url names the right node")
	default:
		out = append(out, "this is the chain "+string(s.Chain)+", not main: its coins are worth nothing")
	}
	return out
}
