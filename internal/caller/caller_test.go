package caller

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The zero value may do nothing, and neither may a stranger or a peer by a role (G1, A5).
func TestZeroIsClosed(t *testing.T) {
	for name, c := range map[string]Caller{"zero": {}, "stranger": Stranger("10.0.0.1"), "peer": Peer("k", "owner"),
		"nobody": Operator(1, "ada", Nobody, "s", ""), "narrowed peer": Peer("k", "x").Narrow(Owner),
		"narrowed zero": Caller{}.Narrow(Owner)} {
		for r := Nobody; r <= Owner+1; r++ {
			if c.May(r) {
				t.Errorf("%s may do what %s may", name, r)
			}
		}
	}
	if !(Caller{}).IsZero() || Stranger("").IsZero() || (Caller{}).Key() != "" || Stranger("a").Key() != "" {
		t.Error("nobody has a key, or a stranger is nobody")
	}
}

func TestRoles(t *testing.T) {
	for have := Viewer; have <= Owner; have++ {
		c := Operator(1, "ada", have, "s", "")
		for need := Nobody; need <= Owner+1; need++ {
			if want := need > Nobody && have >= need; c.May(need) != want {
				t.Errorf("%s may %s: %v", have, need, !want)
			}
			if n := c.Narrow(need); n.Role() > have || n.Role() > need || n.Account() != 1 {
				t.Errorf("%s narrowed to %s is %s", have, need, n.Role())
			}
		}
		var back Role
		text, _ := have.MarshalText()
		if err := back.UnmarshalText(text); err != nil || back != have {
			t.Errorf("%s read back as %s, %v", have, back, err)
		}
	}
	for _, s := range []string{"", "nobody", "Owner", "OWNER", " owner", "owner ", "root", "role(7)", "оwner"} {
		r := Owner
		if err := r.UnmarshalText([]byte(s)); err == nil || r != Nobody {
			t.Errorf("%q is the role %s, %v", s, r, err)
		}
	}
}

// H1: one key an account and one a peer, whatever a peer calls itself; sessions of an account share it.
func TestKeys(t *testing.T) {
	a, b := Operator(1, "ada", Owner, "s1", "x"), Operator(1, "ada2", Viewer, "s2", "y")
	if a.Key() != b.Key() {
		t.Error("two sessions of one account have two keys")
	}
	keys := map[string]bool{}
	for _, c := range []Caller{a, Operator(11, "", Owner, "", ""), Operator(2, "1", Owner, "", ""), Peer("1", ""), Peer("operator-1", ""), Peer("2", "operator-1")} {
		if keys[c.Key()] {
			t.Errorf("%s shares its key", c)
		}
		keys[c.Key()] = true
	}
	if p := Peer("k", "operator:ada"); p.String() != "peer:k" || p.IsOperator() || p.Account() != 0 || p.Session() != "" {
		t.Errorf("a peer's own name counts: %s", p)
	}
}

// Only account makes operators and only mesh makes peers: a caller cannot be forged elsewhere.
func TestWhoMakesCallers(t *testing.T) {
	makes := regexp.MustCompile(`\bcaller\.(Operator|Peer)\(`)
	allowed := map[string]string{"Operator": "account", "Peer": "mesh"}
	seen := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules") {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range makes.FindAllStringSubmatch(string(text), -1) {
			seen++
			if want := filepath.Join("..", "..", "internal", allowed[m[1]]) + "/"; !strings.HasPrefix(path, want) {
				t.Errorf("%s makes callers with caller.%s", path, m[1])
			}
		}
		return nil
	})
	if err != nil || seen == 0 {
		t.Errorf("the walk saw %d makers: %v", seen, err)
	}
}
