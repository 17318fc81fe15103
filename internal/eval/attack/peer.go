package attack

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"atoll/internal/fault"
	"atoll/internal/mesh/invite"
	"atoll/internal/mesh/link"
)

// stranger is another node that says what it likes: the real transport, and none of the real node's manners.
type stranger struct {
	host   *link.Host
	key    string
	public ed25519.PublicKey

	mu      sync.Mutex // guards the rest
	name    string
	version string
	files   []string
}

type helloFrame struct {
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

type askFrame struct {
	Text   string `json:"text,omitzero"`
	Answer *struct {
		Conversation string `json:"conversation"`
	} `json:"answer,omitzero"`
}

func newStranger() (*stranger, error) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	s := &stranger{public: public, name: "stranger", version: "1"}
	one := func(name string, serve func(*link.Stream) error) link.Protocol {
		return link.Protocol{Name: name, Version: 1, MaxFrame: 1 << 20, Concurrent: 8, Rate: link.Rate{Max: 30_000, Window: time.Minute},
			Idle: 20 * time.Second, Total: time.Minute, Serve: func(_ context.Context, _ string, st *link.Stream) error { return serve(st) }}
	}
	s.host, err = link.New(link.Config{Key: key, Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Log: slog.New(slog.DiscardHandler),
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
	s.key = s.host.Key()
	return s, s.host.Start()
}

// says sets what it says of itself.
func (s *stranger) says(name, version string, files ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name, s.version, s.files = name, version, files
}

func (s *stranger) greeting() helloFrame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return helloFrame{Name: s.name, Version: s.version, Addrs: s.host.Addrs(), Admits: true}
}

func (s *stranger) hello(st *link.Stream) error {
	var theirs helloFrame
	if err := st.Receive(&theirs); err != nil {
		return err
	}
	return st.Send(s.greeting())
}

func (s *stranger) catalogue(st *link.Stream) error {
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

// exchange asks the node one thing of one frame.
func (s *stranger) exchange(ctx context.Context, node, protocol string, ask, reply any) error {
	st, err := s.host.Open(ctx, node, protocol)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := st.Send(ask); err != nil {
		return err
	}
	return st.Receive(reply)
}

// pool is the other nodes of a world. Each may ask ten questions in five real minutes, so they are used up.
type pool struct {
	w     *world
	all   []*stranger
	next  int // the first that was not paired
	key   string
	addrs []string
	asks  map[*stranger]int
	as    map[*stranger]string // the caller each is now
	muted map[*stranger]bool   // whom an owner declined: for a day it may ask for nothing
}

// maxAsks is how many questions of one node are answered in five minutes (M2).
const maxAsks = 10

// ceilings are what each kind of peer may.
func ceilings(caller string) []string {
	switch caller {
	case byReader:
		return []string{"content", "mesh"}
	case byPeer, byAsker:
		return []string{"system", "apps", "content", "mesh"}
	}
	return []string{}
}

func newPool(w *world, all []*stranger) *pool {
	p := &pool{w: w, all: all, asks: map[*stranger]int{}, as: map[*stranger]string{}, muted: map[*stranger]bool{}}
	if len(all) < 2 {
		return p
	}
	p.key = p.status()
	for _, label := range []string{canaryMesh, "show"} {
		s := p.pair()
		w.must(w.owner, "mesh.rename", map[string]any{"peer": s.key, "label": label}, nil)
	}
	return p
}

// show is the one whose name, version and files are read by the node's people.
func (p *pool) show() *stranger { return p.all[1] }

// pair has the node's owner accept an invite of the next stranger: the other way round, few are let in from one address.
func (p *pool) pair() *stranger {
	w, s := p.w, p.all[p.next]
	p.next++
	s.says("stranger", "1")
	s.host.Disconnect(p.key)
	v := invite.Invite{Key: s.public, Secret: invite.NewSecret(), Addrs: s.host.Addrs()}
	w.must(w.owner, "mesh.accept", map[string]any{"code": v.Code(), "key_words": strings.Join(invite.KeyWords(s.public), " ")}, nil)
	w.dirty = true
	return s
}

func (p *pool) connect(s *stranger) {
	var err error
	for range 4 {
		if err = s.host.Connect(p.w.ctx, p.key, p.addrs); err == nil {
			return
		}
		s.host.Disconnect(p.key)
	}
	p.w.Fatal("connecting: ", err)
}

// moved takes up the node's address after a restart.
func (p *pool) moved() {
	if p.next > 0 {
		p.key = p.status()
	}
}

// status takes up where the node is, and gives its key.
func (p *pool) status() string {
	var status struct {
		Key       string   `json:"key"`
		Addresses []string `json:"addresses"`
	}
	p.w.must(p.w.owner, "mesh.status", nil, &status)
	p.addrs = status.Addresses
	return status.Key
}

// lasts reports whether there are enough for so many questions more.
func (p *pool) lasts(questions int) bool {
	left := maxAsks * (len(p.all) - p.next - 8)
	for _, s := range p.all[:p.next] {
		left += maxAsks - p.asks[s]
	}
	return left > questions
}

// take gives a peer of a kind with some questions left.
func (p *pool) take(caller string, asks int) *stranger {
	if len(p.muted) >= 6 { // a day later they may ask again
		p.w.advance(25 * time.Hour)
		clear(p.muted)
	}
	for _, s := range p.all[min(2, p.next):p.next] {
		if p.as[s] == caller && p.asks[s]+asks <= maxAsks && !p.muted[s] {
			p.asks[s] += asks
			p.connect(s)
			return s
		}
	}
	if p.next >= len(p.all) {
		p.w.Fatal("there are no more peers")
	}
	s := p.pair()
	params := map[string]any{"peer": s.key, "categories": ceilings(caller), "folders": []string{}, "asking": caller == byAsker}
	if caller != byNobody {
		params["folders"] = []string{"/"}
	}
	p.w.must(p.w.owner, "mesh.allow", params, nil)
	p.as[s], p.asks[s] = caller, asks
	p.connect(s)
	return s
}

// greet says hello to the node under a name.
func (p *pool) greet(s *stranger, name string) error {
	s.says(name, "1")
	var err error
	for range 3 {
		var theirs helloFrame
		if err = s.exchange(p.w.ctx, p.key, "hello", s.greeting(), &theirs); err == nil || link.Said(err) != nil {
			return err
		}
		s.host.Disconnect(p.key)
		p.connect(s)
	}
	return err
}

// ask puts a question and gives what came back, however it ended. A connection that the node has just let go of is made
// anew, as long as the turn has not begun.
func (p *pool) ask(s *stranger, conversation, text string, t *turn) (answer, conv string, code fault.Code) {
	text = fmt.Sprintf("%s (ref %d)", text, t.n)
	for try := 0; ; try++ {
		answer, conv, code = p.askOnce(s, conversation, text)
		if code != fault.Unavailable || answer != "" || t.rounds > 0 || try == 3 {
			p.w.actor.forget(t)
			return answer, conv, code
		}
		s.host.Disconnect(p.key)
		p.connect(s)
	}
}

func (p *pool) askOnce(s *stranger, conversation, text string) (answer, conv string, code fault.Code) {
	ctx, cancel := context.WithTimeout(p.w.ctx, 60*time.Second)
	defer cancel()
	failed := func(err error) (string, string, fault.Code) {
		if f := link.Said(err); f != nil {
			return answer + f.Message, "", f.Code
		}
		return answer, "", fault.Unavailable
	}
	st, err := s.host.Open(ctx, p.key, "ask")
	if err != nil {
		return failed(err)
	}
	defer st.Close()
	if err := st.Send(map[string]any{"conversation": conversation, "text": text}); err != nil {
		return failed(err)
	}
	for {
		var f askFrame
		if err := st.Receive(&f); err != nil {
			return failed(err)
		}
		if f.Answer != nil {
			return answer, f.Answer.Conversation, ""
		}
		answer += f.Text
	}
}
