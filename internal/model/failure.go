package model

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	"atoll/internal/fault"
)

// Kind is what went wrong on the model's side.
type Kind uint8

// The kinds. Overloaded, Dropped and Unreachable are worth another try.
const (
	Refused     Kind = iota + 1 // for good: the key, the model's name, the request, the account's credit
	Overloaded                  // 429, 529, 5xx, or an overload reported inside a stream
	Dropped                     // the connection broke before the answer was complete
	Unreachable                 // no connection came about
	Silent                      // nothing came for too long
	Flooded                     // more came than an answer may hold
	Garbled                     // what came is not a model's answer
)

// Failure is the cause inside the fault.Error of a backend: what Retry decides on and what the log shows. It holds no
// secret.
type Failure struct {
	Kind   Kind
	Status int           // the HTTP status, where there was one
	After  time.Duration // the wait the server asked for; zero means none
	Words  string        // what the server said: capped, printable, without the key
	Cause  error
}

func (f *Failure) Error() string {
	var b strings.Builder
	b.WriteString(f.Kind.String())
	if f.Status != 0 {
		fmt.Fprintf(&b, ", status %d", f.Status)
	}
	if f.Words != "" {
		b.WriteString(": " + f.Words)
	}
	if f.Cause != nil {
		b.WriteString(": " + f.Cause.Error())
	}
	return b.String()
}

func (f *Failure) Unwrap() error { return f.Cause }

// String names the kind for the log.
func (k Kind) String() string {
	switch k {
	case Refused:
		return "refused"
	case Overloaded:
		return "overloaded"
	case Dropped:
		return "connection dropped"
	case Unreachable:
		return "unreachable"
	case Silent:
		return "silent"
	case Flooded:
		return "answer too large"
	case Garbled:
		return "not an answer"
	}
	return "unknown"
}

// passing reports whether the same request may succeed a little later.
func (f *Failure) passing() bool {
	return f.Kind == Overloaded || f.Kind == Dropped || f.Kind == Unreachable
}

// failureOf turns a response that is no answer into a Failure. retry says what an X-Should-Retry header said.
func failureOf(status int, header http.Header, words string, now time.Time) *Failure {
	f := &Failure{Kind: Refused, Status: status, Words: words}
	// An account without credit is told as 429 by both kinds of server, and waiting does not fill it.
	broke := strings.Contains(words, "insufficient_quota") || strings.Contains(words, "spend_limit") || status == http.StatusPaymentRequired
	switch {
	case broke:
		f.Status = http.StatusPaymentRequired
	case header.Get("X-Should-Retry") == "false":
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= 500 && status != http.StatusNotImplemented:
		f.Kind, f.After = Overloaded, retryAfter(header, now)
	}
	return f
}

// retryAfter reads the wait that a server asks for, in seconds or as a date.
func retryAfter(header http.Header, now time.Time) time.Duration {
	if ms, err := time.ParseDuration(header.Get("Retry-After-Ms") + "ms"); err == nil && ms > 0 {
		return ms
	}
	v := header.Get("Retry-After")
	if s, err := time.ParseDuration(v + "s"); err == nil && s > 0 {
		return s
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

// Cancelled is the error of a backend whose context ended.
func Cancelled(cause error) *fault.Error {
	return fault.Wrap(cause, fault.Cancelled, "the answer was stopped").Doing("model.stream")
}

// Fault words a failure of this wire for the person (SPEC section 3: what to do about it). Errors that are faults
// already, and an ended context, keep their own meaning.
func (w *Wire) Fault(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return Cancelled(cause)
	}
	if fe, ok := errors.AsType[*fault.Error](err); ok {
		return fe
	}
	f, ok := errors.AsType[*Failure](err)
	if !ok {
		f = &Failure{Kind: Garbled, Words: err.Error()}
	}
	f.Words = w.clean(f.Words)
	return w.word(f).Doing("model.stream").After(f.After)
}

func (w *Wire) word(f *Failure) *fault.Error {
	said := ""
	if f.Words != "" {
		said = "; it says: " + f.Words
	}
	wrap := func(format string, args ...any) *fault.Error {
		return fault.Wrap(f, fault.ModelFailed, format, args...)
	}
	switch f.Kind {
	case Unreachable:
		return wrap("no model server answers at %s: check that it runs and that assistant.base_url is right", w.cfg.Host)
	case Dropped:
		return wrap("the model server at %s broke the connection before its answer was complete; ask again", w.cfg.Host)
	case Silent:
		return wrap("the model server at %s said nothing for %s; ask again, or look whether it is stuck", w.cfg.Host, w.cfg.Idle)
	case Flooded:
		return wrap("the model server at %s sent more than an answer may hold and was cut off", w.cfg.Host)
	case Garbled:
		return wrap("the model server at %s sent something that is not a model's answer: check assistant.base_url%s", w.cfg.Host, said)
	case Overloaded:
		if f.Status == http.StatusTooManyRequests {
			return wrap("the model server at %s limits this key; wait a little and ask again", w.cfg.Host)
		}
		return wrap("the model server at %s is overloaded or broken (status %d); wait a little and ask again", w.cfg.Host, f.Status)
	}
	switch f.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		if w.cfg.Key.Empty() {
			return wrap("the model server at %s wants a key: put it into %s", w.cfg.Host, w.cfg.KeyFile)
		}
		return wrap("the model server at %s refused the key: put a valid one into %s", w.cfg.Host, w.cfg.KeyFile)
	case http.StatusPaymentRequired:
		return wrap("the account at %s has no credit left or has reached its limit", w.cfg.Host)
	case http.StatusNotFound:
		return wrap("the model server at %s does not know the model %q: check assistant.model and assistant.base_url%s",
			w.cfg.Host, w.cfg.Model, said)
	}
	return wrap("the model server at %s refused the request%s", w.cfg.Host, said)
}

// maxWords bounds what is kept of a server's own words, in bytes.
const maxWords = 300

// clean makes a server's words fit to show: without the key, printable, on one line, capped.
func (w *Wire) clean(s string) string {
	if !w.cfg.Key.Empty() {
		s = strings.ReplaceAll(s, w.cfg.Key.Reveal(), "***")
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r) || r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxWords {
		s = strings.ToValidUTF8(s[:maxWords], "") + "…"
	}
	return s
}
