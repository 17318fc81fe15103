package report

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fault"
	"atoll/internal/fence"
)

// line is an outcome in a log.
type line struct {
	ID         string   `json:"id"`
	Text       string   `json:"text"`
	Place      string   `json:"place"`
	Caller     string   `json:"caller"`
	Person     string   `json:"person"`
	State      string   `json:"state"`
	Source     string   `json:"source,omitempty"`
	Kind       string   `json:"kind"`
	Violations []string `json:"violations,omitempty"`
	Effects    int      `json:"effects,omitzero"`
	Approved   int      `json:"approved,omitzero"`
	Asked      int      `json:"asked,omitzero"`
	Needed     int      `json:"needed,omitzero"`
	Done       bool     `json:"done,omitzero"`
	Rounds     int      `json:"rounds,omitzero"`
	TookUS     int64    `json:"took_us"`
	TokensIn   int64    `json:"tokens_in,omitzero"`
	TokensOut  int64    `json:"tokens_out,omitzero"`
}

func toLine(o Outcome) line {
	violations := make([]string, len(o.Violations))
	for i, v := range o.Violations {
		violations[i] = fence.Cap(v, maxWords)
	}
	return line{valid(o.ID), o.Text, o.Place, o.Caller, o.Person, o.State, o.Source, o.Kind, violations, o.Effects, o.Approved, o.Asked, o.Needed, o.Done,
		o.Rounds, o.Took.Microseconds(), o.TokensIn, o.TokensOut}
}

func (l line) outcome() Outcome {
	return Outcome{ID: l.ID, Text: l.Text, Place: l.Place, Caller: l.Caller, Person: l.Person, State: l.State, Source: l.Source, Kind: l.Kind,
		Violations: l.Violations, Effects: l.Effects, Approved: l.Approved, Asked: l.Asked, Needed: l.Needed, Done: l.Done, Rounds: l.Rounds,
		Took: time.Duration(l.TookUS) * time.Microsecond, TokensIn: l.TokensIn, TokensOut: l.TokensOut}
}

// Run says which run a log belongs to. Only a run of the same texts, seed and model can be resumed.
type Run struct {
	Format int    `json:"atoll_eval"` // 1
	Suite  string `json:"suite"`      // a hash of the texts
	Seed   int64  `json:"seed"`
	Model  string `json:"model"`
}

// Log is a file of outcomes, a JSON line each after one that holds the Run. It is what a stopped run is resumed from.
type Log struct {
	file *os.File
	run  Run
	seen map[string]bool
}

// maxLine bounds a line of a log.
const maxLine = 1 << 20

// OpenLog opens the log at path, made with mode 0600 where there is none, and gives each outcome in it to add, once. What was
// written of a last line that was cut off is removed.
func OpenLog(path string, run Run, add func(Outcome)) (*Log, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidParams, "%s cannot be opened", path)
	}
	l := &Log{file: f, run: run, seen: map[string]bool{}}
	if err := l.load(add); err != nil {
		_ = f.Close() // what went wrong before is what counts
		if _, ok := errors.AsType[*fault.Error](err); ok {
			return nil, err
		}
		return nil, fault.Wrap(err, fault.Failed, "%s cannot be used: %v", path, err)
	}
	return l, nil
}

func (l *Log) load(add func(Outcome)) error {
	in := bufio.NewReaderSize(l.file, maxLine)
	var whole int64 // bytes of whole lines
	for n := 1; ; n++ {
		raw, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && n == 1:
			return l.begin(raw)
		case errors.Is(err, io.EOF):
			return l.file.Truncate(whole) // without the line that was cut off
		case errors.Is(err, bufio.ErrBufferFull):
			return l.damaged(n, "it is too long")
		case err != nil:
			return err
		}
		if n == 1 {
			err = l.same(raw)
		} else {
			err = l.read(raw, n, add)
		}
		if err != nil {
			return err
		}
		whole += int64(len(raw))
	}
}

// begin writes the first line of a new log, also where it was cut off before. It spares what is no log.
func (l *Log) begin(cut []byte) error {
	first, err := json.Marshal(l.run, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(first, cut) {
		return l.foreign()
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	return l.write(l.run)
}

func (l *Log) foreign() error {
	return fault.New(fault.InvalidParams, "%s holds no run of atoll eval that this version can go on with", l.file.Name())
}

func (l *Log) same(raw []byte) error {
	var was Run
	if json.Unmarshal(raw, &was) != nil || was.Format != l.run.Format {
		return l.foreign()
	}
	for _, d := range []struct {
		differ bool
		what   string
	}{
		{was.Seed != l.run.Seed, fmt.Sprintf("with --seed %d", was.Seed)},
		{was.Model != l.run.Model, "with another model (" + was.Model + ")"},
		{was.Suite != l.run.Suite, "of other texts"},
	} {
		if d.differ {
			return fault.New(fault.InvalidParams, "%s is of a run %s — give the same flags, or another file", l.file.Name(), d.what)
		}
	}
	return nil
}

func (l *Log) read(raw []byte, n int, add func(Outcome)) error {
	var o line
	if err := json.Unmarshal(raw, &o); err != nil || o.ID == "" {
		return l.damaged(n, "it is no outcome")
	}
	// A case is there twice where two runs were let write to one file, and where more was found once its text was done with.
	if !l.seen[o.ID] || len(o.Violations) > 0 {
		l.seen[o.ID] = true
		add(o.outcome())
	}
	return nil
}

func (l *Log) damaged(n int, why string) error {
	return fault.New(fault.InvalidParams, "line %d of %s is damaged: %s — remove it, and the case runs again", n, l.file.Name(), why)
}

// Has reports whether a case is in the log.
func (l *Log) Has(id string) bool { return l.seen[valid(id)] }

// Name is the file's path.
func (l *Log) Name() string { return l.file.Name() }

// Write appends an outcome: it is there after kill -9, not after the machine lost its power.
func (l *Log) Write(o Outcome) error { return l.write(toLine(o)) }

func (l *Log) write(v any) error {
	raw, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	_, err = l.file.Write(append(raw, '\n')) // one call, so that a kill leaves whole lines and at most one cut
	return err
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }
