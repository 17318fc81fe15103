package history

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fence"
	"atoll/internal/model"
)

// assembler makes the messages that a model is sent: roles alternate, the first is the user's, no text is empty, every
// call has a name and an identifier that any backend takes, an object for its arguments and exactly one result in the
// next message (H5).
type assembler struct {
	messages []model.Message
	ids      map[string]bool
}

func (a *assembler) add(role model.Role, blocks ...model.Block) {
	if len(blocks) == 0 {
		return
	}
	if n := len(a.messages); n > 0 && a.messages[n-1].Role == role {
		a.messages[n-1].Blocks = append(a.messages[n-1].Blocks, blocks...)
		return
	}
	a.messages = append(a.messages, model.Message{Role: role, Blocks: blocks})
}

// turn adds one turn. An earlier one that has no answer gets the host's word on it, so that the next question does not
// run into this one.
func (a *assembler) turn(k *kept, current bool) {
	asked := k.asked
	if blank(asked) {
		asked = fence.Ours("[no message was kept]")
	}
	a.add(model.User, model.TextBlock(asked))
	for i := range k.rounds {
		a.round(k, &k.rounds[i], current)
	}
	if !current && a.messages[len(a.messages)-1].Role == model.User {
		a.add(model.Assistant, model.TextBlock(fence.Ours("[This turn ended without an answer.]")))
	}
}

func (a *assembler) round(k *kept, rd *round, current bool) {
	var said, results []model.Block
	speaks := false
	calls := 0
	for _, b := range rd.said {
		switch {
		case b.Text != nil:
			if blank(*b.Text) {
				continue
			}
			speaks = true
		case b.Call != nil:
			s := rd.calls[calls]
			calls++
			speaks = true
			id := a.identifier(k.number, s)
			b.Call = &model.Call{ID: id, Name: plainName(s.call.Name), Args: object(s.call.Args, s.call.Broken)}
			results = append(results, model.Block{Result: s.answer(id, k.ended || current)})
		case b.Opaque == nil || !current:
			continue
		}
		said = append(said, b)
	}
	if !speaks {
		return
	}
	a.add(model.Assistant, said...)
	a.add(model.User, results...)
}

// answer is the call's result, or the host's word that none was kept.
func (s *slot) answer(id string, nodeLived bool) *model.Result {
	r := &model.Result{ID: id, Name: plainName(s.call.Name)}
	switch {
	case s.result == nil && nodeLived:
		r.Text, r.IsError = fence.Ours("outcome unknown: the turn ended before a result was kept"), true
	case s.result == nil:
		r.Text, r.IsError = fence.Ours("outcome unknown: the node stopped before the result was kept"), true
	case s.result.Text.IsEmpty():
		r.Text, r.IsError = fence.Ours("[empty]"), s.result.IsError
	default:
		r.Text, r.IsError = s.result.Text, s.result.IsError
	}
	return r
}

// identifier keeps the host's identifier where it can serve, and makes one where it is odd or was used before.
func (a *assembler) identifier(turn int, s *slot) string {
	id := s.call.ID
	if id == "" || len(id) > 64 || plainName(id) != id || a.ids[id] {
		id = "kept_" + strconv.Itoa(turn) + "_" + strconv.Itoa(s.seq)
	}
	a.ids[id] = true
	return id
}

// plainName makes a tool's name one that every backend takes. A model can ask for a tool of any name, and what was
// refused is still sent again.
func plainName(s string) string {
	ok := func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
	}
	plain := s != "" && len(s) <= 64
	for i := 0; plain && i < len(s); i++ {
		plain = ok(s[i])
	}
	if plain {
		return s
	}
	b := []byte(s)[:min(len(s), 64)]
	for i := range b {
		if !ok(b[i]) {
			b[i] = '_'
		}
	}
	if len(b) == 0 {
		return "unnamed"
	}
	return string(b)
}

// object returns arguments that are one whole JSON object, and an empty object for anything else (F-D4).
func object(args []byte, broken string) []byte {
	v := jsontext.Value(args)
	if broken != "" || !v.IsValid() || v.Kind() != '{' {
		return []byte("{}")
	}
	return args
}
