package wallet

import (
	"math/big"
	"regexp"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// F-E15: amounts are integers of satoshis with all their digits; what is no exact amount is refused, never rounded.
func TestSatoshis(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "0.00000000": 0, "0e5": 0, "0e-999": 0, "-0.0e-7": 0,
		"1": 100_000_000, "1e-8": 1, "1E-8": 1, "1e-08": 1, "1.0e-8": 1, "0.00000001": 1, "5e-07": 50,
		"1.10000000": 110_000_000, "12345.6789": 1_234_567_890_000, "0.1": 10_000_000, "1e+2": 10_000_000_000,
		"90071992.54740993": -1, // 2^53 + 1 satoshis are more than there are
		"20999999.97690000": 2_099_999_997_690_000,
		"20999999.99999999": 2_099_999_999_999_999,
		"21000000":          2_100_000_000_000_000,
		"2.1e7":             2_100_000_000_000_000,
		"21000000.00000001": -1,
		"0.000000001":       -1, "1e-9": -1, "1.000000001": -1, "0.123456789": -1, "1e-999": -1,
		"1.0000000000000000000000000000": 100_000_000,
		"-1":                             -1, "-0.00000001": -1, "-1e-9": -1,
		"1e11": -1, "1e999": -1, "1e9999999999": -1, "99999999999999999999999": -1,
		`"1"`: -1, "null": -1, "true": -1, "": -1, "{}": -1, "[1]": -1, "1.": -1, ".5": -1, "01": -1, "+1": -1, "--1": -1,
		"1e": -1, "1e+": -1, "0x10": -1, "1_000": -1, "NaN": -1, "1 2": -1, "1.2.3": -1, "1e5e5": -1, "1e-": -1, "١": -1,
	} {
		got, ok := satoshis(jsontext.Value(text))
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %d, %t; want %d", text, got, ok, want)
		}
	}
}

// Only what is whole is a million: a node 0.00001 % behind is not shown as done.
func TestPartsPerMillion(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1_000_000, "0.9999999999": 999_999, "0.5": 500_000, "2.1e-05": 21, "1e-9": 0, "0": 0, "1.0000001": 1_000_000,
		"3": 1_000_000, "-0.1": -1, `"1"`: -1, "1e400": -1,
	} {
		if got, ok := partsPerMillion(jsontext.Value(text)); ok != (want >= 0) || ok && got != want {
			t.Errorf("%s: %d, %t; want %d", text, got, ok, want)
		}
	}
}

var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$`)

// The parser is compared with exact fractions.
func FuzzSatoshis(f *testing.F) {
	for _, s := range []string{"0", "-0", "1e-8", "0.00000001", "20999999.99999999", "21000000.00000001", "1.5E+3", "9e99", `"1"`,
		"0.1", "0e0", "100e-10", "0.0000000100", "1e18", "12345678901234567890123456789012345678901234567890e-50"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := satoshis(jsontext.Value(text))
		if ok && (got < 0 || got > maxSat) {
			t.Fatalf("%q: %d is out of range", text, got)
		}
		if !number.MatchString(text) || len(text) > maxNumber {
			return // a power with many zeros in front may be accepted; its amount is in range
		}
		exact, valid := new(big.Rat).SetString(text)
		if !valid {
			t.Fatalf("%q is no fraction", text)
		}
		exact.Mul(exact, big.NewRat(100_000_000, 1))
		fits := exact.IsInt() && exact.Sign() >= 0 && exact.Cmp(big.NewRat(maxSat, 1)) <= 0
		if fits != ok || ok && exact.Num().Int64() != got {
			t.Fatalf("%q: %d, %t; exactly %s", text, got, ok, exact)
		}
	})
}
