package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/cli/term"
	"atoll/internal/fault"
)

// printf writes the host's words; values of others must have gone through term.Clean.
func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.Stdout, format+"\n", args...) }

// note writes to the person, not to what reads the output.
func (a *app) note(format string, args ...any) { fmt.Fprintf(a.Stderr, format+"\n", args...) }

// printJSON writes a value as JSON. What a terminal could take for more than text is escaped, which JSON allows.
func (a *app) printJSON(v any) error {
	raw, err := json.Marshal(v, json.Deterministic(true), json.FormatNilSliceAsNull(false), jsontext.WithIndent("  "))
	if err != nil {
		return fault.Wrap(err, fault.Failed, "the answer cannot be written as JSON")
	}
	_, err = a.Stdout.Write(append(term.EscapeJSON(raw), '\n'))
	return err
}

// showError says what went wrong and what to do.
func (a *app) showError(err error) {
	if _, ok := errors.AsType[silent](err); ok {
		return
	}
	f := fault.Of(err)
	words := term.Clean(f.Public)
	if _, ok := errors.AsType[*fault.Error](err); !ok && f.Code == fault.Failed {
		words = term.Clean(err.Error()) // of this process, so for the person who started it: serve, or work on a stopped node
	}
	u, isUsage := errors.AsType[usageError](err)
	if isUsage && f.Code == fault.Failed {
		words = term.Clean(u.error.Error())
	}
	if f.Field != "" && !strings.Contains(words, f.Field) {
		words = term.Clean(f.Field) + ": " + words
	}
	if hint := hint(f); hint != "" && !strings.Contains(words, "—") {
		words += " — " + hint
	}
	if a.json {
		code := f.Code
		if isUsage {
			code = fault.InvalidParams
		}
		_ = a.printJSON(map[string]any{"error": struct {
			Code        fault.Code `json:"code"`
			Message     string     `json:"message"`
			Field       string     `json:"field,omitempty"`
			RetryAfterS int64      `json:"retry_after_s,omitzero"`
		}{code, words, f.Field, int64(f.RetryAfter.Seconds())}})
		return
	}
	a.note("atoll: %s", words)
	if isUsage && u.command != "" {
		a.note("Run `%s --help` for how to write it.", u.command)
	}
}

// hint says what to do about a refusal whose words do not.
func hint(f *fault.Error) string {
	switch f.Code {
	case fault.Unauthenticated, fault.CSRF:
		return "run `atoll login`"
	case fault.Forbidden:
		return "ask the node's owner"
	case fault.Off, fault.ReadOnly:
		return "the owner can change it with `atoll mode confirm`"
	case fault.Busy:
		return "wait until it has ended, or stop it"
	case fault.UnknownMethod:
		return "the node is of another version than this program"
	case fault.RateLimited:
		if f.RetryAfter > 0 {
			return "try again in " + f.RetryAfter.String()
		}
	}
	return ""
}

type (
	column = term.Column
	row    = term.Row
)

func col(title string, keys ...string) column { return column{Title: title, Keys: keys} }

// field is one value of a row as text.
func field(r row, keys ...string) string { return col("", keys...).Text(r) }

func (a *app) table(rows []row, empty string, cols ...column) {
	term.Table(a.Stdout, rows, empty, cols...)
}

// listing calls a method and shows the list in its result.
func (a *app) listing(ctx context.Context, method string, params any, list string, empty string, cols ...column) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	var raw jsontext.Value
	if err := c.Call(ctx, method, params, &raw); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(raw)
	}
	rows, err := rowsOf(raw, list)
	if err != nil {
		return err
	}
	a.table(rows, empty, cols...)
	return a.problems(raw)
}

// problems names what of a list could not be read: a list is never empty in silence (H6).
func (a *app) problems(raw jsontext.Value) error {
	rows, err := rowsOf(raw, "problems")
	for _, p := range rows {
		what := "Problem"
		if file := field(p, "file"); file != "" {
			what += " with " + file
		}
		a.printf("%s: %s", what, field(p, "problem", "text"))
	}
	return err
}

func rowsOf(raw jsontext.Value, list string) ([]row, error) {
	var result map[string]jsontext.Value
	var rows []row
	err := json.Unmarshal(raw, &result)
	if err == nil && len(result[list]) > 0 {
		err = json.Unmarshal(result[list], &rows)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Failed, "the node's answer is not what this version of atoll reads — are both of one version?")
	}
	return rows, nil
}
