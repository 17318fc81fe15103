package radio

import (
	"bytes"
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"atoll/internal/fault"
)

// Reason is why a text was not taken as a question.
type Reason string

// The reasons. The first two are normal and told to nobody.
const (
	Broadcast  Reason = "broadcast"   // to everybody, or to another node
	Duplicate  Reason = "duplicate"   // a packet that was here before
	Unlisted   Reason = "unlisted"    // from a node that is not listed
	Unproved   Reason = "no_key"      // from a node listed with a key, without encryption by it
	WrongKey   Reason = "wrong_key"   // the same, with another key
	ByInternet Reason = "by_internet" // through MQTT from a node listed without a key: any stranger's word
	NoQuestion Reason = "no_question" // blank, too long, no text, or a reaction
	TooOften   Reason = "too_often"   // over the node's limit
	Busy       Reason = "busy"        // while the node's last question is being answered
	NoAirtime  Reason = "no_airtime"  // no reply fits in what is left of the hour's share
)

// Refusal is a reason and the node that the packet claims to be from.
type Refusal struct {
	Reason Reason
	Node   uint32
}

const (
	busyWords = "One question at a time, please."
	airWords  = "No airtime left for an answer; try later."
	noWords   = "There is no answer."
)

// text takes a text message, as a question or not at all. Only a direct message of a listed node costs anything.
func (r *Radio) text(ctx context.Context, s *session, p *packet) {
	n, why := r.admit(s.own, p)
	switch {
	case why == "":
		r.work.Go(func() { r.answer(ctx, n, p) })
	case why == Busy || why == NoAirtime:
		if r.refuse(p.from, n, why, true) {
			words := map[Reason]string{Busy: busyWords, NoAirtime: airWords}[why]
			r.work.Go(func() { r.brief(ctx, n, p, words) })
		}
	default:
		r.refuse(p.from, n, why, false)
	}
}

// admit says why a text is no question, or counts it as its node's. The node is nil where it is not listed.
func (r *Radio) admit(own uint32, p *packet) (*node, Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[p.from]
	switch {
	case p.to != own:
		return n, Broadcast
	case n == nil:
		return nil, Unlisted
	case n.Key != nil && !p.pki:
		return n, Unproved
	case n.Key != nil && !bytes.Equal(p.key, n.Key):
		return n, WrongKey
	case n.Key == nil && p.mqtt:
		return n, ByInternet
	case p.id != 0 && n.seen[p.id]:
		return n, Duplicate
	}
	if p.id != 0 {
		n.saw(p.id)
	}
	switch text := p.data.payload; {
	case p.id == 0, p.data.emoji != 0, len(text) > maxQuestion, !utf8.Valid(text), len(bytes.TrimSpace(text)) == 0:
		return n, NoQuestion
	case n.rate.take(time.Now(), 1) == nil:
		return n, TooOften
	case n.asking:
		return n, Busy
	case !r.affordable():
		return n, NoAirtime
	}
	n.asking = true
	r.counts.Questions++
	return n, ""
}

// saw remembers a packet, in place of the oldest one where there are many.
func (n *node) saw(id uint32) {
	if len(n.recent) < maxIDs {
		n.recent = append(n.recent, id)
	} else {
		delete(n.seen, n.recent[n.next])
		n.recent[n.next] = id
		n.next = (n.next + 1) % maxIDs
	}
	n.seen[id] = true
}

// refuse counts a refusal and tells it where it is the first of its kind. With saying it reports whether the node can be
// told now: one refusal at a time.
func (r *Radio) refuse(from uint32, n *node, why Reason, saying bool) (may bool) {
	r.mu.Lock()
	r.counts.Refused[why]++
	kind := Refusal{Reason: why} // all strangers are one
	if n != nil {
		kind.Node = from
		if may = saying && !n.saying; may {
			n.saying = true
		}
	}
	first := why != Broadcast && why != Duplicate && !r.told[kind]
	if first {
		r.told[kind] = true
	}
	r.mu.Unlock()
	if first {
		r.cfg.Refused(Refusal{why, from})
	}
	return may
}

// answer puts a question and sends what comes back.
func (r *Radio) answer(ctx context.Context, n *node, p *packet) {
	defer func() {
		r.mu.Lock()
		n.asking = false
		r.mu.Unlock()
	}()
	patience, cancel := context.WithTimeout(ctx, r.cfg.Patience)
	defer cancel()
	text, err := r.cfg.Ask(patience, n.Node, strings.TrimSpace(string(p.data.payload)))
	most := r.cfg.Parts
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		r.cfg.Log.Warn("a question by radio was not answered", "node", NodeID(n.Node), "error", err)
		text, most = fault.Of(err).Public, 1
	case strings.TrimSpace(text) == "":
		text = noWords
	}
	r.reply(ctx, n, p, text, most)
}

// brief says in one packet why there will be no answer, where even that fits.
func (r *Radio) brief(ctx context.Context, n *node, p *packet, words string) {
	defer func() {
		r.mu.Lock()
		n.saying = false
		r.mu.Unlock()
	}()
	if _, err := r.speak(ctx, n, p, words, 1); err != nil {
		r.cfg.Log.Debug("a refusal by radio was not delivered", "node", NodeID(n.Node), "error", err)
	}
}
