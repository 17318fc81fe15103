package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"
)

// state is what came of a fault.
type state string

const (
	found  state = "found"
	missed state = "NOT FOUND"
	stale  state = "STALE"  // its old text is not in the code any more
	broken state = "BROKEN" // the code with it does not compile, or its tests could not be run
)

// outcome is what came of one fault.
type outcome struct {
	Name    string   `json:"fault"`
	What    string   `json:"what"`
	Rows    []string `json:"rows"`
	State   state    `json:"state"`
	By      []string `json:"found_by"` // the tests that failed
	Package string   `json:"package,omitempty"`
	Seconds float64  `json:"seconds"`
	Note    string   `json:"note,omitempty"`
}

func allFound(all []outcome) bool {
	return !slices.ContainsFunc(all, func(o outcome) bool { return o.State != found })
}

// runner tries faults. Use all.
type runner struct {
	root     string
	limit    time.Duration // of the tests of one package
	parallel int
	progress io.Writer

	mu   sync.Mutex // guards progress and done
	done int
}

// all runs the tests on the code as it is, which must pass and must not skip, and then with each fault.
func (r *runner) all(ctx context.Context, faults []fault) ([]outcome, error) {
	root, err := filepath.Abs(r.root)
	if err != nil {
		return nil, err
	}
	r.root = root
	if err := r.baseline(ctx, faults); err != nil {
		return nil, err
	}
	out := make([]outcome, len(faults))
	var group errgroup.Group
	group.SetLimit(max(1, r.parallel))
	for i, f := range faults {
		group.Go(func() error {
			begin := time.Now()
			o := r.try(ctx, f)
			if ctx.Err() != nil { // it was stopped, and says nothing
				return nil
			}
			o.Name, o.What, o.Rows, o.Seconds = f.Name, f.What, f.Rows, time.Since(begin).Seconds()
			out[i] = o
			r.tell(o, len(faults))
			return nil
		})
	}
	_ = group.Wait() // what goes wrong stands in the outcomes
	return out, ctx.Err()
}

func (r *runner) tell(o outcome, of int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	fmt.Fprintf(r.progress, "%3d/%d  %-10s %5.1f s  %s  %s\n", r.done, of, o.State, o.Seconds, o.Name, strings.Join(o.By, " "))
	if o.Note != "" {
		fmt.Fprintln(r.progress, "        "+strings.ReplaceAll(strings.TrimSpace(o.Note), "\n", "\n        "))
	}
}

// baseline runs every named test without a fault. A test that fails or skips then would prove nothing.
func (r *runner) baseline(ctx context.Context, faults []fault) error {
	named := map[string][]string{}
	for _, f := range faults {
		for _, t := range f.Tests {
			for _, name := range t.Names {
				if !slices.Contains(named[t.Package], name) {
					named[t.Package] = append(named[t.Package], name)
				}
			}
		}
	}
	packages := slices.Sorted(maps.Keys(named))
	problems := make([]error, len(packages))
	var group errgroup.Group
	group.SetLimit(max(1, r.parallel))
	for i, p := range packages {
		group.Go(func() error {
			res, err := r.test(ctx, tests{p, named[p]}, "", time.Duration(len(named[p]))*r.limit)
			problems[i] = err
			if err == nil {
				problems[i] = res.sound(p, named[p])
			}
			return nil
		})
	}
	_ = group.Wait()
	return errors.Join(problems...)
}

// sound says what keeps a run without a fault from being a proof.
func (res result) sound(pkg string, names []string) error {
	if res.unbuilt || len(res.failed) > 0 || res.failedWhole {
		return fmt.Errorf("%s fails without a fault: %s\n%s", pkg, strings.Join(res.failed, " "), res.end())
	}
	for _, n := range names {
		if !slices.Contains(res.passed, n) {
			return fmt.Errorf("%s: %s did not run, or skipped", pkg, n)
		}
	}
	return nil
}

// try runs the tests of one fault, until one of them finds it.
func (r *runner) try(ctx context.Context, f fault) outcome {
	o := outcome{State: missed, By: []string{}}
	files, err := f.changed(r.root)
	if err != nil {
		o.State, o.Note = stale, err.Error()
		return o
	}
	dir, err := os.MkdirTemp("", "teeth-")
	if err != nil {
		o.State, o.Note = broken, err.Error()
		return o
	}
	defer os.RemoveAll(dir)
	overlay, err := writeOverlay(dir, r.root, files)
	if err != nil {
		o.State, o.Note = broken, err.Error()
		return o
	}
	for _, t := range f.Tests {
		res, err := r.test(ctx, t, overlay, r.limit)
		switch {
		case err != nil:
			o.State, o.Note = broken, err.Error()
			return o
		case res.unbuilt:
			o.State, o.Note = broken, "it does not compile:\n"+res.end()
			return o
		case len(res.failed) > 0:
			o.State, o.By, o.Package = found, res.failed, t.Package
			return o
		case res.failedWhole: // a panic, or out of time: the tests that did not end are the ones
			o.State, o.By, o.Package, o.Note = found, res.open, t.Package, "the tests did not end in order"
			return o
		}
	}
	return o
}

// writeOverlay writes the changed files beside each other and the list that go build -overlay takes.
func writeOverlay(dir, root string, files map[string][]byte) (string, error) {
	var list struct{ Replace map[string]string }
	list.Replace = map[string]string{}
	for i, name := range slices.Sorted(maps.Keys(files)) {
		at := filepath.Join(dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(at, files[name], 0o600); err != nil {
			return "", err
		}
		list.Replace[filepath.Join(root, filepath.FromSlash(name))] = at
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	at := filepath.Join(dir, "overlay.json")
	return at, os.WriteFile(at, raw, 0o600)
}

// result is what go test -json said.
type result struct {
	passed, failed []string // top-level tests
	open           []string // tests that began and did not end
	failedWhole    bool     // the package failed
	unbuilt        bool
	said           []byte
}

// end is the end of what was said.
func (res result) end() string { return string(res.said[max(0, len(res.said)-2000):]) }

// test runs tests of one package. An error means that go could not be run.
func (r *runner) test(ctx context.Context, t tests, overlay string, limit time.Duration) (result, error) {
	args := []string{"test", "-json", "-vet=off", "-ldflags=-w", "-count=1", "-failfast", "-timeout", limit.String(), "-run", pattern(t.Names)}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, t.Package)...)
	cmd.Dir = r.root
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what go started ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || !exit.Exited()) || ctx.Err() != nil {
		return result{}, errors.Join(ctx.Err(), err)
	}
	res := readEvents(out.Bytes())
	if err != nil && len(res.failed) == 0 && !res.failedWhole {
		return result{}, fmt.Errorf("go test: %w\n%s", err, res.end())
	}
	return res, nil
}

// readEvents reads the lines of go test -json (go doc test2json).
func readEvents(raw []byte) result {
	var res result
	for line := range bytes.Lines(raw) {
		var e struct{ Action, Test, Output, FailedBuild string }
		if json.Unmarshal(line, &e) != nil {
			res.said = append(res.said, line...)
			continue
		}
		res.said = append(res.said, e.Output...)
		res.unbuilt = res.unbuilt || e.Action == "build-fail" || e.FailedBuild != ""
		if e.Test == "" {
			res.failedWhole = res.failedWhole || e.Action == "fail"
			continue
		}
		if strings.Contains(e.Test, "/") {
			continue
		}
		switch e.Action {
		case "run":
			res.open = append(res.open, e.Test)
		case "pass":
			res.passed = append(res.passed, e.Test)
		case "fail":
			res.failed = append(res.failed, e.Test)
		}
		if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
			res.open = slices.DeleteFunc(res.open, func(t string) bool { return t == e.Test })
		}
	}
	return res
}
