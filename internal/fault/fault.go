// Package fault is the error that crosses the node's surface: a stable code, words for the person, words for the model
// and a cause for the log. It is no logger and knows no transport: rpc maps codes to HTTP statuses.
package fault

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Code is the stable, closed vocabulary of refusals and failures (T8). Clients switch on it; words may change, codes
// may not.
type Code string

// The codes. Catalogue documents each one; a test holds the two together.
const (
	UnknownTool     Code = "unknown_tool"
	NotGranted      Code = "not_granted"
	InvalidArgs     Code = "invalid_arguments"
	Rule            Code = "rule"
	Declined        Code = "declined"
	Expired         Code = "expired"
	Cancelled       Code = "cancelled"
	NobodyToAsk     Code = "nobody_to_ask"
	Changed         Code = "changed"
	TooSoon         Code = "too_soon"
	Dropped         Code = "dropped"
	OutcomeUnknown  Code = "outcome_unknown"
	RateLimited     Code = "rate_limited"
	TooManyCalls    Code = "too_many_calls"
	Truncated       Code = "truncated"
	Loop            Code = "loop"
	ReadOnly        Code = "read_only"
	Off             Code = "off"
	Busy            Code = "busy"
	Budget          Code = "budget"
	ModelFailed     Code = "model_failed"
	BadRequest      Code = "bad_request"
	InvalidParams   Code = "invalid_params"
	TooLarge        Code = "too_large"
	UnknownMethod   Code = "unknown_method"
	Unauthenticated Code = "unauthenticated"
	CSRF            Code = "csrf"
	Forbidden       Code = "forbidden"
	NotFound        Code = "not_found"
	NotConfigured   Code = "not_configured"
	Unavailable     Code = "unavailable"
	Failed          Code = "failed"
)

// Catalogue is the closed list of codes with what each one means, in the order they are documented.
func Catalogue() []Entry {
	return []Entry{
		{UnknownTool, "the model asked for a tool that does not exist"},
		{NotGranted, "the tool exists, but its category is closed to the assistant or it is not offered to this caller"},
		{InvalidArgs, "the tool's arguments do not fit its schema; the field is named"},
		{Rule, "the arguments are well formed, but the action makes no sense now (no such app, a key that cannot be set)"},
		{Declined, "a person said no"},
		{Expired, "nobody answered in time"},
		{Cancelled, "the turn or its client ended before an answer"},
		{NobodyToAsk, "no person is listening, so the answer is no"},
		{Changed, "between question and approval the target, a grant, the mode, the account or the tool changed"},
		{TooSoon, "an approval within the first second of a dialog; it leaves the dialog standing"},
		{Dropped, "the node was restarted while the question stood; nothing ran"},
		{OutcomeUnknown, "the action was started and its result was not seen"},
		{RateLimited, "too many calls; retry_after_s says when to come back"},
		{TooManyCalls, "more calls or dialogs than one answer or one turn may hold"},
		{Truncated, "the model's answer was cut off inside a call, so the call was not run"},
		{Loop, "the model repeated itself and was stopped"},
		{ReadOnly, "the assistant is in read-only mode"},
		{Off, "the assistant is switched off"},
		{Busy, "a turn is already running in this conversation"},
		{Budget, "the day's model budget is used up"},
		{ModelFailed, "the model could not be reached or refused for good"},
		{BadRequest, "the request is not a JSON-RPC 2.0 call this node accepts"},
		{InvalidParams, "the parameters are wrong; field names the one"},
		{TooLarge, "the request is larger than allowed"},
		{UnknownMethod, "no such method"},
		{Unauthenticated, "no live session"},
		{CSRF, "the X-CSRF-Token header is missing or wrong"},
		{Forbidden, "this account, or this door, may not do that"},
		{NotFound, "the thing named does not exist"},
		{NotConfigured, "this part of the node is not set up"},
		{Unavailable, "this part of the node cannot be reached now"},
		{Failed, "something went wrong inside; the server's log has the cause"},
	}
}

// Entry is one line of the Catalogue.
type Entry struct {
	Code    Code
	Meaning string
}

// Error is a refusal or a failure with the words that may leave the node. The cause never does: it is for the log.
type Error struct {
	Code       Code
	Op         string        // what was being done, for the log: "apps.restart"
	Public     string        // words for the person; never empty once built by New
	Model      string        // words for the model; empty means Public
	Field      string        // the parameter at fault, where there is one
	RetryAfter time.Duration // how long to wait; zero means no advice
	Cause      error
	values     []any
}

// New makes an Error with public words in fmt style. Arguments must be fit for the person to read: never a secret.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Public: fmt.Sprintf(format, args...), values: args}
}

// Wrap makes an Error whose cause is kept for the log and hidden from callers.
func Wrap(cause error, code Code, format string, args ...any) *Error {
	e := New(code, format, args...)
	e.Cause = cause
	return e
}

// At names the field at fault.
func (e *Error) At(field string) *Error { e.Field = field; return e }

// ForModel sets what the model reads instead of the public words.
func (e *Error) ForModel(format string, args ...any) *Error {
	e.Model = fmt.Sprintf(format, args...)
	e.values = append(e.values, args...)
	return e
}

// After sets the advised wait.
func (e *Error) After(d time.Duration) *Error { e.RetryAfter = d; return e }

// Doing names the operation for the log.
func (e *Error) Doing(op string) *Error { e.Op = op; return e }

func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Public
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Cause }

// ModelWords is what the model is told.
func (e *Error) ModelWords() string {
	if e.Model != "" {
		return e.Model
	}
	return e.Public
}

// Values are what was filled into the words: the part of them that may be somebody else's text.
func (e *Error) Values() []any { return e.values }

// Of turns any error into an Error. One that is none already becomes Cancelled for an ended context, else Failed with
// neutral words: what a stranger's error says is not fit to be shown.
func Of(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) {
		return Wrap(err, Cancelled, "cancelled")
	}
	return Wrap(err, Failed, "something went wrong inside the node; its log says what")
}

// Is reports whether err carries the code.
func Is(err error, code Code) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}
