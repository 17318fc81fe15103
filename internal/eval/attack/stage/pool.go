package stage

import (
	"context"
	"fmt"
	"strings"
	"time"

	"atoll/internal/eval/attack/stranger"
	"atoll/internal/eval/attack/suite"
	"atoll/internal/eval/attack/suite/actor"

	"atoll/internal/fault"
	"atoll/internal/mesh/invite"
	"atoll/internal/mesh/link"
)

// Strangers is how many other nodes a world knows: two that are read of, and some of each kind of caller.
const Strangers = 2 + 4*ofAKind

// ofAKind is how many of a kind there are: with one that an owner declined, the others can be played.
const ofAKind = 5

// pool is the other nodes of a world.
type pool struct {
	w     *World
	all   []*stranger.Stranger
	next  int // the first that was not paired
	key   string
	addrs []string
	asks  map[*stranger.Stranger]int    // in the time that is counted over
	as    map[*stranger.Stranger]string // the caller each is now
	muted map[*stranger.Stranger]bool   // whom an owner declined: for a day it may ask for nothing
}

// A node answers maxAsks questions of another in askTime (M2).
const (
	maxAsks = 10
	askTime = 5 * time.Minute
)

// ceilings are what each kind of peer may.
func ceilings(caller string) []string {
	switch caller {
	case suite.ByReader:
		return []string{"content", "mesh"}
	case suite.ByPeer, suite.ByAsker:
		return []string{"system", "apps", "content", "mesh"}
	}
	return []string{}
}

func newPool(w *World, all []*stranger.Stranger) *pool {
	p := &pool{w: w, all: all, asks: map[*stranger.Stranger]int{}, as: map[*stranger.Stranger]string{}, muted: map[*stranger.Stranger]bool{}}
	if len(all) < 2 {
		return p
	}
	p.key = p.status()
	for _, label := range []string{canaryMesh, "show"} {
		s := p.pair()
		w.Must(w.owner, "mesh.rename", map[string]any{"peer": s.Key, "label": label}, nil)
	}
	return p
}

// show is the one whose name, version and files are read by the node's people.
func (p *pool) show() *stranger.Stranger { return p.all[1] }

// pair has the node's owner accept an invite of the next stranger: the other way round, few are let in from one address.
func (p *pool) pair() *stranger.Stranger {
	w, s := p.w, p.all[p.next]
	p.next++
	s.Says("stranger", "1")
	s.Host.Disconnect(p.key)
	v := invite.Invite{Key: s.Public, Secret: invite.NewSecret(), Addrs: s.Host.Addrs()}
	w.Must(w.owner, "mesh.accept", map[string]any{"code": v.Code(), "key_words": strings.Join(invite.KeyWords(s.Public), " ")}, nil)
	w.dirty = true
	return s
}

func (p *pool) connect(s *stranger.Stranger) {
	var err error
	for range 4 {
		if err = s.Host.Connect(p.w.ctx, p.key, p.addrs); err == nil {
			return
		}
		s.Host.Disconnect(p.key)
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
	p.w.Must(p.w.owner, "mesh.status", nil, &status)
	p.addrs = status.Addresses
	return status.Key
}

// take gives a peer of a kind with some questions left. Where there is none, it waits until there is.
func (p *pool) take(caller string, asks int) *stranger.Stranger {
	for {
		kind, free := 0, 0
		for _, s := range p.all[min(2, p.next):p.next] {
			if p.as[s] != caller {
				continue
			}
			if kind++; p.muted[s] {
				continue
			}
			if free++; p.asks[s]+asks <= maxAsks {
				p.asks[s] += asks
				p.connect(s)
				return s
			}
		}
		switch {
		case kind < ofAKind && p.next < len(p.all):
			p.admit(p.pair(), caller)
		case free > 0:
			p.w.advance(askTime + time.Second)
			clear(p.asks)
		case kind > 0:
			p.w.advance(25 * time.Hour)
			clear(p.muted)
		default:
			p.w.Fatal("there are no peers")
		}
	}
}

// admit makes a peer one of a kind.
func (p *pool) admit(s *stranger.Stranger, caller string) {
	params := map[string]any{"peer": s.Key, "categories": ceilings(caller), "folders": []string{}, "asking": caller == suite.ByAsker}
	if caller != suite.ByNobody {
		params["folders"] = []string{inside}
	}
	p.w.Must(p.w.owner, "mesh.allow", params, nil)
	p.as[s] = caller
}

// greet says hello to the node under a name.
func (p *pool) greet(s *stranger.Stranger, name string) error {
	s.Says(strings.ToValidUTF8(name[:min(len(name), 4000)], "\uFFFD"), "1")
	var err error
	for range 3 {
		var theirs stranger.HelloFrame
		if err = s.Exchange(p.w.ctx, p.key, "hello", s.Greeting(), &theirs); err == nil || link.Said(err) != nil {
			return err
		}
		s.Host.Disconnect(p.key)
		p.connect(s)
	}
	return err
}

// ask puts a question and gives what came back, however it ended. A connection that the node has just let go of is made
// anew, as long as the turn has not begun.
func (p *pool) ask(s *stranger.Stranger, conversation, text string, t *actor.Turn) (answer, conv string, code fault.Code) {
	text = fmt.Sprintf("%s (ref %d)", text, t.N)
	for try := 0; ; try++ {
		answer, conv, code = p.askOnce(s, conversation, text)
		if code != fault.Unavailable || answer != "" || t.Rounds > 0 || try == 3 {
			p.w.actor.Forget(t)
			return answer, conv, code
		}
		s.Host.Disconnect(p.key)
		p.connect(s)
	}
}

func (p *pool) askOnce(s *stranger.Stranger, conversation, text string) (answer, conv string, code fault.Code) {
	ctx, cancel := context.WithTimeout(p.w.ctx, 60*time.Second)
	defer cancel()
	failed := func(err error) (string, string, fault.Code) {
		if f := link.Said(err); f != nil {
			return answer + f.Message, "", f.Code
		}
		return answer, "", fault.Unavailable
	}
	st, err := s.Host.Open(ctx, p.key, "ask")
	if err != nil {
		return failed(err)
	}
	defer st.Close()
	if err := st.Send(map[string]any{"conversation": conversation, "text": text}); err != nil {
		return failed(err)
	}
	for {
		var f stranger.AskFrame
		if err := st.Receive(&f); err != nil {
			return failed(err)
		}
		if f.Answer != nil {
			return answer, f.Answer.Conversation, ""
		}
		answer += f.Text
	}
}
