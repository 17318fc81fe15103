package atoll_test

import (
	"go/ast"
	"go/token"
	"path"
	"strconv"
	"strings"
	"testing"
)

// tables are package variables that Go cannot make constants: read-only values, each with its reason. TestVariables holds
// that nothing writes to any package variable.
var tables = map[string]string{
	"cmd/atoll.version":          "set by the linker",
	"fence.scripts":              "table of scripts",
	"fence.lookalikes":           "table of letters",
	"fence.gradeNames":           "table of names",
	"rpc.DefaultRate":            "a constant of a struct type",
	"rpc.strict":                 "a constant of an interface type",
	"rpc.typed":                  "a constant of an interface type",
	"assistant.chatRates":        "table of rates",
	"app/docker/compose.exactly": "a constant of an interface type",
}

// harmless reports whether a variable's first value shows that it is a constant in all but name.
func harmless(f *ast.File, g *ast.GenDecl, v *ast.ValueSpec) bool {
	if v.Names[0].Name == "_" { // the compiler's proof that a type has an interface
		return true
	}
	for _, doc := range []*ast.CommentGroup{g.Doc, v.Doc} {
		if doc == nil {
			continue
		}
		for _, c := range doc.List {
			if strings.HasPrefix(c.Text, "//go:embed ") {
				return true
			}
		}
	}
	for _, value := range v.Values {
		if lit, ok := value.(*ast.CompositeLit); ok {
			if a, ok := lit.Type.(*ast.ArrayType); ok && a.Len != nil { // an array is a table of fixed length
				continue
			}
			return false
		}
		call, ok := value.(*ast.CallExpr)
		if !ok {
			return false
		}
		fun := call.Fun
		if generic, ok := fun.(*ast.IndexExpr); ok {
			fun = generic.X
		}
		sel, ok := fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		x, _ := sel.X.(*ast.Ident)
		switch {
		case x == nil:
			return false
		case x.Name == "errors" && sel.Sel.Name == "New", x.Name == "fmt" && sel.Sel.Name == "Errorf",
			x.Name == "regexp" && sel.Sel.Name == "MustCompile", x.Name == "reflect" && strings.HasPrefix(sel.Sel.Name, "Type"):
		default:
			return false
		}
	}
	return len(v.Values) > 0
}

// No package holds state: what changes is in a value that somebody made and owns.
func TestVariables(t *testing.T) {
	set, sources := tree(t)
	declared := map[string]map[string]bool{} // package → its variables
	used := map[string]bool{}
	for _, s := range sources {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				for _, name := range v.Names {
					if name.Name == "_" {
						continue
					}
					if declared[s.pkg] == nil {
						declared[s.pkg] = map[string]bool{}
					}
					declared[s.pkg][name.Name] = true
					full := s.pkg + "." + name.Name
					used[full] = true
					if !harmless(s.file, g, v) && tables[full] == "" {
						t.Errorf("%s: the package variable %s could be state; put it into a value with an owner", set.Position(v.Pos()), full)
					}
				}
			}
		}
	}
	for full := range tables {
		if !used[full] {
			t.Errorf("the exception %s names no variable any more", full)
		}
	}
	for _, s := range sources {
		for _, w := range writes(s) {
			if declared[w.pkg][w.name] {
				t.Errorf("%s: %s.%s is written to; package variables are constants in this house", set.Position(w.pos), w.pkg, w.name)
			}
		}
	}
}

// written is a place that assigns to something, or takes its address, of a package.
type written struct {
	pkg, name string
	pos       token.Pos
}

// writes lists assignments to and addresses of names that are not local to their function.
func writes(s source) []written {
	known := map[string]string{} // import name → package as the map names it
	for _, i := range s.file.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil || !strings.HasPrefix(p, module) {
			continue
		}
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		known[name] = strings.TrimPrefix(strings.TrimPrefix(p, module), "internal/")
	}
	var out []written
	target := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.IndexExpr:
				e = x.X
				continue
			case *ast.ParenExpr:
				e = x.X
				continue
			case *ast.SelectorExpr:
				if id, ok := x.X.(*ast.Ident); ok && id.Obj == nil && known[id.Name] != "" {
					out = append(out, written{known[id.Name], x.Sel.Name, x.Pos()})
					return
				}
				e = x.X
				continue
			case *ast.Ident:
				// A name of another file of the package has no object here; one of this file's package level is a ValueSpec
				// that stands among the file's declarations.
				if x.Obj == nil || s.file.Scope.Lookup(x.Name) == x.Obj {
					out = append(out, written{s.pkg, x.Name, x.Pos()})
				}
			}
			return
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, e := range n.Lhs {
					target(e)
				}
			}
		case *ast.IncDecStmt:
			target(n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				target(n.X)
			}
		}
		return true
	})
	return out
}
