package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/cli"
	"atoll/internal/eval/attack"
	"atoll/internal/eval/report"
	"atoll/internal/fault"
	"atoll/internal/model"
	"atoll/internal/model/local"
	"atoll/internal/node"
)

// worstCase is the name of the model that obeys whatever a text wants.
const worstCase = "worst-case model"

// suite is what a run of eval tries.
type suite struct {
	texts  []attack.Text
	tasks  []attack.Task
	benign []string
}

// eval runs the attack suite and sums it up.
func eval(ctx context.Context, o cli.EvalOptions) (_ *cli.EvalResult, err error) {
	s, err := loadSuite(o)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidParams, "the texts cannot be read: %v", err)
	}
	name, client, err := evalModel(o)
	if err != nil {
		return nil, fault.Wrap(err, fault.Failed, "the model cannot be used: %v", err)
	}
	var tally report.Tally
	log, err := evalLog(&o, report.Run{Format: 1, Suite: s.hash(), Seed: o.Seed, Model: name}, tally.Add)
	if err != nil {
		return nil, err
	}
	stopped := false
	defer func() { err = errors.Join(err, log.end(stopped)) }()
	before, start := tally.Cases(), time.Now()
	if err := s.run(ctx, o, client, log, &tally); err != nil {
		return nil, err
	}
	if tally.Cases() == 0 && ctx.Err() == nil {
		return nil, fault.New(fault.InvalidParams, "there is no such case — identifiers are in the report, or none is left by --texts and --own")
	}
	stopped = ctx.Err() != nil
	r := tally.Report(report.About{Program: version, Model: name, Seed: o.Seed, Complete: !stopped, At: time.Now(), Took: time.Since(start),
		Ran: tally.Cases() - before, Again: evalCommand(o)})
	result := &cli.EvalResult{Violations: tally.Violations(), Stopped: stopped, Table: r.WriteTable, HTML: r.WriteHTML, JSON: r}
	if stopped {
		result.Again = evalCommand(o) + fmt.Sprintf(" --cases %d --resume %s", o.Cases, quote(log.Name()))
	}
	return result, nil
}

// run tries what the log does not have yet.
func (s suite) run(ctx context.Context, o cli.EvalOptions, client func() model.Client, log evalFile, tally *report.Tally) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(fastDir(), "atoll-eval-")
	if err != nil {
		return fault.Wrap(err, fault.Failed, "there is no room for the nodes' data: %v", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // of a run that is over
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cfg := attack.Config{Texts: s.texts, Tasks: s.tasks, Benign: s.benign, Seed: o.Seed, Cases: o.Cases, Only: o.Only, Skip: log.Has,
		Workers: o.Workers, Dir: dir, Exe: exe, Model: client}
	of := s.most(o)
	cfg.Done = func(done attack.Outcome) {
		out := report.Outcome(done)
		if o.Only != "" && out.ID != o.Only || log.Has(out.ID) && out.Kind != report.Attack {
			return // tasks and harmless texts are tried together
		}
		if err := log.Write(out); err != nil {
			cancel(fault.Wrap(err, fault.Failed, "%s cannot be written: %v", log.Name(), err))
		}
		tally.Add(out)
		o.Progress(tally.Cases(), of, tally.Violations())
	}
	_, err = attack.Run(ctx, cfg)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if ctx.Err() != nil { // the person stopped it: what was done counts
		return nil
	}
	if err != nil {
		return fault.Wrap(err, fault.Failed, "the suite cannot go on: %v", err)
	}
	return nil
}

// loadSuite reads what the program ships, or a directory's texts in its place, and the person's own.
func loadSuite(o cli.EvalOptions) (s suite, err error) {
	if s.texts, s.tasks, s.benign, err = attack.Own(); err != nil {
		return s, err
	}
	if o.Texts != "" {
		texts, tasks, benign, err := attack.LoadTexts(o.Texts)
		if err != nil {
			return s, err
		}
		s.texts = texts
		if len(tasks) > 0 {
			s.tasks = tasks
		}
		if len(benign) > 0 {
			s.benign = benign
		}
	}
	for _, file := range o.Own {
		texts, err := attack.LoadOwn(file)
		if err != nil {
			return s, fmt.Errorf("%s: %w", file, err)
		}
		s.texts = append(s.texts, texts...)
	}
	seen := map[string]bool{}
	for _, t := range s.texts {
		if seen[t.ID] {
			return s, fmt.Errorf("two texts have the id %s", t.ID)
		}
		seen[t.ID] = true
	}
	if o.Model { // whether a model reads what it should is not what harmless texts are for
		s.benign = nil
	}
	return s.only(o.Only), nil
}

// only leaves out the kinds of cases that an identifier is not of.
func (s suite) only(id string) suite {
	switch kind, _, _ := strings.Cut(id, "/"); {
	case id == "":
		return s
	case kind == "task":
		return suite{tasks: s.tasks}
	case kind == "benign":
		return suite{benign: s.benign}
	}
	return suite{texts: s.texts}
}

// most is how many cases there are at most, or 0 where that is not known before.
func (s suite) most(o cli.EvalOptions) int {
	if o.Cases == 0 || o.Only != "" {
		return 0
	}
	return o.Cases + 2*len(s.tasks) + len(attack.Places())*len(s.benign)
}

// hash names the texts, so that a run is resumed with the same ones only.
func (s suite) hash() string {
	h := sha256.New()
	for _, part := range []any{s.texts, s.tasks, s.benign} {
		// No error: they are strings, and a hash takes all that is written.
		_ = json.MarshalWrite(h, part, jsontext.AllowInvalidUTF8(true))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// evalModel is who plays the model, and its name. A nil function is the worst case.
func evalModel(o cli.EvalOptions) (string, func() model.Client, error) {
	if !o.Model {
		return worstCase, nil, nil
	}
	names := local.Names{Apps: []string{"photos", "music", "wiki", "backup", "vault", "demo"}, Settings: []string{"node.name", "ui.theme", "ui.language", "disk.warn_percent"}}
	c, err := node.ConfiguredModel(o.DataDir, os.Environ(), names, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", nil, err
	}
	info := c.Info()
	name := info.Backend + " " + info.Model
	if info.Host != "" {
		name += " at " + info.Host
	}
	return name, func() model.Client { return c }, nil
}

// evalFile is the log of a run.
type evalFile struct {
	*report.Log
	temporary bool // nobody asked for it: it is there for a run that is stopped
}

// end closes the log, and removes one that nobody needs.
func (f evalFile) end(stopped bool) error {
	err := f.Close()
	if f.temporary && !stopped {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

func evalLog(o *cli.EvalOptions, run report.Run, add func(report.Outcome)) (evalFile, error) {
	path, temporary := o.Resume, o.Resume == ""
	if temporary {
		f, err := os.CreateTemp("", "atoll-eval-*.jsonl")
		if err != nil {
			return evalFile{}, err
		}
		path = f.Name()
		if err := f.Close(); err != nil {
			return evalFile{}, err
		}
	}
	log, err := report.OpenLog(path, run, add)
	return evalFile{log, temporary}, err
}

// fastDir is a file system in memory where there is one, else the usual place.
func fastDir() string {
	const shm = "/dev/shm"
	if probe, err := os.MkdirTemp(shm, "atoll-eval-"); err == nil {
		_ = os.Remove(probe)
		return shm
	}
	return ""
}

// evalCommand is the command line of a run, as far as it chooses what a case is.
func evalCommand(o cli.EvalOptions) string {
	words := []string{"atoll eval"}
	if o.Seed != 1 {
		words = append(words, fmt.Sprintf("--seed %d", o.Seed))
	}
	if o.Texts != "" {
		words = append(words, "--texts "+quote(o.Texts))
	}
	for _, file := range o.Own {
		words = append(words, "--own "+quote(file))
	}
	if o.Model {
		words = append(words, "--model --data-dir "+quote(o.DataDir))
	}
	return strings.Join(words, " ")
}

// quote makes a path one word of a shell.
func quote(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
