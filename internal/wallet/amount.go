package wallet

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	satDigits = 8                     // decimals of a bitcoin
	maxSat    = 2_100_000_000_000_000 // 21 million bitcoin: no balance is more
	ppmDigits = 6                     // decimals of a share in parts per million
	million   = 1_000_000             // parts per million of the whole
	maxNumber = 64                    // bytes of a number's text
	maxWhole  = 18                    // digits that always fit an int64
)

// satoshis reads an amount of bitcoin, a JSON number such as 0.00000001 or 1e-8, without ever making it a float (F-E15).
// What is finer than a satoshi, negative or more than there can be is no amount.
func satoshis(v jsontext.Value) (int64, bool) {
	n, exact, ok := scaled(v, satDigits)
	return n, ok && exact && n >= 0 && n <= maxSat
}

// partsPerMillion reads a share from 0 to 1, cut, never rounded up: only what is whole is a million.
func partsPerMillion(v jsontext.Value) (int64, bool) {
	n, _, ok := scaled(v, ppmDigits)
	return min(n, million), ok && n >= 0
}

// scaled reads a JSON number times ten to the power of shift as an integer. exact is false where digits were cut off.
func scaled(v jsontext.Value, shift int) (n int64, exact, ok bool) {
	text := string(v)
	if len(text) > maxNumber {
		return 0, false, false
	}
	negative := strings.HasPrefix(text, "-")
	whole, fraction, exponent, ok := split(strings.TrimPrefix(text, "-"))
	if !ok {
		return 0, false, false
	}
	all := strings.TrimLeft(whole+fraction, "0")
	if all == "" {
		return 0, true, true
	}
	cut := len(fraction) - exponent - shift // digits of all that stand behind the point
	exact = true
	switch {
	case cut > 0:
		kept := all[:max(len(all)-cut, 0)]
		exact = cut <= len(all) && strings.Trim(all[len(kept):], "0") == ""
		all = kept
	case cut < -maxWhole:
		return 0, false, false
	default:
		all += strings.Repeat("0", -cut)
	}
	if len(all) > maxWhole {
		return 0, false, false
	}
	if all != "" {
		if n, _ = strconv.ParseInt(all, 10, 64); negative { // it cannot fail: all is 1 to 18 digits
			n = -n
		}
	}
	return n, exact, true
}

// split takes an unsigned JSON number apart, by the grammar of RFC 8259.
func split(text string) (whole, fraction string, exponent int, ok bool) {
	mantissa, power, hasPower := cutAny(text, "eE")
	whole, fraction, hasFraction := strings.Cut(mantissa, ".")
	switch {
	case !isDigits(whole) || len(whole) > 1 && whole[0] == '0', hasFraction && !isDigits(fraction):
		return "", "", 0, false
	case !hasPower:
		return whole, fraction, 0, true
	}
	down := strings.HasPrefix(power, "-")
	if down || strings.HasPrefix(power, "+") {
		power = power[1:]
	}
	if !isDigits(power) {
		return "", "", 0, false
	}
	if power = strings.TrimLeft(power, "0"); len(power) > 3 {
		return "", "", 0, false
	}
	if power != "" {
		exponent, _ = strconv.Atoi(power) // it cannot fail: power is 1 to 3 digits
	}
	if down {
		exponent = -exponent
	}
	return whole, fraction, exponent, true
}

func cutAny(s, chars string) (before, after string, found bool) {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
