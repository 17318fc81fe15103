// Command report reads the output of go test -json, prints a line a package and all that a failed test said, and ends with
// the count. It is what scripts/test prints with, not a test runner.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is one line of go test -json (go doc test2json).
type event struct {
	Action, Package, ImportPath, Test, Output string
}

// key is a test, or with an empty test its package.
type key struct{ pkg, test string }

// tally is what has been seen so far.
type tally struct {
	out                     io.Writer
	said                    map[key]*bytes.Buffer // output of what has not ended yet
	failures                map[string]int        // failed tests, by package
	passed, failed, skipped int
}

func main() {
	failed, err := report(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// report copies a readable form of in to out and returns how many tests failed; a package that fails without a failed test
// (it does not build, it ran out of time) counts as one.
func report(in io.Reader, out io.Writer) (failed int, err error) {
	t := &tally{out: out, said: map[key]*bytes.Buffer{}, failures: map[string]int{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			t.line(line)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	if t.skipped > 0 {
		fmt.Fprintf(out, "%d skipped\n", t.skipped)
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", t.passed, t.failed)
	return t.failed, nil
}

func (t *tally) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Action == "" {
		_, _ = t.out.Write(line) // what is no event is for people
		return
	}
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(t.out, e.Output)
	case "output":
		if t.said[k] == nil {
			t.said[k] = &bytes.Buffer{}
		}
		t.said[k].WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			t.endPackage(k, e.Action)
		} else {
			t.endTest(k, e.Action)
		}
		delete(t.said, k)
	}
}

func (t *tally) endTest(k key, action string) {
	switch action {
	case "pass":
		t.passed++
	case "skip":
		t.skipped++
		fmt.Fprintf(t.out, "skipped %s %s%s\n", k.pkg, k.test, reason(t.said[k]))
	case "fail":
		t.failed++
		t.failures[k.pkg]++
		t.print(k, "")
	}
}

// endPackage prints the closing line, or everything if the package failed: what its unfinished tests said may be the reason.
func (t *tally) endPackage(k key, action string) {
	if action != "fail" {
		t.print(k, "ok", "?")
		return
	}
	if t.failures[k.pkg] == 0 {
		t.failed++
		for open := range t.said {
			if open.pkg == k.pkg && open.test != "" {
				t.print(open, "")
				delete(t.said, open)
			}
		}
	}
	t.print(k, "")
}

// print writes the lines of k's output that start with one of the prefixes.
func (t *tally) print(k key, prefixes ...string) {
	if t.said[k] == nil {
		return
	}
	for line := range strings.Lines(t.said[k].String()) {
		for _, p := range prefixes {
			if strings.HasPrefix(line, p) {
				fmt.Fprint(t.out, line)
				break
			}
		}
	}
}

// reason is what a skipped test said last before its closing line.
func reason(said *bytes.Buffer) string {
	if said == nil {
		return ""
	}
	for line := range strings.Lines(said.String()) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			return ": " + line
		}
	}
	return ""
}
