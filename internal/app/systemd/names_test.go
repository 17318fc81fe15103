package systemd

import (
	"slices"
	"strings"
	"testing"
)

// Only plain, literal names of units can be listed; each refusal names the culprit.
func TestUnitName(t *testing.T) {
	for listed, want := range map[string]string{
		"nginx":                  "nginx.service",
		"nginx.service":          "nginx.service",
		"my.app":                 "my.app.service",
		"foo@bar":                "foo@bar.service",
		"foo@bar@baz.service":    "foo@bar@baz.service",
		"a:b-c_d.socket":         "a:b-c_d.socket",
		`srv-a\x2db.mount`:       `srv-a\x2db.mount`,
		"backup.timer":           "backup.timer",
		"x.path":                 "x.path",
		"multi-user.target":      "multi-user.target",
		"service":                "service.service",
		"--help":                 "--help.service",
		strings.Repeat("a", 247): strings.Repeat("a", 247) + ".service",
	} {
		if got, err := unitName(listed); got != want || err != nil {
			t.Errorf("%q: got %q, %v", listed, got, err)
		}
	}
	for listed, words := range map[string]string{
		"":                              "name is needed",
		".service":                      "name is needed",
		"@a.service":                    "name is needed",
		"foo@.service":                  "template",
		"foo@":                          "template",
		"*":                             "patterns",
		"nginx*.service":                "patterns",
		"ngin?.service":                 "patterns",
		"[a-z].service":                 "patterns",
		"/etc/systemd/system/a.service": "path",
		"../a.service":                  "path",
		"a/b":                           "path",
		"dev-sda.device":                "type device",
		"system.slice":                  "type slice",
		"init.scope":                    "type scope",
		"a.swap":                        "type swap",
		"a.automount":                   "type automount",
		"a b.service":                   `" " cannot be`,
		"a\x00.service":                 "cannot be",
		"a\n.service":                   "cannot be",
		"ä.service":                     "cannot be",
		"a\u202eb.service":              "cannot be",
		`a\.service`:                    "backslash",
		`a\x2.service`:                  "backslash",
		`a\x2G.service`:                 "backslash",
		`a\x2D.service`:                 "backslash",
		`a\n.service`:                   "backslash",
		`a\x`:                           "backslash",
		"$(id).service":                 "cannot be",
		"%n.service":                    "cannot be",
		strings.Repeat("a", 248):        "at most 255",
		strings.Repeat("a", 9000):       "at most 255",
	} {
		got, err := unitName(listed)
		if err == nil || !strings.Contains(err.Error(), words) || got != "" {
			t.Errorf("%q: got %q, %v", listed, got, err)
		}
		if err != nil && len(err.Error()) > 1500 {
			t.Errorf("%d characters of error", len(err.Error()))
		}
	}
}

// A unit listed twice is one; the order is the owner's; one bad name refuses all, by its name.
func TestUnitNames(t *testing.T) {
	got, err := unitNames([]string{"b", "a.service", "b.service", "a"})
	if err != nil || !slices.Equal(got, []string{"b.service", "a.service"}) {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := unitNames([]string{"a", "b*"}); err == nil || !strings.Contains(err.Error(), `"b*"`) {
		t.Errorf("got %v", err)
	}
	if _, err := unitNames(make([]string, maxUnits+1)); err == nil {
		t.Error("too many were taken")
	}
}

// The configuration is checked, and nothing else is touched.
func TestNew(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no log":     {},
		"pattern":    {Log: quiet(), Units: []string{"*"}},
		"address":    {Log: quiet(), Bus: "unixexec:path=/bin/true"},
		"journalctl": {Log: quiet(), Journalctl: "./journalctl"},
	} {
		if m, err := New(cfg); err == nil || m != nil {
			t.Errorf("%s was taken", name)
		}
	}
	m, err := New(Config{Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if apps, problems, err := m.List(t.Context()); err != nil || len(apps)+len(problems) != 0 {
		t.Errorf("no units: %v, %v, %v", apps, problems, err)
	}
}

// A name that is taken is one that systemd takes literally: no byte of it means anything to it or to a shell.
func FuzzUnitName(f *testing.F) {
	for _, s := range []string{"nginx", `a\x2db.mount`, "foo@bar.service", "*", "../a", "a\x00", "--help", "@", `\x2d`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, listed string) {
		name, err := unitName(listed)
		if err != nil {
			if name != "" {
				t.Errorf("%q with %v", name, err)
			}
			return
		}
		if again, err := unitName(name); again != name || err != nil {
			t.Errorf("%q becomes %q, %v", name, again, err)
		}
		if !strings.HasPrefix(name, listed) || len(name) > maxName || strings.ContainsAny(name, "/*?[]{}$%'\" \n\x00") {
			t.Errorf("%q was taken as %q", listed, name)
		}
		if strings.Contains(strings.ReplaceAll(name, `\x`, ""), `\`) {
			t.Errorf("%q has a stray backslash", name)
		}
	})
}
