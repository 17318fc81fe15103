package process

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// F-A2: a script rewritten while its approval stands changes the fingerprint, whether it is the program, an
// interpreter's script or an executable argument; a file that the app only reads or writes does not.
func TestFingerprintSeesFiles(t *testing.T) {
	dir, work := empty(t), t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(work, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\nexit 0\n"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tool, script, data := file("tool", 0o700), file("script.py", 0o600), file("data.db", 0o600)
	define(t, dir, "direct", "command: ["+tool+", "+data+"]")
	define(t, dir, "script", "command: [/usr/bin/python3.11, -u, script.py, "+data+"]\ndirectory: "+work)
	define(t, dir, "wrapped", "command: [/usr/bin/env, "+tool+"]")
	b := open(t, dir)
	mark := func(name string) string {
		_, m, err := b.Examine(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	all := func() []string { return []string{mark("direct"), mark("script"), mark("wrapped")} }
	before := all()
	if !slices.Equal(before, all()) {
		t.Fatal("not stable")
	}
	for _, c := range []struct {
		path    string
		changed []bool
	}{{data, []bool{false, false, false}}, {script, []bool{false, true, false}}, {tool, []bool{true, false, true}}} {
		if err := os.WriteFile(c.path+".new", []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		if err := os.Rename(c.path+".new", c.path); err != nil {
			t.Fatal(err)
		}
		if c.path != tool {
			if err := os.Chmod(c.path, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		after := all()
		for i, want := range c.changed {
			if (after[i] != before[i]) != want {
				t.Errorf("%s rewritten: app %d changed=%v", c.path, i, !want)
			}
		}
		before = after
	}
	if err := os.Remove(tool); err != nil {
		t.Fatal(err)
	}
	if after := all(); after[0] == before[0] {
		t.Error("the program is gone and the fingerprint stays")
	}
}
