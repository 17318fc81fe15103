// Package atoll_test holds the house to its own map: ARCHITECTURE.md's floors, and the habits that a compiler does not see.
package atoll_test

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module   = "atoll/"
	rooms    = 3   // the floor of the rooms
	maxLines = 600 // of one file; the aim is 500
	maxTest  = 800 // of one file of tests
)

// source is one Go file of the tree.
type source struct {
	path  string // from the root, with slashes
	pkg   string // the directory as the map names it: without internal/
	test  bool
	file  *ast.File
	lines int
}

// tree parses every Go file but those of dependencies and test data.
func tree(t *testing.T) (*token.FileSet, []source) {
	t.Helper()
	set := token.NewFileSet()
	var out []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); p != "." && (name[0] == '.' || name == "node_modules" || name == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		raw, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(set, p, raw, parser.ParseComments)
		if err != nil {
			return err
		}
		p = filepath.ToSlash(p)
		out = append(out, source{path: p, pkg: strings.TrimPrefix(path.Dir(p), "internal/"), test: strings.HasSuffix(p, "_test.go"),
			file: f, lines: bytes.Count(raw, []byte("\n"))})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 100 {
		t.Fatalf("only %d files were found: the test looks at the wrong place", len(out))
	}
	return set, out
}

// floors reads the layers block: package → floor.
func floors(t *testing.T) map[string]int {
	t.Helper()
	raw, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	inside, next := false, 0
	for s := bufio.NewScanner(bytes.NewReader(raw)); s.Scan(); {
		line := s.Text()
		switch {
		case line == "```layers":
			inside = true
			continue
		case !inside:
			continue
		case line == "```":
			return out
		}
		head, list, ok := strings.Cut(line, ":")
		number, _, _ := strings.Cut(head, " ")
		if n, err := strconv.Atoi(number); err != nil || !ok || n != next {
			t.Fatalf("the layers block: %q is not floor %d", line, next)
		}
		for _, pkg := range strings.Fields(list) {
			if _, twice := out[pkg]; twice {
				t.Errorf("the layers block has %s twice", pkg)
			}
			out[pkg] = next
		}
		next++
	}
	t.Fatal("ARCHITECTURE.md has no layers block")
	return nil
}

// imports lists what a file imports from this module, as the map names it.
func imports(s source) []string {
	var out []string
	for _, i := range s.file.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err == nil && strings.HasPrefix(p, module) {
			out = append(out, strings.TrimPrefix(strings.TrimPrefix(p, module), "internal/"))
		}
	}
	return out
}

func isKit(pkg string) bool { return strings.HasSuffix(path.Base(pkg), "test") }

func under(child, parent string) bool { return strings.HasPrefix(child, parent+"/") }

// allowed is the law of ARCHITECTURE.md for one import; the answer is empty, or why not.
func allowed(floor map[string]int, from, to string, test bool) string {
	a, b := floor[from], floor[to]
	switch {
	case from == to, test && (isKit(to) || under(to, from)):
		return ""
	case isKit(to) && !isKit(from):
		return "it is for tests only"
	case b < a, b == a && under(from, to):
		return ""
	case a == rooms && b == rooms:
		return "rooms never import rooms: a function in a Config, filled by node, goes the other way"
	}
	return fmt.Sprintf("it is on floor %d, and this on %d", b, a)
}

func TestFloors(t *testing.T) {
	floor := floors(t)
	_, sources := tree(t)
	seen := map[string]bool{}
	for _, s := range sources {
		if s.pkg == "." || strings.HasPrefix(s.pkg, "scripts/") {
			if len(imports(s)) > 0 {
				t.Errorf("%s imports %v; it stands outside the house", s.path, imports(s))
			}
			continue
		}
		seen[s.pkg] = true
		if _, ok := floor[s.pkg]; !ok {
			t.Errorf("%s is not on the map in ARCHITECTURE.md", s.pkg)
			continue
		}
		for _, to := range imports(s) {
			if _, ok := floor[to]; !ok {
				t.Errorf("%s imports %s, which is not on the map", s.path, to)
			} else if why := allowed(floor, s.pkg, to, s.test); why != "" {
				t.Errorf("%s must not import %s: %s", s.path, to, why)
			}
		}
	}
	for pkg := range floor {
		if !seen[pkg] {
			t.Errorf("ARCHITECTURE.md has %s, which does not exist", pkg)
		}
	}
}

// The law itself: what it must refuse, it refuses.
func TestFloorsRefuse(t *testing.T) {
	floor := map[string]int{"model": 1, "model/claude": 1, "model/openai": 1, "model/modeltest": 1, "rpc": 2, "app": 3, "app/process": 3, "confirm": 3, "tool": 4}
	for _, tt := range []struct {
		from, to string
		test, ok bool
	}{
		{"tool", "confirm", false, true},
		{"app/process", "app", false, true},
		{"app/process", "app", true, true},
		{"app", "app/process", false, false},
		{"app", "app/process", true, true},
		{"app", "confirm", false, false},
		{"app", "confirm", true, false},
		{"app", "tool", false, false},
		{"rpc", "app", false, false},
		{"model/claude", "model/openai", false, false},
		{"model/claude", "model/modeltest", false, false},
		{"model/claude", "model/modeltest", true, true},
		{"tool", "model/modeltest", false, false},
	} {
		if why := allowed(floor, tt.from, tt.to, tt.test); (why == "") != tt.ok {
			t.Errorf("%s → %s, test %v: %q", tt.from, tt.to, tt.test, why)
		}
	}
}

// importName is the name by which a file knows an import path, or "".
func importName(f *ast.File, importPath string) string {
	for _, i := range f.Imports {
		if i.Path.Value == strconv.Quote(importPath) {
			if i.Name != nil {
				return i.Name.Name
			}
			return path.Base(importPath)
		}
	}
	return ""
}

// uses reports where a file names pkg.name.
func uses(f *ast.File, importPath string, names ...string) []token.Pos {
	pkg := importName(f, importPath)
	var out []token.Pos
	if pkg == "" {
		return nil
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(names, s.Sel.Name) {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == pkg && x.Obj == nil {
				out = append(out, s.Pos())
			}
		}
		return true
	})
	return out
}

func TestHabits(t *testing.T) {
	set, sources := tree(t)
	for _, s := range sources {
		most := maxLines
		if s.test {
			most = maxTest
		}
		if s.lines > most {
			t.Errorf("%s has %d lines; at most %d, so that a file is read in one go", s.path, s.lines, most)
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: no init: node.New builds everything", set.Position(f.Pos()))
			}
		}
		for _, p := range uses(s.file, "context", "WithValue") {
			t.Errorf("%s: no context.WithValue: who asks is a parameter", set.Position(p))
		}
		if s.test {
			for _, p := range uses(s.file, "time", "Sleep") {
				t.Errorf("%s: no time.Sleep in tests: wait for the condition, or use testing/synctest", set.Position(p))
			}
		}
	}
}

// Only who verified a session or a key makes a caller of it (SPEC section 1). Everybody else hands on the one that came in.
func TestCallersAreMadeFromVerifiedSessionsOnly(t *testing.T) {
	makers := map[string]string{"Operator": "account", "Peer": "mesh"}
	set, sources := tree(t)
	found := 0
	for _, s := range sources {
		if s.test || isKit(s.pkg) {
			continue
		}
		for name, pkg := range makers {
			for _, p := range uses(s.file, module+"internal/caller", name) {
				found++
				if s.pkg != pkg {
					t.Errorf("%s: caller.%s is for %s alone", set.Position(p), name, pkg)
				}
			}
		}
	}
	if found == 0 {
		t.Error("nobody makes a caller: the test looks for the wrong name")
	}
}
