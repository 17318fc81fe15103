package fault

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"
)

// T8: the list of codes is closed and documented: every constant stands in the Catalogue once, with words.
func TestCatalogue(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "fault.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[Code]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "Code" {
			return true
		}
		for _, e := range v.Values {
			s, err := strconv.Unquote(e.(*ast.BasicLit).Value)
			if err != nil || declared[Code(s)] {
				t.Errorf("code %q: %v, or twice", s, err)
			}
			declared[Code(s)] = true
		}
		return true
	})
	seen := map[Code]bool{}
	for _, e := range Catalogue() {
		if seen[e.Code] || !declared[e.Code] {
			t.Errorf("%q is in the catalogue twice, or is no constant", e.Code)
		}
		if seen[e.Code] = true; strings.TrimSpace(e.Meaning) == "" {
			t.Errorf("%q has no meaning", e.Code)
		}
		if strings.Trim(string(e.Code), "abcdefghijklmnopqrstuvwxyz_") != "" {
			t.Errorf("%q is no code", e.Code)
		}
	}
	if len(declared) == 0 || len(declared) != len(seen) {
		t.Errorf("%d constants and %d in the catalogue", len(declared), len(seen))
	}
}

// A stranger's error never reaches a person or a model; only its code does (T8, F-D15).
func TestOf(t *testing.T) {
	const canary = "canary: /home/ada/key"
	own := New(Rule, "no such app")
	for _, tc := range []struct {
		err  error
		want Code
	}{
		{errors.New(canary), Failed},
		{fmt.Errorf("%s: %w", canary, context.Canceled), Cancelled},
		{fmt.Errorf("%s: %w", canary, context.DeadlineExceeded), Failed},
		{fmt.Errorf("%s: %w", canary, own), Rule},
		{errors.Join(errors.New(canary), own), Rule},
		{Wrap(errors.New(canary), Unavailable, "the disk is full"), Unavailable},
	} {
		f := Of(tc.err)
		if f.Code != tc.want || !Is(f, tc.want) {
			t.Errorf("Of(%v) is %s, want %s", tc.err, f.Code, tc.want)
		}
		if f.Public == "" || strings.Contains(f.Public+f.ModelWords(), "canary") {
			t.Errorf("Of(%v) says %q and %q", tc.err, f.Public, f.ModelWords())
		}
	}
	if Of(nil) != nil || Is(nil, Failed) || Is(errors.New("x"), Failed) || Is(errors.New("x"), "") {
		t.Error("what is no fault has a code")
	}
}

// The cause is in the log's text and nowhere else; values filled into either text are known as such (U1).
func TestWords(t *testing.T) {
	cause := errors.New("disk on fire")
	e := Wrap(cause, Unavailable, "cannot read %s", "a.yaml").ForModel("app %s is not there", "b").At("app").After(time.Second).Doing("apps.list")
	if e.Public != "cannot read a.yaml" || e.ModelWords() != "app b is not there" || e.Field != "app" || e.RetryAfter != time.Second {
		t.Errorf("%+v", e)
	}
	if got := e.Error(); !strings.Contains(got, "apps.list") || !strings.Contains(got, "disk on fire") {
		t.Errorf("the log reads %q", got)
	}
	if !errors.Is(e, cause) {
		t.Error("the cause is lost")
	}
	if v := e.Values(); len(v) != 2 || v[0] != "a.yaml" || v[1] != "b" {
		t.Errorf("values %v", v)
	}
	if got := New(Busy, "busy").ModelWords(); got != "busy" {
		t.Errorf("without words of its own the model reads %q", got)
	}
}
