package process

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// SPEC section 3, Process apps: the schema, with every value as the owner wrote it.
func TestParse(t *testing.T) {
	got, problems := parse([]byte(`# a comment
command: [/usr/bin/python3, -u, "ser\tver.py", 0x10, 1e3, yes, true, '']
title: Photo frame – küche
directory: /srv/frame
environment:
  PORT: 08080
  DEBUG: false
  EMPTY: ""
  LONG: |
    one
    two
restart: on-failure
autostart: true
stop_timeout: 1m30s
user: media
`))
	want := &definition{
		Command: []string{"/usr/bin/python3", "-u", "ser\tver.py", "0x10", "1e3", "yes", "true", ""},
		Title:   "Photo frame – küche", Directory: "/srv/frame",
		Environment: map[string]string{"PORT": "08080", "DEBUG": "false", "EMPTY": "", "LONG": "one\ntwo\n"},
		Restart:     onFailure, Autostart: true, StopTimeout: 90 * time.Second, User: "media",
	}
	if len(problems) > 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\n%+v\n%v", got, want, problems)
	}
	got, problems = parse([]byte("command: [a]"))
	want = &definition{Command: []string{"a"}, Restart: never, StopTimeout: defaultStopTimeout}
	if len(problems) > 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("defaults: %+v %v", got, problems)
	}
	got, problems = parse([]byte("command: [a]\nstop_timeout: 3"))
	if len(problems) > 0 || got.StopTimeout != 3*time.Second {
		t.Errorf("seconds: %+v %v", got, problems)
	}
}

// Unknown keys and bad values are named with their line, and there is no definition then.
func TestParseProblems(t *testing.T) {
	const ok = "command: [a]\n"
	for text, want := range map[string]string{
		"":                          "line 1: the file is empty",
		"# nothing\n":               "the file is empty",
		"title: x\n":                "command is required",
		"- a\n":                     "a definition is a list of keys",
		"just text":                 "a definition is a list of keys",
		"command: sleep 5\n":        "line 1: command must be a list",
		"command: []\n":             "line 1: command must begin with the program",
		"command: ['']\n":           "command must begin with the program",
		"command: [a, [b]]\n":       "each part of command must be text",
		"command: [a, {b: c}]\n":    "each part of command must be text",
		"command: [a, null]\n":      "each part of command must be text",
		"command: [a, \"x\\0y\"]\n": "each part of command must be text",
		"command: [&x a, *x]\n":     "each part of command must be text",
		"command: [!!str a]\n":      "each part of command must be text",
		ok + "comand: [b]\n":        "line 2: unknown key comand; there are command",
		ok + "Command: [b]\n":       "line 2: unknown key Command",
		ok + "command: [b]\n":       "line 2:",
		ok + "\n\ntitle: [x]\n":     "line 4: title must be one value",
		ok + "title: " + strings.Repeat("x", 101):    "title must be one line of at most 100",
		ok + "title: \"a\\nb\"":                      "title must be one line",
		ok + "title: \"a\\u202eb\"":                  "title must be one line",
		ok + "directory: srv\n":                      "line 2: directory must be an absolute path",
		ok + "directory:\n":                          "directory must be",
		ok + "environment: [A=b]\n":                  "line 2: environment must be names and values",
		ok + "environment: {A-B: c}\n":               "a name in environment",
		ok + "environment: {A: [c]}\n":               "environment A must be text",
		ok + "environment: {A: }\n":                  "environment A must be text",
		ok + "environment: {A: b, A: c}\n":           "A",
		ok + "environment:\n  <<: {A: b}\n":          "a name in environment",
		ok + "restart: sometimes\n":                  "line 2: restart must be always, on-failure or never",
		ok + "restart: true\n":                       "restart must be",
		ok + "autostart: yes\n":                      "line 2: autostart must be true or false",
		ok + "stop_timeout: 0s\n":                    "line 2: stop_timeout must be a time",
		ok + "stop_timeout: 11m\n":                   "stop_timeout must be a time",
		ok + "stop_timeout: -1s\n":                   "stop_timeout must be a time",
		ok + "stop_timeout: 99999999999999\n":        "stop_timeout must be a time",
		ok + "user: ''\n":                            "user must be the name of an account",
		ok + "---\ncommand: [b]\n":                   "one file holds one app",
		ok + "a: [\n":                                "line ",
		"command: [a\x00]\n":                         "not UTF-8 text",
		"command: [\xff]\n":                          "not UTF-8 text",
		"command: " + strings.Repeat("[", 5000):      "nested too deeply",
		ok + strings.Repeat("#", maxDefinitionBytes): "larger than 16 KiB",
	} {
		def, problems := parse([]byte(text))
		if def != nil || !strings.Contains(strings.Join(problems, "\n"), want) {
			t.Errorf("%.60q: %+v, %q; want %q", text, def, problems, want)
		}
	}
}

// Several problems of one file are all told, and not without end.
func TestParseTellsAll(t *testing.T) {
	_, problems := parse([]byte("comand: [a]\nrestart: no\nuser: ''\n"))
	if len(problems) != 4 {
		t.Errorf("%q", problems)
	}
	var many strings.Builder
	for i := range 100 {
		many.WriteString("k" + strings.Repeat("x", i) + ": 1\n")
	}
	if _, problems := parse([]byte(many.String())); len(problems) != maxProblems {
		t.Errorf("%d problems", len(problems))
	}
}

// The hash is of what is said, not of how; each key counts.
func TestHash(t *testing.T) {
	hash := func(text string) string {
		d, problems := parse([]byte(text))
		if d == nil {
			t.Fatal(problems)
		}
		return d.hash()
	}
	base := hash("command: [a, b]\n")
	if hash("# why\ncommand:\n  - 'a'\n  - b\nrestart: never\nstop_timeout: 10s\n") != base {
		t.Error("layout counts")
	}
	seen := map[string]string{base: "base"}
	for _, more := range []string{"title: x", "directory: /x", "environment: {A: b}", "environment: {A: c}", "restart: always",
		"autostart: true", "stop_timeout: 11s", "user: x"} {
		h := hash("command: [a, b]\n" + more)
		if seen[h] != "" {
			t.Errorf("%q has the hash of %q", more, seen[h])
		}
		seen[h] = more
	}
	if hash("command: [a b]") == base || hash("command: [ab]") == base {
		t.Error("arguments run together")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "command: [a]", "command: [&a a, *a]\n<<: *a", "a: b: c", "? a\n: b", "command:\n- a\n- b\ntitle: |\n  x",
		"environment: {A: 1, B: [2]}", "%YAML 1.2\n---\ncommand: [a]\n...", "command: !!binary YQ==", "{command: [a], user: root}",
		"command: [\"\\u0000\"]", "\ttitle: x", "stop_timeout: 9223372036854775807ns", "- - - - a", "a: &x [*x]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		def, problems := parse(data)
		if (def == nil) != (len(problems) > 0) {
			t.Fatalf("%+v with %q", def, problems)
		}
		if def == nil {
			return
		}
		if len(def.Command) == 0 || def.Command[0] == "" || def.StopTimeout <= 0 || def.StopTimeout > maxStopTimeout {
			t.Fatalf("accepted: %+v", def)
		}
		for _, s := range def.Command {
			if strings.ContainsRune(s, 0) {
				t.Fatalf("a NUL byte in %q", s)
			}
		}
		for k, v := range def.Environment {
			if !variableName.MatchString(k) || strings.ContainsRune(v, 0) {
				t.Fatalf("accepted: %q=%q", k, v)
			}
		}
		_ = def.hash()
	})
}
