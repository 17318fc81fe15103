package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"
)

// fault is one change of the real code that makes it wrong.
type fault struct {
	Name  string
	What  string   // a sentence: what is wrong then
	Rows  []string // the contract's rows that it breaks
	Edits []edit
	Tests []tests // expected to find it
}

// edit replaces a text that stands in the file exactly once.
type edit struct {
	File     string // from the module's root
	Old, New string
}

// tests are tests of one package.
type tests struct {
	Package string   // as ./internal/tool
	Names   []string // of top-level tests
}

// The lines around the texts of an edit.
const (
	oldMark = "<<<<"
	newMark = "===="
	endMark = ">>>>"
)

// readAll reads the lists of a directory, in the order of their names. No two faults have one name.
func readAll(dir string) ([]fault, error) {
	lists, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		return nil, err
	}
	var all []fault
	seen := map[string]bool{}
	for _, list := range lists {
		raw, err := os.ReadFile(list)
		if err != nil {
			return nil, err
		}
		some, err := parse(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(list), err)
		}
		for _, f := range some {
			if seen[f.Name] {
				return nil, fmt.Errorf("%s: %s is there twice", filepath.Base(list), f.Name)
			}
			seen[f.Name] = true
		}
		all = append(all, some...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no faults in %s", dir)
	}
	return all, nil
}

// parse reads a list. Each file of the archive is a fault:
//
//	What is wrong then, in a sentence.
//	rows: C1 T2
//	test: ./internal/tool TestA TestB
//	file: internal/tool/call.go
//	<<<<
//	the old text
//	====
//	the new text
//	>>>>
//
// There may be more tests and more edits; file holds until the next one.
func parse(raw []byte) ([]fault, error) {
	var out []fault
	for _, f := range txtar.Parse(raw).Files {
		one, err := parseFault(f.Name, f.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		out = append(out, one)
	}
	return out, nil
}

func parseFault(name string, data []byte) (fault, error) {
	f := fault{Name: name}
	file := ""
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	for len(lines) > 0 {
		line := lines[0]
		key, value, _ := strings.Cut(line, ": ")
		switch {
		case line == oldMark:
			e, rest, err := parseEdit(file, lines[1:])
			if err != nil {
				return f, err
			}
			f.Edits, lines = append(f.Edits, e), rest
			continue
		case key == "rows":
			f.Rows = strings.Fields(value)
		case key == "file":
			file = strings.TrimSpace(value)
		case key == "test":
			words := strings.Fields(value)
			if len(words) < 2 {
				return f, fmt.Errorf("%q names no package and test", line)
			}
			f.Tests = append(f.Tests, tests{words[0], words[1:]})
		case strings.TrimSpace(line) != "":
			f.What = strings.TrimSpace(f.What + " " + line)
		}
		lines = lines[1:]
	}
	if f.What == "" || len(f.Rows) == 0 || len(f.Edits) == 0 || len(f.Tests) == 0 {
		return f, errors.New("a fault has a sentence, rows, tests and an edit")
	}
	return f, nil
}

func parseEdit(file string, lines []string) (edit, []string, error) {
	text := strings.Join(lines, "\n") + "\n"
	before, rest, ok := strings.Cut(text, newMark+"\n")
	after, left, ended := strings.Cut(rest, endMark+"\n")
	if file == "" || before == "" || !ok || !ended {
		return edit{}, nil, fmt.Errorf("an edit is a file, %s, the old text, %s, the new text, %s", oldMark, newMark, endMark)
	}
	e := edit{File: file, Old: strings.TrimSuffix(before, "\n"), New: strings.TrimSuffix(after, "\n")}
	if e.Old == e.New {
		return edit{}, nil, errors.New("an edit changes nothing")
	}
	return e, strings.Split(strings.TrimSuffix(left, "\n"), "\n"), nil
}

// changed gives the files of a fault as they would be with it. It is an error where an old text does not stand in its file
// exactly once: the code has changed and the fault must follow it.
func (f fault) changed(root string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, e := range f.Edits {
		raw, ok := out[e.File]
		if !ok {
			var err error
			if raw, err = os.ReadFile(filepath.Join(root, filepath.FromSlash(e.File))); err != nil {
				return nil, err
			}
		}
		if n := bytes.Count(raw, []byte(e.Old)); n != 1 {
			return nil, fmt.Errorf("stale: the old text stands %d times in %s:\n%s", n, e.File, e.Old)
		}
		out[e.File] = bytes.Replace(raw, []byte(e.Old), []byte(e.New), 1)
	}
	return out, nil
}

// pattern is the tests as go test -run takes them.
func pattern(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = regexp.QuoteMeta(n)
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}
