package mesh

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"atoll/internal/fault"
	"atoll/internal/mesh/link"
)

// Bounds of questions between nodes.
const (
	maxQuestion = 4 << 10  // bytes
	maxAnswer   = 64 << 10 // bytes of another node's answer that are taken
	askTime     = 130 * time.Second
)

// askFrame is one piece of an answer: some text, or the end.
type askFrame struct {
	Text   string  `json:"text,omitzero"`
	Answer *Answer `json:"answer,omitzero"`
}

// serveAsk runs a peer's question and streams the answer. The peer that goes away takes its turn with it.
func (r *Room) serveAsk(ctx context.Context, from string, s *link.Stream) error {
	var q Question
	if err := s.Receive(&q); err != nil {
		return err
	}
	if err := checkQuestion(q.Text); err != nil {
		return err
	}
	if !r.Alive(from) {
		return notShared("its assistant")
	}
	ctx = s.Watch(ctx)
	a, err := r.cfg.Ask(ctx, r.caller(from), q, func(text string) error { return sendText(s, text) })
	if err != nil {
		return err
	}
	return s.Send(askFrame{Answer: &a})
}

// maxPiece is how much text goes into one frame, in bytes; as JSON it can be six times that.
const maxPiece = 2 << 10

// sendText sends a piece of an answer in as many frames as it takes, none of which ends within a character.
func sendText(s *link.Stream, text string) error {
	for len(text) > maxPiece {
		n := maxPiece
		for n > maxPiece-utf8.UTFMax && !utf8.RuneStart(text[n]) {
			n--
		}
		if err := s.Send(askFrame{Text: text[:n]}); err != nil {
			return err
		}
		text = text[n:]
	}
	return s.Send(askFrame{Text: text})
}

// AskByRadio answers a question of a radio's node: the same turn as any peer's, without a stream. Each question is its
// own conversation, since a radio's packets carry none.
func (r *Room) AskByRadio(ctx context.Context, key, text string) (string, error) {
	if err := r.off(); err != nil {
		return "", err
	}
	if !r.isRadio(key) || !r.Alive(key) {
		return "", notShared("its assistant")
	}
	if err := checkQuestion(text); err != nil {
		return "", err
	}
	r.note(ctx, key, func(p *peer) { p.seen = r.cfg.Clock.Now() })
	var answer strings.Builder
	_, err := r.cfg.Ask(ctx, r.caller(key), Question{Text: text}, func(s string) error {
		answer.WriteString(s)
		return nil
	})
	return answer.String(), err
}

func checkQuestion(text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return fault.New(fault.InvalidParams, "the question is blank").At("question")
	case len(text) > maxQuestion:
		return fault.New(fault.InvalidParams, "the question is longer than %d KiB", maxQuestion>>10).At("question")
	case !utf8.ValidString(text):
		return fault.New(fault.InvalidParams, "the question is not valid UTF-8").At("question")
	}
	return nil
}

// Reply is another node's answer: untrusted text from end to end (M4).
type Reply struct {
	Peer         string `json:"peer"` // what people call it
	Conversation string `json:"conversation"`
	Text         string `json:"text"`
	Truncated    bool   `json:"truncated,omitzero"`
}

// ask puts the owner's question to a peer's assistant.
func (r *Room) ask(ctx context.Context, word string, q Question, say func(string) error) (Reply, error) {
	p, err := r.find(word)
	if err != nil {
		return Reply{}, err
	}
	if err := checkQuestion(q.Text); err != nil {
		return Reply{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	s, err := r.reach(ctx, p.key, "ask")
	if err != nil {
		return Reply{}, r.remote(p.key, err)
	}
	defer s.Reset() // it ends the turn at the other node where the answer is not wanted to its end
	if err := s.Send(q); err != nil {
		return Reply{}, r.remote(p.key, err)
	}
	out := Reply{Peer: p.called()}
	var text strings.Builder
	for {
		var f askFrame
		if err := s.Receive(&f); err != nil {
			if errors.Is(err, io.EOF) {
				err = link.ErrClosed
			}
			return Reply{}, r.remote(p.key, err)
		}
		if f.Answer != nil {
			out.Text, out.Conversation = text.String(), f.Answer.Conversation
			if len(out.Conversation) > maxName {
				out.Conversation = ""
			}
			_ = s.Close() // all has arrived; the other end may have closed first
			return out, nil
		}
		if text.Len()+len(f.Text) > maxAnswer {
			out.Text, out.Truncated = text.String(), true
			return out, nil
		}
		text.WriteString(f.Text)
		if err := say(f.Text); err != nil {
			return Reply{}, err
		}
	}
}
