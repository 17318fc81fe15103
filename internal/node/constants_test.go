package node

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// T6, T7, T10, C4, C8, C11, H2 and the like: the contract's figures are the code's own constants. That each one is obeyed
// is for the tests of its package.
func TestConstants(t *testing.T) {
	c := readContract(t)
	byPackage := map[string]map[string]constant.Value{}
	for _, full := range slices.Sorted(maps.Keys(c.Constants)) {
		pkg, name, _ := strings.Cut(full, ".")
		if byPackage[pkg] == nil {
			byPackage[pkg] = constantsOf(t, filepath.Join("..", pkg))
		}
		v, ok := byPackage[pkg][name]
		if !ok {
			t.Errorf("%s is no constant any more", full)
			continue
		}
		n, _ := constant.Int64Val(constant.ToInt(v))
		if got := v.ExactString(); got != c.Constants[full] && time.Duration(n).String() != c.Constants[full] {
			t.Errorf("%s is %s, not %s", full, got, c.Constants[full])
		}
	}
}

// constantsOf evaluates the package-level constants of a directory that need nothing but figures and package time.
func constantsOf(t *testing.T, dir string) map[string]constant.Value {
	t.Helper()
	set := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, p, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, onlyConstants(f))
	}
	// What the constants need of other packages is not checked here: those are left out of the answer.
	conf := types.Config{Importer: onlyTime{}, Error: func(error) {}}
	pkg, _ := conf.Check(dir, set, files, nil)
	out := map[string]constant.Value{}
	for _, name := range pkg.Scope().Names() {
		if k, ok := pkg.Scope().Lookup(name).(*types.Const); ok && k.Val().Kind() != constant.Unknown {
			out[name] = k.Val()
		}
	}
	return out
}

// onlyTime imports the units of package time, and nothing else.
type onlyTime struct{}

func (onlyTime) Import(string) (*types.Package, error) {
	const src = `package time
type Duration int64
const (
	Nanosecond Duration = 1
	Microsecond = 1000 * Nanosecond
	Millisecond = 1000 * Microsecond
	Second = 1000 * Millisecond
	Minute = 60 * Second
	Hour = 60 * Minute
)`
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "time.go", src, 0)
	if err != nil {
		return nil, err
	}
	return new(types.Config).Check("time", set, []*ast.File{f}, nil)
}

// onlyConstants keeps a file's constants, and of its imports package time, so that nothing else is compiled.
func onlyConstants(f *ast.File) *ast.File {
	var decls []ast.Decl
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		switch g.Tok {
		case token.CONST:
			decls = append(decls, g)
		case token.IMPORT:
			g.Specs = slices.DeleteFunc(g.Specs, func(s ast.Spec) bool { return s.(*ast.ImportSpec).Path.Value != `"time"` })
			decls = append(decls, g)
		}
	}
	f.Decls = decls
	return f
}
