package client

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fault"
)

// Answer is the result of assistant.chat.
type Answer struct {
	Conversation string     `json:"conversation"`
	Answer       string     `json:"answer"`
	Rounds       int        `json:"rounds"`
	Tools        []ToolCall `json:"tools"`
	Changes      []Change   `json:"changes"`
	Offers       []Offer    `json:"offers,omitempty"`
	Notes        []string   `json:"notes,omitempty"` // the host's own remarks on the answer
	Usage        Usage      `json:"usage"`
}

// ToolCall is one call of the model and how it ended.
type ToolCall struct {
	Tool    string     `json:"tool"`
	Outcome string     `json:"outcome"`
	Code    fault.Code `json:"code,omitempty"`
}

// Change is one line of the host's own list of what was done (T11).
type Change struct {
	Tool    string `json:"tool"`
	Summary string `json:"summary"`
	Outcome string `json:"outcome"`
}

// Offer is a closed category that the owner may open (T8).
type Offer struct {
	Category string   `json:"category"`
	Tools    []string `json:"tools"` // destructive tools that it would open
	Host     string   `json:"host"`  // where the data would be sent
}

// Usage is what a turn cost.
type Usage struct {
	In         int64    `json:"in"`
	Out        int64    `json:"out"`
	CacheRead  int64    `json:"cache_read"`
	CacheWrite int64    `json:"cache_write"`
	CostUSD    *float64 `json:"cost_usd,omitempty"`
}

// Pending is one action that waits for a person.
type Pending struct {
	Nonce        string         `json:"nonce"`
	ActionKey    string         `json:"action_key"`
	Conversation string         `json:"conversation"`
	Caller       string         `json:"caller"`
	Tool         string         `json:"tool"`
	Summary      string         `json:"summary"`
	Target       string         `json:"target"`
	Arguments    jsontext.Value `json:"arguments"`
	Before       string         `json:"before"`
	After        string         `json:"after"`
	Untrusted    []string       `json:"untrusted"`
	Warnings     []string       `json:"warnings"`
	MayAllow     bool           `json:"may_allow"`
	MaybeRan     bool           `json:"maybe_ran"`
	ExpiresAt    time.Time      `json:"expires_at"`
}

// Ended says how a Pending ended: "approved", or the code of a refusal.
type Ended struct {
	Nonce   string     `json:"nonce"`
	Outcome fault.Code `json:"outcome"`
}

// Approved is the outcome of a Pending that a person let through.
const Approved fault.Code = "approved"

// Decision is the parameter of assistant.confirm.
type Decision struct {
	Nonce     string `json:"nonce"`
	ActionKey string `json:"action_key"`
	Decision  string `json:"decision"` // approve or decline
	Reason    string `json:"reason,omitempty"`
	AllowForS int64  `json:"allow_for_s,omitzero"`
}

// Grant is the state of one category (A1, A2).
type Grant struct {
	Granted   bool      `json:"granted"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero: until it is closed
}

// History is one conversation as people see it, oldest turn first.
type History struct {
	Title   string        `json:"title"`
	Entries []HistoryTurn `json:"entries"`
	Earlier bool          `json:"earlier"` // there are turns before these
}

// HistoryTurn is one turn of a conversation.
type HistoryTurn struct {
	Turn    int            `json:"turn"`
	At      time.Time      `json:"at"`
	Message string         `json:"message"`
	Blocks  []HistoryBlock `json:"blocks"`
	Changes []Change       `json:"changes"`
	Outcome string         `json:"outcome"`
	Code    fault.Code     `json:"code"`
}

// HistoryBlock is a text of the assistant, or a call with its result.
type HistoryBlock struct {
	Kind      string `json:"kind"` // text, call
	Text      string `json:"text"`
	Tool      string `json:"tool"`
	Arguments string `json:"arguments"`
	Error     bool   `json:"error"`
	Private   bool   `json:"private"` // arguments and result were not kept (H3)
}

// Undone is what assistant.undo took out.
type Undone struct {
	Message string   `json:"message"`
	Changes []Change `json:"changes"`
}

// Notice is one thing the node wants its owner to know.
type Notice struct {
	ID       jsontext.Value `json:"id"`
	Kind     string         `json:"kind"`
	Severity string         `json:"severity"`
	What     string         `json:"what"`
	Do       string         `json:"do"`
	Count    int64          `json:"count"`
	LastAt   time.Time      `json:"last_at"`
}
