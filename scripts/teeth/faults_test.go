package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The code moves, and the faults must move with it: every old text stands in its file exactly once, and every named test
// exists. That each is found is for make teeth to show.
func TestFaultsFitTheCode(t *testing.T) {
	root := filepath.Join("..", "..")
	faults, err := readAll("faults")
	if err != nil {
		t.Fatal(err)
	}
	if len(faults) < 100 {
		t.Errorf("only %d faults", len(faults))
	}
	declared := map[string]string{} // package → the text of its tests
	for _, f := range faults {
		if _, err := f.changed(root); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		for _, ts := range f.Tests {
			if declared[ts.Package] == "" {
				declared[ts.Package] = testText(t, filepath.Join(root, ts.Package))
			}
			for _, name := range ts.Names {
				if !strings.Contains(declared[ts.Package], "\nfunc "+name+"(t *testing.T)") {
					t.Errorf("%s: %s has no %s", f.Name, ts.Package, name)
				}
			}
		}
		for _, row := range f.Rows {
			if !regexp.MustCompile(`^[A-Z][0-9]+b?$`).MatchString(row) {
				t.Errorf("%s: %q is no row", f.Name, row)
			}
		}
	}
}

func testText(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", dir, err)
	}
	var all strings.Builder
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(raw)
	}
	return all.String()
}
