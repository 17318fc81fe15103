package model

import (
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

//go:embed prices.toml
var pricesFile string

// Price is what a model's tokens cost, in US dollars per million.
type Price struct {
	In         float64 `toml:"in"`
	Out        float64 `toml:"out"`
	CacheRead  float64 `toml:"cache_read"`
	CacheWrite float64 `toml:"cache_write"`
}

// Prices knows what models cost (B4). It is immutable.
type Prices struct {
	models map[string]Price
	names  []string // longest first, so that the closest name wins
}

// NewPrices reads the prices that come with the program and lays the operator's over them, by the model's name.
func NewPrices(own map[string]Price) (*Prices, error) {
	models := map[string]Price{}
	meta, err := toml.Decode(pricesFile, &models)
	if err != nil {
		return nil, fmt.Errorf("prices.toml: %w", err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("prices.toml: unknown key %s", unknown[0])
	}
	maps.Copy(models, own)
	for name, p := range models {
		for _, usd := range []float64{p.In, p.Out, p.CacheRead, p.CacheWrite} {
			if !(usd >= 0 && usd <= 100_000) { // also refuses NaN
				return nil, fmt.Errorf("the price of model %q must be from 0 to 100000 US dollars per million tokens", name)
			}
		}
	}
	byLength := func(a, b string) int { return len(b) - len(a) }
	return &Prices{models, slices.SortedFunc(maps.Keys(models), byLength)}, nil
}

// Cost estimates what the usage costs, in millionths of a US dollar, rounded up. known is false where the model has no
// price. The local backend costs nothing; so does a server on this machine unless the operator gave its model a price.
func (p *Prices) Cost(info Info, u Usage) (microUSD int64, known bool) {
	price, known := p.find(info)
	if !known {
		return 0, false
	}
	// Dollars per million tokens are micro-dollars per token.
	usd := float64(u.In)*price.In + float64(u.Out)*price.Out + float64(u.CacheRead)*price.CacheRead + float64(u.CacheWrite)*price.CacheWrite
	if !(usd < math.MaxInt64/2) {
		return math.MaxInt64 / 2, true
	}
	return int64(math.Ceil(usd - 1e-6)), true
}

func (p *Prices) find(info Info) (Price, bool) {
	if info.Backend == "local" {
		return Price{}, true
	}
	for _, name := range p.names {
		if info.Model == name || strings.HasPrefix(info.Model, name+"-") && dated(info.Model[len(name)+1:]) {
			return p.models[name], true
		}
	}
	return Price{}, info.Host == ""
}

// dated reports whether s is a version's date: 20251001.
func dated(s string) bool {
	return len(s) == 8 && strings.Trim(s, "0123456789") == ""
}
