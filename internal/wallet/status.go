package wallet

import (
	"context"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fence"
)

// Status is the result of wallet.status. What is absent is not known; amounts are whole satoshis.
type Status struct {
	Configured bool       `json:"configured"`
	Reachable  bool       `json:"reachable"`
	Key        fence.Word `json:"config_key,omitzero"`  // where no node is configured: what to set,
	File       fence.Word `json:"config_file,omitzero"` // and where

	Chain   fence.Word `json:"chain,omitzero"` // main, test, testnet4, signet, regtest, simnet or other
	Height  *int64     `json:"height,omitzero"`
	Headers *int64     `json:"headers,omitzero"`
	// Synced is the node's own word that it has caught up, checked against its headers and, where it has no peers or
	// says nothing, against the age of its newest block.
	Synced      *bool     `json:"synced,omitzero"`
	ProgressPPM *int64    `json:"progress_ppm,omitzero"` // verified share of the chain in parts per million
	TipTime     time.Time `json:"tip_time,omitzero"`     // of the newest block; its median time where the node tells only that
	Pruned      *bool     `json:"pruned,omitzero"`
	Peers       *int64    `json:"peers,omitzero"`

	Wallet       WalletState `json:"wallet,omitzero"`
	BalanceSat   *Balance    `json:"balance_sat,omitzero"`
	WalletHeight *int64      `json:"wallet_height,omitzero"`   // the balance holds up to this block
	Scanning     bool        `json:"wallet_scanning,omitzero"` // the wallet reads old blocks: the balance is not final

	Version    *int64       `json:"version,omitzero"`    // the node's own number, 280100 for 28.1.0
	Subversion fence.Word   `json:"subversion,omitzero"` // the node's words
	Warnings   []string     `json:"warnings,omitzero"`   // the node's words
	Notes      []fence.Word `json:"notes,omitzero"`      // the Note constants
}

// Balance is a wallet's balance in satoshis. What is absent the node did not tell.
type Balance struct {
	Confirmed int64  `json:"confirmed"`           // can be spent
	Pending   *int64 `json:"pending,omitzero"`    // received, in no block yet
	Immature  *int64 `json:"immature,omitzero"`   // mined less than 100 blocks ago
	Reused    *int64 `json:"reused,omitzero"`     // on addresses spent from before, where the wallet avoids those
	WatchOnly *int64 `json:"watch_only,omitzero"` // confirmed, on addresses that an old wallet only watches
}

// WalletState is what could be learnt of the wallet.
type WalletState = fence.Word

// The states. Only with WalletLoaded there is a balance.
const (
	WalletLoaded       WalletState = "loaded"
	WalletNoneLoaded   WalletState = "none_loaded"   // load one in the node
	WalletNotLoaded    WalletState = "not_loaded"    // the one that wallet.url names
	WalletSeveral      WalletState = "several"       // name one in wallet.url: /wallet/NAME
	WalletNotSupported WalletState = "not_supported" // this node has no wallet
	WalletNotAllowed   WalletState = "not_allowed"   // not on the user's rpcwhitelist
	WalletNoAnswer     WalletState = "no_answer"     // not in time
	WalletFailed       WalletState = "failed"        // an answer that is none
)

// Notes on a status that is true and still not the whole story.
const (
	NoteNoPeers      fence.Word = "no_peers"
	NotePeersUnknown fence.Word = "peers_unknown"
	NoteStaleTip     fence.Word = "stale_tip"     // no new block for staleAfter
	NoteClockBehind  fence.Word = "clock_behind"  // the newest block is from the future of this machine
	NoteSyncNotTold  fence.Word = "sync_not_told" // the node does not say whether it has caught up (btcd)
	NoteBalanceLate  fence.Word = "balance_late"  // the wallet has not read the newest blocks
)

const (
	// staleAfter is far beyond the gaps between blocks that chance makes: three hours without one happen once in a
	// thousand years. A median time lags by one of them.
	staleAfter = 3 * time.Hour
	// future is how far ahead of its own clock a node accepts a block.
	future = 2 * time.Hour

	maxHeight     = 1<<31 - 1
	maxTime       = 1<<32 - 1 // a block's time has 32 bits
	maxCount      = 1 << 20   // of peers
	maxSubversion = 256       // bytes, as in Bitcoin Core
	maxWarnings   = 4
	maxWarning    = 256 // bytes
)

// wireChain is the part of getblockchaininfo that Atoll reads. btcd leaves out what it does not know.
type wireChain struct {
	Chain      *string        `json:"chain"`
	Blocks     *int64         `json:"blocks"`
	Headers    *int64         `json:"headers"`
	Time       *int64         `json:"time"`
	MedianTime *int64         `json:"mediantime"`
	Progress   jsontext.Value `json:"verificationprogress"`
	Syncing    *bool          `json:"initialblockdownload"`
	Pruned     *bool          `json:"pruned"`
	Warnings   jsontext.Value `json:"warnings"`
}

// sound reports whether it is an answer that a Bitcoin node could give.
func (w wireChain) sound() bool {
	in := func(n *int64, least, most int64) bool { return n == nil || *n >= least && *n <= most }
	return w.Chain != nil && w.Blocks != nil && w.Headers != nil && in(w.Blocks, 0, maxHeight) && in(w.Headers, -1, maxHeight) &&
		in(w.Time, 0, maxTime) && in(w.MedianTime, 0, maxTime)
}

// look asks all there is to ask, each part within its share of the time, so that a wallet that hangs does not hide the
// height. It fails only where the chain itself is not told.
func (r *Room) look(ctx context.Context) (Status, *look, *problem) {
	l, p := r.newLook()
	if p != nil {
		return Status{}, nil, p
	}
	s := Status{Configured: true, Reachable: true}
	told, p := l.chain(ctx, r.cfg.Timeout/2, &s)
	if p != nil {
		return Status{}, l, p
	}
	l.network(ctx, r.cfg.Timeout/5, &s)
	l.wallet(ctx, r.cfg.Timeout/4, &s)
	if ctx.Err() != nil { // the caller's end, or a clock that jumped; what is missing would look like an answer
		return Status{}, l, transport(ctx, context.Cause(ctx))
	}
	s.judge(told, r.cfg.Now())
	return s, l, nil
}

// chain reports what the node said of its sync; nil means nothing.
func (l *look) chain(ctx context.Context, share time.Duration, s *Status) (syncing *bool, p *problem) {
	ctx, cancel := context.WithTimeout(ctx, share)
	defer cancel()
	raw, p := l.ask(ctx, getBlockchainInfo)
	if p != nil {
		if p.code == codeNoMethod {
			p = notBitcoin(nil)
		}
		return nil, p
	}
	var w wireChain
	if !decode(raw, &w) || !w.sound() {
		return nil, notBitcoin(nil)
	}
	s.Chain, s.Height, s.Headers, s.Pruned = chainName(*w.Chain), w.Blocks, new(max(*w.Headers, 0)), w.Pruned
	if ppm, ok := partsPerMillion(w.Progress); ok {
		s.ProgressPPM = &ppm
	}
	switch {
	case w.Time != nil:
		s.TipTime = time.Unix(*w.Time, 0).UTC()
	case w.MedianTime != nil:
		s.TipTime = time.Unix(*w.MedianTime, 0).UTC()
	}
	s.warn(w.Warnings)
	return w.Syncing, nil
}

// chainName is a chain by the name that Bitcoin Core gives it; btcd has others.
func chainName(s string) fence.Word {
	switch s {
	case "main", "mainnet":
		return "main"
	case "test", "testnet3":
		return "test"
	case "testnet4", "signet", "regtest", "simnet":
		return fence.Word(s)
	}
	return "other"
}

// network fills in peers, version and warnings. They are worth having, and missing they hide nothing.
func (l *look) network(ctx context.Context, share time.Duration, s *Status) {
	ctx, cancel := context.WithTimeout(ctx, share)
	defer cancel()
	raw, p := l.ask(ctx, getNetworkInfo)
	if p != nil && (p.code == codeMisc || p.code == codeNoMethod) {
		raw, p = l.ask(ctx, getInfo)
	}
	var w struct {
		Version     *int64         `json:"version"`
		Subversion  string         `json:"subversion"`
		Connections *int64         `json:"connections"`
		Warnings    jsontext.Value `json:"warnings"`
		Errors      jsontext.Value `json:"errors"` // getinfo's warnings
	}
	if p != nil || !decode(raw, &w) {
		return
	}
	if n := w.Connections; n != nil && *n >= 0 && *n <= maxCount {
		s.Peers = n
	}
	if n := w.Version; n != nil && *n >= 0 && *n <= maxHeight {
		s.Version = n
	}
	if w.Subversion != "" {
		s.Subversion = fence.Word(shown(w.Subversion, maxSubversion))
	}
	s.warn(w.Warnings)
	s.warn(w.Errors)
}

// warn takes warnings over: one text up to Bitcoin Core 27, a list since.
func (s *Status) warn(raw jsontext.Value) {
	var list []string
	if raw.Kind() == '"' {
		list = make([]string, 1)
		if json.Unmarshal(raw, &list[0]) != nil {
			return // unreachable: it is a valid text
		}
	} else if raw.Kind() != '[' || json.Unmarshal(raw, &list) != nil {
		return
	}
	for _, text := range list {
		if text = shown(text, maxWarning); text != noText && len(s.Warnings) < maxWarnings && !slices.Contains(s.Warnings, text) {
			s.Warnings = append(s.Warnings, text)
		}
	}
}

// judge says whether the node has caught up, and what else the person should know.
func (s *Status) judge(syncing *bool, now time.Time) {
	note := func(n fence.Word) { s.Notes = append(s.Notes, n) }
	// On these chains blocks come when somebody asks for them, so that an old one means nothing.
	onDemand := s.Chain == "regtest" || s.Chain == "simnet"
	stale := true
	switch age := now.Sub(s.TipTime); {
	case s.TipTime.IsZero():
	case age < -future:
		note(NoteClockBehind)
	case age > staleAfter:
		if !onDemand {
			note(NoteStaleTip)
		}
	default:
		stale = false
	}
	alone := s.Peers == nil || *s.Peers == 0
	switch {
	case s.Peers == nil:
		note(NotePeersUnknown)
	case alone && !onDemand:
		note(NoteNoPeers)
	}
	caughtUp := *s.Headers <= *s.Height
	if syncing == nil {
		note(NoteSyncNotTold)
		caughtUp = caughtUp && !stale
	} else {
		caughtUp = caughtUp && !*syncing && (!stale || !alone || onDemand)
	}
	s.Synced = &caughtUp
	if h := s.WalletHeight; h != nil && *h < *s.Height || s.Scanning {
		note(NoteBalanceLate)
	}
}
