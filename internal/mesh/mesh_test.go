package mesh

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
)

func status(t *testing.T, cfg Config, c caller.Caller, params string) (string, error) {
	t.Helper()
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g := rpc.NewGate(rpc.Config{Methods: r.Methods(), Log: cfg.Log})
	got, err := g.Call(t.Context(), c, rpc.Tools, "mesh.status", jsontext.Value(params), nil)
	if err != nil {
		return "", err
	}
	raw, err := rpc.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw), nil
}

var viewer = caller.Operator(1, "ann", caller.Viewer, "s1", "127.0.0.1")

func TestNoMesh(t *testing.T) {
	for _, c := range []caller.Caller{viewer, caller.Peer("k", "n")} {
		got, err := status(t, Config{Log: slog.New(slog.DiscardHandler)}, c, "{}")
		if err != nil || got != `{"enabled":false,"peers":[]}` {
			t.Errorf("%s: %s, %v", c, got, err)
		}
	}
	if _, err := status(t, Config{Log: slog.New(slog.DiscardHandler)}, caller.Caller{}, "{}"); !fault.Is(err, fault.Forbidden) {
		t.Error("nobody was answered:", err)
	}
}

// A mesh that is asked for and does not run is never shown as enabled.
func TestEnabledIsNotClaimed(t *testing.T) {
	var log bytes.Buffer
	got, err := status(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Enabled: true}, viewer, "{}")
	if err != nil || !strings.HasPrefix(got, `{"enabled":false,"peers":[],"note":`) || !strings.Contains(got, "no mesh yet") {
		t.Errorf("%s, %v", got, err)
	}
	if !strings.Contains(log.String(), "no mesh yet") {
		t.Errorf("the log says %q", log.String())
	}
	if _, err := New(Config{}); err == nil {
		t.Error("an empty config was accepted")
	}
}

// U1: the row does not declare its result to be facts.
func TestFenced(t *testing.T) {
	r, err := New(Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Methods() {
		if m.Facts {
			t.Errorf("%s declares facts", m.Name)
		}
	}
}
