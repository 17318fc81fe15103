package model

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fault"
	"atoll/internal/fence"
)

// Bounds of one answer. A server that goes beyond is cut off (FAULTS: floods).
const (
	MaxText  = 1 << 20   // bytes of text, and of opaque blocks
	MaxArgs  = 256 << 10 // bytes of one call's arguments
	MaxCalls = 64
	maxName  = 128 // bytes of a tool's name; longer ones are no name of ours
)

// Assembly puts an answer together from what a backend reads, in order and within the bounds. It belongs to one
// goroutine. The zero value is not usable; see NewAssembly.
type Assembly struct {
	emit   func(string) error
	blocks []Block
	text   strings.Builder // the text block that is open
	size   int
	calls  int
	failed error // from emit
}

// NewAssembly makes an Assembly that passes text on to emit.
func NewAssembly(emit func(string) error) *Assembly { return &Assembly{emit: emit} }

// Text adds a piece of text and emits it. Bytes that are not UTF-8 become U+FFFD.
func (a *Assembly) Text(delta string) error {
	if delta == "" {
		return nil
	}
	delta = strings.ToValidUTF8(delta, "\uFFFD")
	if a.size += len(delta); a.size > MaxText {
		return flooded("text")
	}
	if err := a.emit(delta); err != nil {
		a.failed = err
		return err
	}
	a.text.WriteString(delta)
	return nil
}

// Opaque adds a block that only its own backend can read.
func (a *Assembly) Opaque(o Opaque) error {
	a.close()
	if a.size += len(o.Raw); a.size > MaxText {
		return flooded("thinking")
	}
	a.blocks = append(a.blocks, Block{Opaque: &o})
	return nil
}

// Call adds a call. What a backend could not read it has marked Broken; a call without a usable name or with arguments
// that are not one JSON object is marked here (B3, F-E6): nothing is repaired.
func (a *Assembly) Call(c Call) error {
	a.close()
	if a.calls++; a.calls > MaxCalls {
		return flooded("calls")
	}
	if len(c.Args) > MaxArgs {
		return flooded("arguments")
	}
	if len(c.Name) > maxName {
		c.Name = strings.ToValidUTF8(c.Name[:maxName], "")
		c.Broken = "the tool's name is too long"
	}
	if c.Broken == "" {
		c.Broken = brokenCall(c)
	}
	a.blocks = append(a.blocks, Block{Call: &c})
	return nil
}

func brokenCall(c Call) string {
	if c.Name == "" {
		return "the call names no tool"
	}
	if !utf8.ValidString(c.Name) || !utf8.Valid(c.Args) {
		return "the call is not valid UTF-8"
	}
	v := jsontext.Value(strings.TrimSpace(string(c.Args)))
	switch {
	case len(v) == 0:
		return ""
	case v.Kind() == '"' && v.IsValid():
		return "the arguments are a string, not a JSON object"
	case v.Kind() == '[' && v.IsValid():
		return "the arguments are a list, not a JSON object"
	case v.Kind() != '{' && v.IsValid(jsontext.AllowDuplicateNames(true)):
		return "the arguments are not a JSON object"
	case v.Kind() == '{' && v.IsValid(jsontext.AllowDuplicateNames(true)):
		return "" // twice the same name is the choke point's to refuse, with the field named
	}
	return "the arguments are not one JSON object: text around it, or cut off"
}

func (a *Assembly) close() {
	if a.text.Len() > 0 {
		a.blocks = append(a.blocks, TextBlock(fence.Words(a.text.String())))
		a.text.Reset()
	}
}

// Done is the finished answer. Where the token limit cut it, each of its calls is marked Broken (T12, F-E3). Whether
// StopEnd or StopCalls is told by the calls that are there: some servers say either for both.
func (a *Assembly) Done(stop Stop, usage Usage) Answer {
	a.close()
	answer := Answer{Blocks: a.blocks, Stop: stop, Usage: usage}
	switch {
	case stop == StopEnd && a.calls > 0:
		answer.Stop = StopCalls
	case stop == StopCalls && a.calls == 0:
		answer.Stop = StopEnd
	}
	if answer.Stop != StopCalls {
		for _, c := range answer.Calls() {
			c.Broken = "the answer ended before its calls were complete, so none of them was run; send the call again"
		}
	}
	return answer
}

// Partial is what an answer that failed leaves: its text.
func (a *Assembly) Partial(usage Usage) Answer {
	a.close()
	answer := Answer{Usage: usage}
	for _, b := range a.blocks {
		if b.Text != nil {
			answer.Blocks = append(answer.Blocks, b)
		}
	}
	return answer
}

// Failed is the error that emit returned, if it did: it goes to the caller as it is.
func (a *Assembly) Failed() error { return a.failed }

func flooded(what string) *Failure {
	return &Failure{Kind: Flooded, Cause: errors.New("too much: " + what)}
}

// Object is the arguments of a call in a form that every wire accepts: the text itself if it is one JSON object, and an
// empty object otherwise, so that a broken call in the history never breaks the next request (F-D4).
func (c Call) Object() jsontext.Value {
	v := jsontext.Value(c.Args)
	if c.Broken != "" || !v.IsValid() || v.Kind() != '{' {
		return jsontext.Value("{}")
	}
	return v
}

// WireName is a tool's name in a form that every wire accepts: what a model made up may hold anything.
func WireName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
	if name == "" {
		return "unnamed"
	}
	return name[:min(len(name), 64)]
}

// Check holds a request to the rules that the Messages API would answer 400 for: it begins and ends with the user, the
// two alternate, identifiers are unique in their message, every Call has its Result in the next message, and no Result
// stands alone (H5, F-D1). A breach is a mistake of this program.
func (r Request) Check() error {
	if len(r.Messages) == 0 {
		return disorder(0, "there is none")
	}
	open := map[string]bool{}
	for i, m := range r.Messages {
		want := User
		if i%2 == 1 {
			want = Assistant
		}
		if m.Role != want {
			return disorder(i, "it is the other side's turn")
		}
		calls := map[string]bool{}
		for _, b := range m.Blocks {
			switch {
			case b.Call != nil && m.Role == Assistant:
				if b.Call.ID == "" || calls[b.Call.ID] {
					return disorder(i, "a call has no identifier of its own")
				}
				calls[b.Call.ID] = true
			case b.Result != nil && m.Role == User:
				if !open[b.Result.ID] {
					return disorder(i, "a result answers no call")
				}
				delete(open, b.Result.ID)
			case b.Text == nil && (b.Opaque == nil || m.Role == User):
				return disorder(i, "a block does not belong to this side")
			}
		}
		if len(open) > 0 {
			return disorder(i, "a call was not answered")
		}
		open = calls
	}
	if len(r.Messages)%2 == 0 {
		return disorder(len(r.Messages)-1, "the last word is not the user's")
	}
	return nil
}

func disorder(i int, what string) error {
	return fault.Wrap(fmt.Errorf("message %d: %s", i, what), fault.Failed, "the conversation is not in order; its end can be undone").Doing("model.check")
}

// CallInText names the offered tool that an answer's text seems to call, or "". Such text is text and is never run; it
// tells the host that the model cannot call tools properly (T12, F-E5).
func CallInText(text string, tools []Tool) string {
	i := strings.IndexByte(text, '{')
	if i < 0 {
		return ""
	}
	rest := text[i:]
	for range 16 { // candidates looked at; a real one stands first
		var call struct {
			Name, Tool, Function jsontext.Value
		}
		dec := jsontext.NewDecoder(strings.NewReader(rest), jsontext.AllowDuplicateNames(true))
		if v, err := dec.ReadValue(); err == nil && json.Unmarshal(v, &call, json.MatchCaseInsensitiveNames(true), jsontext.AllowDuplicateNames(true)) == nil {
			for _, name := range []jsontext.Value{call.Name, call.Tool, call.Function} {
				for _, t := range tools {
					if string(name) == `"`+t.Name+`"` {
						return t.Name
					}
				}
			}
		}
		next := strings.IndexByte(rest[1:], '{')
		if next < 0 {
			return ""
		}
		rest = rest[1+next:]
	}
	return ""
}
