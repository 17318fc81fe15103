package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

const (
	maxDefinitionBytes = 16 << 10
	maxDefinitionDepth = 8 // brackets within each other; a definition needs one
	maxTitle           = 100
	maxProblems        = 10 // told of one file
	defaultStopTimeout = 10 * time.Second
	maxStopTimeout     = 10 * time.Minute
)

// policy says what happens when an app ends by itself.
type policy string

const (
	never     policy = "never"
	onFailure policy = "on-failure"
	always    policy = "always"
)

// definition is one app as its owner wrote it.
type definition struct {
	Command     []string          `json:"command"`
	Title       string            `json:"title"`
	Directory   string            `json:"directory"`
	Environment map[string]string `json:"environment"`
	Restart     policy            `json:"restart"`
	Autostart   bool              `json:"autostart"`
	StopTimeout time.Duration     `json:"-"`
	User        string            `json:"user"`
}

// hash identifies what the definition says; comments and layout do not count.
func (d *definition) hash() string {
	b, err := json.Marshal(struct {
		*definition
		StopTimeout int64 `json:"stop_timeout_ns"`
	}{d, int64(d.StopTimeout)}, json.Deterministic(true))
	if err != nil {
		panic(err) // unreachable unless a field's type cannot be JSON
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

var (
	appName      = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,30}$`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// reader collects the problems of one file while it is read.
type reader struct {
	def      definition
	seen     map[string]bool
	problems []string
}

func (r *reader) bad(n ast.Node, format string, args ...any) {
	line := 1
	if n != nil && n.GetToken() != nil && n.GetToken().Position != nil {
		line = n.GetToken().Position.Line
	}
	r.problems = append(r.problems, fmt.Sprintf("line %d: ", line)+fmt.Sprintf(format, args...))
}

// parse reads a definition strictly. The problems name line and key; with any there is no definition.
func parse(data []byte) (*definition, []string) {
	r := &reader{seen: map[string]bool{}}
	r.def.Restart, r.def.StopTimeout = never, defaultStopTimeout
	if n := root(data, r); n != nil {
		r.mapping(n)
		if !r.seen["command"] {
			r.bad(nil, "command is required, a list such as [/usr/bin/python3, server.py]")
		}
	}
	if len(r.problems) > 0 {
		return nil, r.problems[:min(len(r.problems), maxProblems)]
	}
	return &r.def, nil
}

// root finds the one mapping that a definition is.
func root(data []byte, r *reader) *ast.MappingNode {
	switch {
	case len(data) > maxDefinitionBytes:
		r.bad(nil, "the file is larger than %d KiB", maxDefinitionBytes>>10)
		return nil
	case !utf8.Valid(data) || strings.ContainsRune(string(data), 0):
		r.bad(nil, "the file is not UTF-8 text")
		return nil
	case nesting(data) > maxDefinitionDepth:
		r.bad(nil, "brackets are nested too deeply")
		return nil
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		line, msg := 1, "it is not YAML"
		if e, ok := errors.AsType[yaml.Error](err); ok {
			msg = e.GetMessage()
			if t := e.GetToken(); t != nil && t.Position != nil {
				line = t.Position.Line
			}
		}
		r.problems = append(r.problems, fmt.Sprintf("line %d: %s", line, clip(msg)))
		return nil
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			r.bad(doc.Body, "one file holds one app; a second document begins here")
			return nil
		}
		body = doc.Body
	}
	switch n := body.(type) {
	case nil:
		r.bad(nil, "the file is empty; at least command is needed")
	case *ast.MappingNode:
		return n
	default:
		r.bad(n, "a definition is a list of keys and values, such as command: [/usr/bin/python3, server.py]")
	}
	return nil
}

// nesting bounds what the parser has to recurse into.
func nesting(data []byte) int {
	depth, deepest := 0, 0
	for _, c := range data {
		switch c {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth--
		}
	}
	return deepest
}

func (r *reader) mapping(m *ast.MappingNode) {
	for _, kv := range m.Values {
		key, ok := scalar(kv.Key)
		if !ok {
			r.bad(kv.Key, "a key must be a plain word")
			continue
		}
		if r.seen[key] {
			r.bad(kv.Key, "%s is there twice", key)
			continue
		}
		r.seen[key] = true
		r.field(key, kv)
	}
}

func (r *reader) field(key string, kv *ast.MappingValueNode) {
	v := kv.Value
	switch key {
	case "command":
		r.command(v)
	case "environment":
		r.environment(v)
	case "title":
		r.def.Title = r.text(key, v)
		if utf8.RuneCountInString(r.def.Title) > maxTitle || strings.ContainsFunc(r.def.Title, notPrint) {
			r.bad(v, "title must be one line of at most %d characters", maxTitle)
		}
	case "directory":
		r.def.Directory = r.text(key, v)
		if !filepath.IsAbs(r.def.Directory) {
			r.bad(v, "directory must be an absolute path")
		}
	case "user":
		if r.def.User = r.text(key, v); r.def.User == "" {
			r.bad(v, "user must be the name of an account")
		}
	case "restart":
		switch p := policy(r.text(key, v)); p {
		case always, onFailure, never:
			r.def.Restart = p
		default:
			r.bad(v, "restart must be always, on-failure or never")
		}
	case "autostart":
		switch r.text(key, v) {
		case "true":
			r.def.Autostart = true
		case "false":
		default:
			r.bad(v, "autostart must be true or false")
		}
	case "stop_timeout":
		r.stopTimeout(v)
	default:
		r.bad(kv.Key, "unknown key %s; there are command, title, directory, environment, restart, autostart, stop_timeout, user", clip(key))
	}
}

func notPrint(c rune) bool { return !unicode.IsPrint(c) }

func (r *reader) command(v ast.Node) {
	seq, ok := v.(*ast.SequenceNode)
	if !ok {
		r.bad(v, "command must be a list, such as [/usr/bin/python3, server.py]")
		return
	}
	for _, item := range seq.Values {
		s, ok := scalar(item)
		if !ok {
			r.bad(item, "each part of command must be text")
			return
		}
		r.def.Command = append(r.def.Command, s)
	}
	if len(r.def.Command) == 0 || r.def.Command[0] == "" {
		r.bad(v, "command must begin with the program to run")
	}
}

func (r *reader) environment(v ast.Node) {
	m, ok := v.(*ast.MappingNode)
	if !ok {
		r.bad(v, "environment must be names and values, such as PORT: \"8080\"")
		return
	}
	r.def.Environment = map[string]string{}
	for _, kv := range m.Values {
		name, ok := scalar(kv.Key)
		if !ok || !variableName.MatchString(name) {
			r.bad(kv.Key, "a name in environment must be letters, digits and underscores")
			continue
		}
		value, ok := scalar(kv.Value)
		if !ok {
			r.bad(kv.Value, "environment %s must be text; write \"\" for an empty one", name)
			continue
		}
		if _, twice := r.def.Environment[name]; twice {
			r.bad(kv.Key, "environment %s is there twice", name)
		}
		r.def.Environment[name] = value
	}
}

func (r *reader) stopTimeout(v ast.Node) {
	s := r.text("stop_timeout", v)
	d, err := time.ParseDuration(s)
	if n, e := strconv.Atoi(s); e == nil && n >= 0 && n <= int(maxStopTimeout/time.Second) {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d <= 0 || d > maxStopTimeout {
		r.bad(v, "stop_timeout must be a time such as 30s, at most 10m")
		return
	}
	r.def.StopTimeout = d
}

func (r *reader) text(key string, v ast.Node) string {
	s, ok := scalar(v)
	if !ok {
		r.bad(v, "%s must be one value", key)
	}
	return s
}

// scalar is a value's text as it stands in the file, so that 0x10, 1e3 and yes stay what the owner wrote. Anchors,
// aliases, tags, merge keys and null are none.
func scalar(n ast.Node) (string, bool) {
	s := ""
	switch n := n.(type) {
	case *ast.StringNode:
		s = n.Value
	case *ast.LiteralNode:
		s = n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		s = n.GetToken().Value
	default:
		return "", false
	}
	return s, !strings.ContainsRune(s, 0)
}

// clip keeps a stranger's text in an error short.
func clip(s string) string {
	if len(s) > 120 {
		s = strings.ToValidUTF8(s[:120], "") + "…"
	}
	return s
}
