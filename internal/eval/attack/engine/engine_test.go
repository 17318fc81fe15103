package engine

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"context"
)

// What is done is counted, once each, and what no client of Atoll's may ask is noticed.
func TestCounts(t *testing.T) {
	e, err := New(t.TempDir(), Box{Name: "photos", Up: true}, Box{Name: "wiki-1", Project: "wiki"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(e.Socket(), "unix://"))
	}}}
	defer client.CloseIdleConnections()
	ids := map[string]string{}
	for id, b := range e.boxes {
		ids[b.Name] = id
	}
	post := func(path string) int {
		res, err := client.Post("http://engine/v1.47/containers/"+path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	if code := post(ids["photos"] + "/stop?t=1"); code != 204 || e.boxes[ids["photos"]].up {
		t.Error(code)
	}
	post(ids["wiki-1"] + "/restart?t=1")
	if got := e.Took(); !slices.Equal(got, []string{"stop photos", "restart wiki"}) {
		t.Error(got)
	}
	if got := e.Took(); len(got) != 0 {
		t.Error(got)
	}
	if code := post(ids["photos"] + "/kill"); code != 404 || len(e.Odd()) != 1 {
		t.Error(code, e.Odd())
	}
	e.Arm("photos", true)
	e.Change("wiki")
	if !e.Has("photos") || e.Has("vault") || !e.boxes[ids["photos"]].up || e.boxes[ids["wiki-1"]].image == "registry.example/app:1" {
		t.Error("the state was not set")
	}
}
