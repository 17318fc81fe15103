// Package stranger is another node that says what it likes: the real transport, and none of the real node's manners.
package stranger

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"strings"
	"sync"
	"time"

	"atoll/internal/mesh/link"
)

// Stranger is another node that says what it likes: the real transport, and none of the real node's manners.
type Stranger struct {
	Host   *link.Host
	Key    string
	Public ed25519.PublicKey

	mu      sync.Mutex // guards the rest
	name    string
	version string
	files   []string
}

// HelloFrame is what nodes say first.
type HelloFrame struct {
	Name      string   `json:"name"`
	Version   string   `json:"version"`
	Addrs     []string `json:"addrs"`
	Admits    bool     `json:"admits"`
	Statement []byte   `json:"statement"`
	Yours     []byte   `json:"yours,omitzero"`
}

type fileFrame struct {
	Path     string    `json:"path"`
	Size     int64     `json:"size_bytes"`
	Modified time.Time `json:"modified"`
	SHA256   string    `json:"sha256"`
}

// AskFrame is a piece of an answer, or its end.
type AskFrame struct {
	Text   string `json:"text,omitzero"`
	Answer *struct {
		Conversation string `json:"conversation"`
	} `json:"answer,omitzero"`
}

// NewStranger starts one on a port of this machine; its host is to be closed.
func NewStranger() (*Stranger, error) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	s := &Stranger{Public: public, name: "stranger", version: "1"}
	one := func(name string, serve func(*link.Stream) error) link.Protocol {
		return link.Protocol{Name: name, Version: 1, MaxFrame: 1 << 20, Concurrent: 8, Rate: link.Rate{Max: 30_000, Window: time.Minute},
			Idle: 20 * time.Second, Total: time.Minute, Serve: func(_ context.Context, _ string, st *link.Stream) error { return serve(st) }}
	}
	s.Host, err = link.New(link.Config{Key: key, Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Log: slog.New(slog.DiscardHandler),
		Standing: func(string) link.Standing { return link.Known },
		Protocols: []link.Protocol{one("hello", s.hello), one("catalogue", s.catalogue), one("status", func(st *link.Stream) error {
			var ask struct{}
			if err := st.Receive(&ask); err != nil {
				return err
			}
			return st.Send(map[string]any{"uptime_s": 60, "processors": 2, "disk_percent": 12.5})
		}), one("pair", func(st *link.Stream) error {
			var ask struct {
				Secret string   `json:"secret"`
				Name   string   `json:"name"`
				Addrs  []string `json:"addrs"`
			}
			if err := st.Receive(&ask); err != nil {
				return err
			}
			return st.Send(map[string]any{"state": "paired", "name": "stranger"})
		}), one("ask", (*link.Stream).Close)}})
	if err != nil {
		return nil, err
	}
	s.Key = s.Host.Key()
	return s, s.Host.Start()
}

// Says sets what it says of itself.
func (s *Stranger) Says(name, version string, files ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name, s.version, s.files = name, version, files
}

// Greeting is what it says of itself.
func (s *Stranger) Greeting() HelloFrame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return HelloFrame{Name: s.name, Version: s.version, Addrs: s.Host.Addrs(), Admits: true}
}

func (s *Stranger) hello(st *link.Stream) error {
	var theirs HelloFrame
	if err := st.Receive(&theirs); err != nil {
		return err
	}
	return st.Send(s.Greeting())
}

func (s *Stranger) catalogue(st *link.Stream) error {
	var ask struct {
		After string `json:"after,omitzero"`
	}
	if err := st.Receive(&ask); err != nil {
		return err
	}
	s.mu.Lock()
	items := []fileFrame{}
	for _, f := range s.files {
		items = append(items, fileFrame{f, 1, time.UnixMilli(1), strings.Repeat("0", 64)})
	}
	s.mu.Unlock()
	return st.Send(map[string]any{"items": items})
}

// Exchange asks the node one thing of one frame.
func (s *Stranger) Exchange(ctx context.Context, node, protocol string, ask, reply any) error {
	st, err := s.Host.Open(ctx, node, protocol)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := st.Send(ask); err != nil {
		return err
	}
	return st.Receive(reply)
}
