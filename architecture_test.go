// Package atoll_test holds the tree to its map.
package atoll_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// file is one parsed Go file with the package it is in, without "internal/".
type file struct {
	path, pkg string
	test      bool
	lines     int
	ast       *ast.File
}

func parse(t *testing.T) (files []file, fset *token.FileSet) {
	t.Helper()
	fset = token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git") {
			if d != nil && d.IsDir() && err == nil {
				return filepath.SkipDir
			}
			return err
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		files = append(files, file{path, strings.TrimPrefix(dir, "internal/"), strings.HasSuffix(path, "_test.go"), strings.Count(string(src), "\n"), f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, fset
}

// floors reads the layers block of ARCHITECTURE.md.
func floors(t *testing.T) map[string]int {
	t.Helper()
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(page), "```layers\n")
	block, _, closed := strings.Cut(block, "```")
	if !ok || !closed {
		t.Fatal("ARCHITECTURE.md has no layers block")
	}
	floor := map[string]int{}
	for line := range strings.Lines(block) {
		words := strings.Fields(line)
		n, err := strconv.Atoi(words[0])
		if err != nil {
			t.Fatalf("layers: %q", line)
		}
		for _, pkg := range words[1:] {
			if _, twice := floor[pkg]; twice {
				t.Errorf("layers: %s stands twice", pkg)
			}
			floor[pkg] = n
		}
	}
	return floor
}

// A package imports only lower floors; on one floor only a child its parent, or a parent its child.
func TestLayers(t *testing.T) {
	floor := floors(t)
	files, _ := parse(t)
	seen := map[string]bool{}
	for _, f := range files {
		if !strings.HasPrefix(f.path, "internal/") {
			continue
		}
		seen[f.pkg] = true
		own, ok := floor[f.pkg]
		if !ok {
			t.Errorf("%s is not on the map", f.pkg)
			continue
		}
		if f.test {
			continue // tests may use what they need
		}
		for _, imp := range f.ast.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			other, ours := strings.CutPrefix(path, "atoll/internal/")
			if !ours {
				continue
			}
			family := strings.HasPrefix(f.pkg, other+"/") || strings.HasPrefix(other, f.pkg+"/") || sameFamily(f.pkg, other)
			if floor[other] > own || floor[other] == own && !family {
				t.Errorf("%s (floor %d) imports %s (floor %d)", f.path, own, other, floor[other])
			}
		}
	}
	for pkg := range floor {
		if !seen[pkg] {
			t.Errorf("%s is on the map and not in the tree", pkg)
		}
	}
}

// sameFamily lets the parts of one door use each other.
func sameFamily(a, b string) bool {
	a, _, inA := strings.Cut(a, "/")
	b, _, inB := strings.Cut(b, "/")
	return inA && inB && a == b
}

// Habits that are law: no init, no sleeping tests, no values in contexts, callers made by those who verify them, files
// that fit a head.
func TestHabits(t *testing.T) {
	files, fset := parse(t)
	for _, f := range files {
		if !f.test && f.lines > 600 {
			t.Errorf("%s has %d lines", f.path, f.lines)
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "init" && fn.Recv == nil {
				t.Errorf("%s: init", fset.Position(fn.Pos()))
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			at := fset.Position(sel.Pos())
			switch name := x.Name + "." + sel.Sel.Name; {
			case name == "time.Sleep" && f.test:
				t.Errorf("%s: a test sleeps", at)
			case name == "context.WithValue":
				t.Errorf("%s: a value in a context", at)
			case !f.test && (name == "caller.Operator" && f.pkg != "account" || name == "caller.Peer" && f.pkg != "mesh"):
				t.Errorf("%s: makes a caller without verifying one", at)
			}
			return true
		})
	}
}

// Package variables do not change: they are errors, compiled patterns, types, embedded files and fixed lists.
func TestNoMutableState(t *testing.T) {
	files, fset := parse(t)
	for _, f := range files {
		if f.test || !strings.HasPrefix(f.path, "internal/") {
			continue
		}
		names := packageVariables(f.ast)
		for _, g := range files {
			if g.pkg != f.pkg || g.test {
				continue
			}
			ast.Inspect(g.ast, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					if n.Tok == token.DEFINE {
						return true
					}
					for _, l := range n.Lhs {
						if id := base(l); id != nil && slices.Contains(names, id.Name) && id.Obj == nil && !local(g.ast, id) {
							t.Errorf("%s: the package variable %s is changed", fset.Position(l.Pos()), id.Name)
						}
					}
				case *ast.IncDecStmt:
					if id := base(n.X); id != nil && slices.Contains(names, id.Name) && !local(g.ast, id) {
						t.Errorf("%s: the package variable %s is changed", fset.Position(n.Pos()), id.Name)
					}
				}
				return true
			})
		}
	}
}

func packageVariables(f *ast.File) (names []string) {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, s := range g.Specs {
			for _, n := range s.(*ast.ValueSpec).Names {
				if n.Name != "_" {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}

// base is the variable that an assignment's left side begins with.
func base(e ast.Expr) *ast.Ident {
	switch e := e.(type) {
	case *ast.Ident:
		return e
	case *ast.IndexExpr:
		return base(e.X)
	}
	return nil
}

// local reports whether the name is declared in the function around the use: as a parameter, a result or a variable.
func local(f *ast.File, use *ast.Ident) bool {
	found := false
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || use.Pos() < fn.Pos() || use.Pos() > fn.End() {
			continue
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				for _, name := range n.Names {
					found = found || name.Name == use.Name
				}
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					for _, l := range n.Lhs {
						if id, ok := l.(*ast.Ident); ok && id.Name == use.Name {
							found = true
						}
					}
				}
			case *ast.ValueSpec:
				for _, name := range n.Names {
					found = found || name.Name == use.Name
				}
			case *ast.RangeStmt:
				for _, e := range []ast.Expr{n.Key, n.Value} {
					if id, ok := e.(*ast.Ident); ok && id.Name == use.Name {
						found = true
					}
				}
			}
			return true
		})
	}
	return found
}
