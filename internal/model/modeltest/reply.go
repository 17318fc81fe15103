// Package modeltest is what the model backends are tested against: one contract that each of them passes, and fake
// servers that speak the two wires faithfully, refuse what the real ones refuse, and fail in the ways real ones fail.
// The servers are plain http.Handlers, so that whole programs can be tried against them too. It is no part of a node.
package modeltest

import (
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
)

// Reply is what a fake server does with one request. The zero Reply is an empty answer.
type Reply struct {
	// When picks this reply only for a request whose last message holds these words; empty fits every request.
	When string `json:"when"`
	// Repeat keeps the reply for later requests; otherwise it serves one.
	Repeat bool `json:"repeat"`

	Text     []string `json:"text"`     // the chunks streamed
	Thinking string   `json:"thinking"` // Claude's wire only: a signed block before the text
	Calls    []Call   `json:"calls"`
	Stop     string   `json:"stop"` // in the wire's own word; empty means the one that fits
	In       int      `json:"in"`   // tokens
	Out      int      `json:"out"`
	CacheIn  int      `json:"cache_in"` // of the input tokens, read from the cache

	Status     int    `json:"status"`      // an error instead of a stream
	RetryAfter string `json:"retry_after"` // with it
	Message    string `json:"message"`     // its words

	Fault Fault    `json:"fault"` // how the stream goes wrong after the text and calls above
	Lines []string `json:"lines"` // raw lines sent in place of Text, Calls and the proper end

	// Wait, where set, holds the end of the answer back until it is closed or the client leaves.
	Wait <-chan struct{} `json:"-"`
}

// Call is one call in a Reply.
type Call struct {
	ID   string `json:"id"` // empty leaves it out on OpenAI's wire, and makes one up on Claude's
	Name string `json:"name"`
	Args string `json:"args"` // as the model wrote them, in pieces on the wire
	// Raw stands in place of the whole tool_calls entry on OpenAI's wire.
	Raw string `json:"raw"`
}

// Fault is a way in which a server fails.
type Fault string

// The faults. Abort closes the connection before anything was sent; the others come after the reply's text.
const (
	Abort    Fault = "abort"
	Reset    Fault = "reset"    // closes the connection in the middle
	Cut      Fault = "cut"      // ends the stream properly, but the answer is not finished
	Overload Fault = "overload" // reports an overload inside the stream
	Silence  Fault = "silence"  // says nothing more and keeps the connection
	Pings    Fault = "pings"    // sends comments and pings and nothing else
	Garbage  Fault = "garbage"  // sends bytes that are no JSON
	Endless  Fault = "endless"  // never stops sending text
	LongLine Fault = "longline" // sends a line that never ends
	HTML     Fault = "html"     // answers with a web page
	Redirect Fault = "redirect" // points to another address
)

// ReadReplies reads a JSON list of replies, strictly.
func ReadReplies(r io.Reader) ([]Reply, error) {
	var replies []Reply
	if err := json.UnmarshalRead(r, &replies, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("replies: %w", err)
	}
	return replies, nil
}

// Seen is a request as the server read it.
type Seen struct {
	N       int // counts from zero, the refused ones too
	Model   string
	System  string
	Tools   []string
	Last    string // all text of the last message, results included
	Path    string
	From    string // the client's address with its port: one for each connection
	Header  map[string]string
	Body    string
	Problem string // why it was answered with 400; empty for a good request
}

// pick takes the reply for a request.
func pick(replies []Reply, used []bool, last string) (Reply, bool) {
	for i, r := range replies {
		if !used[i] && strings.Contains(last, r.When) {
			used[i] = !r.Repeat
			return r, true
		}
	}
	return Reply{}, false
}

// stopWord is the reason that a reply gives for its end.
func stopWord(r Reply, end, calls string) string {
	switch {
	case r.Stop != "":
		return r.Stop
	case len(r.Calls) > 0:
		return calls
	}
	return end
}

// pieces cuts a text in two, as calls' arguments come in pieces.
func pieces(s string) []string {
	if len(s) < 2 {
		return []string{s}
	}
	half := len(s) / 2
	for half > 0 && s[half]&0xC0 == 0x80 { // not inside a character
		half--
	}
	return []string{s[:half], s[half:]}
}
