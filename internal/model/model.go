// Package model is one language model behind one streaming interface. It offers tools and reports calls; it runs none
// of them and knows nothing of grants or people. The backends stand below it: claude, openai, local and script.
package model

import (
	"context"
	"time"

	"atoll/internal/fence"
)

// Client is one configured model. Implementations are safe for concurrent use.
type Client interface {
	// Stream sends the request and calls emit for each piece of answer text as it arrives, in order, from one
	// goroutine. It returns the whole answer. An error from emit ends the stream and is returned. Errors are
	// *fault.Error: ModelFailed for what the model's side did, Cancelled for an ended context. After an error the
	// Answer holds what had arrived (text only; a call cut off is not in it).
	Stream(ctx context.Context, req Request, emit func(delta string) error) (Answer, error)
	// Info says what the backend is, for people and for prices.
	Info() Info
}

// Info describes a backend.
type Info struct {
	Backend string // "local", "claude", "openai", "script"
	Model   string // the model's name at that backend
	Host    string // where text is sent ("api.anthropic.com"); empty means this machine
}

// Request is one model round.
type Request struct {
	System    fence.Text
	Tools     []Tool
	Messages  []Message // alternating, the first from the user; every Call has its Result in the next message
	MaxTokens int       // answer limit; zero means the backend's default
	Now       time.Time // the turn's own time, for the prompt and for local answers
}

// Tool is one entry of the list offered to the model.
type Tool struct {
	Name        string
	Description string
	Schema      []byte // JSON Schema of the arguments, an object
}

// Role is whose message it is.
type Role uint8

// The two speakers. Tool results travel in the user's messages.
const (
	User Role = iota + 1
	Assistant
)

// Message is one message of the conversation.
type Message struct {
	Role   Role
	Blocks []Block
}

// Block is one piece of a message: exactly one field is set.
type Block struct {
	Text   *fence.Text
	Call   *Call
	Result *Result
	// Opaque is a block of one backend (Claude's thinking) that must go back unchanged to the same backend and to no
	// other.
	Opaque *Opaque
}

// Call is the model asking for a tool.
type Call struct {
	ID   string // the host's own identifier once the turn has it; the backend's before
	Name string
	// Args is the argument text as the model wrote it, not yet trusted to be JSON; empty means none were given.
	Args []byte
	// Broken says why the backend could not make sense of the call (arguments as a string, cut off); the host answers
	// it with a correction and never runs it.
	Broken string
}

// Result is the host's answer to a call.
type Result struct {
	ID      string
	Name    string
	Text    fence.Text
	IsError bool
}

// Opaque is a block carried for one backend.
type Opaque struct {
	Backend string
	Raw     []byte
}

// Stop is why an answer ended.
type Stop uint8

// Reasons to stop. Truncated means the token limit cut the answer: its calls are never dispatched (T12).
const (
	StopEnd Stop = iota + 1
	StopCalls
	StopTruncated
	StopRefused
)

// Answer is one finished model round.
type Answer struct {
	Blocks []Block // Text, Call and Opaque, in the model's order
	Stop   Stop
	Usage  Usage
}

// Usage counts tokens. CacheRead and CacheWrite are not part of In.
type Usage struct {
	In, Out, CacheRead, CacheWrite int64
}

// Add sums two usages.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.In + v.In, u.Out + v.Out, u.CacheRead + v.CacheRead, u.CacheWrite + v.CacheWrite}
}

// TextBlock makes a block of text.
func TextBlock(t fence.Text) Block { return Block{Text: &t} }

// Calls lists the answer's calls in order.
func (a Answer) Calls() []*Call {
	var calls []*Call
	for _, b := range a.Blocks {
		if b.Call != nil {
			calls = append(calls, b.Call)
		}
	}
	return calls
}

// Text joins the answer's text.
func (a Answer) Text() string {
	s := ""
	for _, b := range a.Blocks {
		if b.Text != nil {
			s += b.Text.Payload()
		}
	}
	return s
}
