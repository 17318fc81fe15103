package model

import (
	"math"
	"testing"
)

// TestPricesEmbedded: B4: every model that comes with the program has a sane price.
func TestPricesEmbedded(t *testing.T) {
	p, err := NewPrices(nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.models) < 10 {
		t.Errorf("only %d models", len(p.models))
	}
	for name, m := range p.models {
		if !(0 < m.CacheRead && m.CacheRead < m.In && m.In < m.CacheWrite && m.CacheWrite < m.Out) {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// TestCost: B4.
func TestCost(t *testing.T) {
	p, err := NewPrices(map[string]Price{"own": {In: 1, Out: 2}, "claude-opus-5": {In: 100, Out: 100}})
	if err != nil {
		t.Fatal(err)
	}
	million := Usage{In: 1e6, Out: 1e6, CacheRead: 1e6, CacheWrite: 1e6}
	tests := []struct {
		name  string
		info  Info
		usage Usage
		want  int64
		known bool
	}{
		{"listed", Info{Backend: "claude", Model: "claude-sonnet-5-5", Host: "api.anthropic.com"}, million, 14_600_000, true},
		{"rounded up", Info{Backend: "claude", Model: "claude-haiku-5-5", Host: "api.anthropic.com"}, Usage{In: 1}, 1, true},
		{"exact stays exact", Info{Backend: "claude", Model: "claude-haiku-5-5", Host: "api.anthropic.com"}, Usage{In: 30}, 3, true},
		{"dated", Info{Backend: "claude", Model: "claude-haiku-4-5-20251001", Host: "api.anthropic.com"}, Usage{In: 10}, 10, true},
		{"newer is not older", Info{Backend: "claude", Model: "claude-opus-5-9", Host: "api.anthropic.com"}, million, 0, false},
		{"own over embedded", Info{Backend: "claude", Model: "claude-opus-5", Host: "api.anthropic.com"}, Usage{In: 2}, 200, true},
		{"own", Info{Backend: "openai", Model: "own", Host: "models.example"}, Usage{In: 3, Out: 4}, 11, true},
		{"own on this machine", Info{Backend: "openai", Model: "own"}, Usage{In: 3}, 3, true},
		{"unknown elsewhere", Info{Backend: "openai", Model: "llama", Host: "models.example"}, million, 0, false},
		{"unknown here is free", Info{Backend: "openai", Model: "llama"}, million, 0, true},
		{"local is free", Info{Backend: "local", Model: "own", Host: "elsewhere"}, million, 0, true},
		{"absurd", Info{Model: "own"}, Usage{In: math.MaxInt64, Out: math.MaxInt64}, math.MaxInt64 / 2, true},
	}
	for _, tt := range tests {
		if got, known := p.Cost(tt.info, tt.usage); got != tt.want || known != tt.known {
			t.Errorf("%s: got %d, %v, want %d, %v", tt.name, got, known, tt.want, tt.known)
		}
	}
}

func TestPricesRefusesNonsense(t *testing.T) {
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		if _, err := NewPrices(map[string]Price{"own": {In: bad}}); err == nil {
			t.Errorf("accepted %v", bad)
		}
	}
}
