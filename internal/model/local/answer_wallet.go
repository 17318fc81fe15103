package local

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/model/local/sentence"
)

// wallet words the state of the Bitcoin node: its chain, its balance, or both.
func (p plan) wallet(d done) string {
	s := read[walletStatus](&d)
	if s.Configured != nil && !*s.Configured {
		return "No Bitcoin node is set up here."
	}
	chain, balance := s.chain(p), s.balance()
	if chain == "" && balance == "" {
		return walletFields(d)
	}
	lines := []string{chain, s.notes("no_peers", "peers_unknown", "stale_tip", "clock_behind", "sync_not_told"), balance, s.notes("balance_late")}
	switch p.Focus {
	case "sync":
		lines = lines[:2]
	case "balance":
		lines = lines[2:]
		if balance == "" {
			lines[0] = "The Bitcoin node gave no balance."
		} else if s.Synced != nil && !*s.Synced {
			lines = append(lines, "It is not synced, so newer payments can be missing from that. "+chain)
		}
	}
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return l == "" }), "\n")
}

// chain says how far the node is.
func (s walletStatus) chain(p plan) string {
	if s.Synced == nil && s.Height == nil {
		return ""
	}
	text := "The Bitcoin node"
	switch {
	case s.Synced == nil:
		text += " is up"
	case *s.Synced:
		text += " is synced"
	default:
		text += " is not synced yet"
	}
	if s.Height != nil {
		text += fmt.Sprintf(": it is at block %d", *s.Height)
		if s.Headers != nil && *s.Headers > *s.Height {
			text += fmt.Sprintf(" of %d", *s.Headers)
		}
	}
	if s.Progress != nil && s.Synced != nil && !*s.Synced {
		text += fmt.Sprintf(", %d.%02d%% verified", *s.Progress/10_000, *s.Progress%10_000/100)
	}
	if !s.TipTime.IsZero() {
		text += ", from " + p.when(s.TipTime)
	}
	if s.Chain != "" && s.Chain != "main" {
		text += ", on the chain " + sentence.Clean(s.Chain, 40)
	}
	if s.Pruned {
		text += ", pruned"
	}
	if s.Peers != nil {
		text += ", with " + counted(*s.Peers, "peer")
	}
	return text + "."
}

// balance says what the wallet holds, to the last satoshi.
func (s walletStatus) balance() string {
	var parts struct {
		Confirmed jsontext.Value `json:"confirmed"`
		Pending   jsontext.Value `json:"pending"`
		Immature  jsontext.Value `json:"immature"`
		Reused    jsontext.Value `json:"reused"`
		WatchOnly jsontext.Value `json:"watch_only"`
	}
	switch s.Balance.Kind() {
	case '0':
		return "The balance is " + bitcoins(s.Balance) + "."
	case '{':
		if json.Unmarshal(s.Balance, &parts) != nil || len(parts.Confirmed) == 0 {
			return ""
		}
		text := "The balance is " + bitcoins(parts.Confirmed)
		for _, more := range []struct {
			amount jsontext.Value
			words  string
		}{{parts.Pending, "not confirmed yet"}, {parts.Immature, "mined and not mature yet"}, {parts.Reused, "on addresses used before"},
			{parts.WatchOnly, "only watched"}} {
			if len(more.amount) > 0 && string(more.amount) != "0" {
				text += ", and " + bitcoins(more.amount) + " " + more.words
			}
		}
		if s.Scanning {
			text += "; the wallet still reads old blocks, so that is not final"
		}
		return text + "."
	}
	return s.noBalance()
}

// noBalance says why there is no balance.
func (s walletStatus) noBalance() string {
	switch s.Wallet {
	case "", "loaded":
		return ""
	case "none_loaded":
		return "There is no balance, because the node has no wallet loaded."
	case "not_loaded":
		return "There is no balance, because the wallet that wallet.url names is not loaded."
	case "several":
		return "There is no balance, because the node has several wallets loaded and wallet.url names none."
	case "not_supported":
		return "There is no balance, because this node has no wallet."
	case "not_allowed":
		return "There is no balance, because the node does not let Atoll ask for it."
	case "no_answer":
		return "There is no balance, because the wallet did not answer in time."
	}
	return "There is no balance; the wallet's state is: " + sentence.Clean(s.Wallet, 200) + "."
}

// notes words those of the status's notes that are asked for.
func (s walletStatus) notes(wanted ...string) string {
	words := map[string]string{
		"no_peers":      "It has no peers, so it can have missed newer blocks.",
		"peers_unknown": "How many peers it has is not known.",
		"stale_tip":     "Its newest block is old, so it can have missed newer ones.",
		"clock_behind":  "Its newest block is from this machine's future: the clock here is behind.",
		"sync_not_told": "The node does not say by itself whether it has caught up.",
		"balance_late":  "The wallet has not read the newest blocks yet.",
	}
	var out []string
	for _, n := range s.Notes {
		if slices.Contains(wanted, n) {
			out = append(out, words[n])
		}
	}
	return strings.Join(out, " ")
}

// bitcoins writes satoshis as BTC by whole numbers alone, so that no digit changes.
func bitcoins(sat jsontext.Value) string {
	const inOne, decimals = 100_000_000, 8
	n, err := strconv.ParseInt(string(sat), 10, 64)
	if err != nil {
		return shown(sat) + " satoshis"
	}
	sign := ""
	u := uint64(n)
	if n < 0 {
		sign, u = "-", -u
	}
	return fmt.Sprintf("%s%d.%0*d BTC", sign, u/inOne, decimals, u%inOne)
}

// walletFields lists whatever plain values a status of another shape holds.
func walletFields(d done) string {
	fields := read[map[string]jsontext.Value](&d)
	var rows []string
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		if v := fields[k]; k != "configured" && v.Kind() != '{' && v.Kind() != '[' {
			rows = append(rows, sentence.Clean(strings.ReplaceAll(k, "_", " "), 60)+": "+shown(v))
		}
	}
	if len(rows) == 0 {
		return "The wallet's status holds nothing to show."
	}
	return "The Bitcoin node reports:" + limited(rows, false)
}
