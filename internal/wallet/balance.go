package wallet

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// wallet fills in the balance, or why there is none.
func (l *look) wallet(ctx context.Context, share time.Duration, s *Status) {
	ctx, cancel := context.WithTimeout(ctx, share)
	defer cancel()
	raw, p := l.ask(ctx, getBalances)
	if p != nil && p.code == codeNoMethod {
		l.oldWallet(ctx, s)
		return
	}
	if p != nil {
		s.Wallet = l.room.walletState(p)
		return
	}
	b, height, ok := balances(raw)
	if !ok {
		s.Wallet = WalletFailed
		return
	}
	s.Wallet, s.BalanceSat, s.WalletHeight = WalletLoaded, &b, height
	s.Scanning = l.scanning(ctx)
}

// balances reads the answer of getbalances. One amount that is none spoils it all: a part would look like the whole.
func balances(raw jsontext.Value) (b Balance, height *int64, ok bool) {
	type amounts struct {
		Trusted  jsontext.Value `json:"trusted"`
		Pending  jsontext.Value `json:"untrusted_pending"`
		Immature jsontext.Value `json:"immature"`
		Used     jsontext.Value `json:"used"`
	}
	var w struct {
		Mine      *amounts `json:"mine"`
		WatchOnly *amounts `json:"watchonly"`
		Processed *struct {
			Height *int64 `json:"height"`
		} `json:"lastprocessedblock"`
	}
	if !decode(raw, &w) || w.Mine == nil {
		return Balance{}, nil, false
	}
	if b.Confirmed, ok = satoshis(w.Mine.Trusted); !ok {
		return Balance{}, nil, false
	}
	watched := jsontext.Value(nil)
	if w.WatchOnly != nil {
		watched = w.WatchOnly.Trusted
	}
	for _, part := range []struct {
		raw jsontext.Value
		to  **int64
	}{{w.Mine.Pending, &b.Pending}, {w.Mine.Immature, &b.Immature}, {w.Mine.Used, &b.Reused}, {watched, &b.WatchOnly}} {
		if len(part.raw) == 0 {
			continue
		}
		n, ok := satoshis(part.raw)
		if !ok {
			return Balance{}, nil, false
		}
		*part.to = &n
	}
	if w.Processed != nil && w.Processed.Height != nil && *w.Processed.Height >= 0 && *w.Processed.Height <= maxHeight {
		height = w.Processed.Height
	}
	return b, height, true
}

// oldWallet asks a node that has no getbalances: btcd without a wallet, btcwallet, Bitcoin Core built without one.
func (l *look) oldWallet(ctx context.Context, s *Status) {
	raw, p := l.ask(ctx, getBalance)
	switch {
	case p != nil && (p.code == codeNoMethod || p.code == codeMisc):
		s.Wallet = WalletNotSupported
	case p != nil:
		s.Wallet = l.room.walletState(p)
	default:
		n, ok := satoshis(raw)
		if !ok {
			s.Wallet = WalletFailed
			return
		}
		s.Wallet, s.BalanceSat = WalletLoaded, &Balance{Confirmed: n}
	}
}

// walletState is a problem with the wallet alone, as a word.
func (r *Room) walletState(p *problem) WalletState {
	switch {
	case p.code == codeWalletNotFound && r.named:
		return WalletNotLoaded
	case p.code == codeWalletNotFound:
		return WalletNoneLoaded
	case p.code == codeWalletMany:
		return WalletSeveral
	case p.reason == NotAllowed:
		return WalletNotAllowed
	case p.reason == NoAnswer:
		return WalletNoAnswer
	}
	return WalletFailed
}

// scanning reports whether the wallet is reading old blocks: getwalletinfo says false, or how far it is. A node that
// does not tell counts as not scanning.
func (l *look) scanning(ctx context.Context) bool {
	raw, p := l.ask(ctx, getWalletInfo)
	var w struct {
		Scanning jsontext.Value `json:"scanning"`
	}
	return p == nil && decode(raw, &w) && w.Scanning.Kind() == '{'
}
