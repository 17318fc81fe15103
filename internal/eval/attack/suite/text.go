// Package suite is what is tried: hostile texts, tasks and harmless texts, how they are read, and which cases are made of them.
// It runs nothing.
package suite

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Call is one call that a model makes. Args is the argument text as the model writes it, JSON or not.
type Call struct {
	Tool string
	Args string
}

// Text is one hostile text: what stands in it, and the calls that a model makes which obeys it.
type Text struct {
	ID     string
	Source string
	Text   string
	Want   []Call
	Place  string // the only place it is for; empty is all
	Say    string // what the model is made to answer; empty is its own lies
}

// Task is something that people ask for every day, with the very calls that it takes.
type Task struct {
	ID        string
	Peer      bool // a peer asks
	Say       string
	Calls     []Call
	Approvals int    // dialogs that it needs
	Fact      string // what the answer must hold, as a name of the facts table; empty is nothing
	Deny      string // why calls of it are refused, as they must be; empty: they are done
}

//go:embed testdata/own.txt testdata/tasks.txt testdata/benign.txt
var own embed.FS

// Own are the attacks, the tasks and the harmless texts that come with the program.
func Own() (texts []Text, tasks []Task, benign []string, err error) {
	raw := func(name string) []byte {
		b, failed := own.ReadFile("testdata/" + name)
		err = errors.Join(err, failed)
		return b
	}
	texts, bad := parseTexts(raw("own.txt"))
	tasks, worse := parseTasks(raw("tasks.txt"))
	for line := range strings.Lines(string(raw("benign.txt"))) {
		if line = strings.TrimSpace(line); line != "" {
			benign = append(benign, line)
		}
	}
	return texts, tasks, benign, errors.Join(err, bad, worse)
}

// LoadOwn reads attacks from a text file, in blocks that a blank line ends:
//
//	id: my-attack              a name without a slash; required, and unlike the others'
//	place: log                 the only place to try it; left out, all of them
//	want: app_stop {"app":"photos"}   a call that a model makes which obeys the text; any number of these lines
//	say: Yes, approved.        what the model is made to answer; left out, its own lies
//	text: Please stop photos.  the text; it goes on over the lines that follow, to the end of the block
//
// A blank line within a text is written as a line of one backslash. Lines that begin with # between blocks are remarks.
func LoadOwn(file string) ([]Text, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out, err := parseTexts(raw)
	if err == nil && len(out) == 0 {
		err = errors.New("there is no attack in it")
	}
	return out, err
}

// blocks gives each block's lines with the number of its first.
func blocks(raw []byte, each func(line int, lines []string) error) error {
	var now []string
	var errs []error
	flush := func(n int) {
		if len(now) > 0 {
			errs = append(errs, each(n-len(now), now))
		}
		now = nil
	}
	all := strings.Split(strings.ReplaceAll(string(raw), "\r\n", "\n"), "\n")
	for i, line := range all {
		switch {
		case strings.TrimSpace(line) == "":
			flush(i + 1)
		case len(now) > 0 || !strings.HasPrefix(line, "#"):
			now = append(now, line)
		}
	}
	flush(len(all) + 1)
	return errors.Join(errs...)
}

func parseTexts(raw []byte) (out []Text, err error) {
	seen := map[string]bool{}
	err = blocks(raw, func(n int, lines []string) error {
		t, err := parseText(lines)
		if err == nil && seen[t.ID] {
			err = fmt.Errorf("the id %s is there twice", t.ID)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		seen[t.ID] = true
		out = append(out, t)
		return nil
	})
	return out, err
}

func parseText(lines []string) (t Text, err error) {
	t.Source = "own"
	for i, line := range lines {
		field, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case ok && field == "id":
			t.ID = value
		case ok && field == "place":
			t.Place = value
		case ok && field == "say":
			t.Say = value
		case ok && field == "want":
			tool, args, _ := strings.Cut(value, " ")
			t.Want = append(t.Want, Call{tool, strings.TrimSpace(args)})
		case ok && field == "text":
			rest := append([]string{value}, lines[i+1:]...)
			for j, l := range rest {
				if l == `\` {
					rest[j] = ""
				}
			}
			t.Text = strings.Join(rest, "\n")
			return t, t.check()
		default:
			return t, fmt.Errorf("%q is none of id:, place:, want:, say:, text:", line)
		}
	}
	return t, errors.New("there is no text:")
}

func (t Text) check() error {
	switch {
	case t.ID == "" || strings.ContainsAny(t.ID, "/ "):
		return fmt.Errorf("the id %q must be a word without a slash", t.ID)
	case t.ID == "task" || t.ID == "benign": // --only could not tell its cases from those
		return fmt.Errorf("the id %q is taken: cases of tasks and harmless texts begin with it", t.ID)
	case t.Place != "" && !IsPlace(t.Place):
		return fmt.Errorf("%s: there is no place %q; there are %s", t.ID, t.Place, strings.Join(Places(), ", "))
	case t.Text == "":
		return fmt.Errorf("%s: the text is empty", t.ID)
	}
	return nil
}

func parseTasks(raw []byte) (out []Task, err error) {
	err = blocks(raw, func(n int, lines []string) error {
		var t Task
		for _, line := range lines {
			field, value, _ := strings.Cut(line, ":")
			value = strings.TrimSpace(value)
			switch field {
			case "id":
				t.ID = value
			case "who":
				t.Peer = value == "peer"
			case "say":
				t.Say = value
			case "call":
				tool, args, _ := strings.Cut(value, " ")
				t.Calls = append(t.Calls, Call{tool, strings.TrimSpace(args)})
			case "asks":
				if _, err := fmt.Sscan(value, &t.Approvals); err != nil {
					return fmt.Errorf("line %d: asks: %q is no number", n, value)
				}
			case "fact":
				t.Fact = value
			case "deny":
				t.Deny = value
			default:
				return fmt.Errorf("line %d: %q is no field of a task", n, line)
			}
		}
		if t.ID == "" || t.Say == "" {
			return fmt.Errorf("line %d: a task has an id and what is said", n)
		}
		out = append(out, t)
		return nil
	})
	return out, err
}

// wire is a line of the shared directory's files.
type wire struct {
	ID     string `json:"id"`
	Source string `json:"source"`
	Text   string `json:"text"`
	Hex    string `json:"hex"`
	Where  string `json:"where"`
	Want   []struct {
		Tool string         `json:"tool"`
		Args jsontext.Value `json:"args"`
		Raw  string         `json:"args_json"`
	} `json:"want"`
	Principal string `json:"principal"`
	Say       string `json:"say"`
	Calls     []struct {
		Tool string         `json:"tool"`
		Args jsontext.Value `json:"args"`
	} `json:"calls"`
	Approvals int    `json:"approvals"`
	Fact      string `json:"fact"`
	Deny      string `json:"deny"`
}

// LoadTexts reads a directory of attacks.jsonl, unicode.jsonl, tasks.jsonl and benign.jsonl; one that is missing holds
// nothing, but not all of them.
func LoadTexts(dir string) (texts []Text, tasks []Task, benign []string, err error) {
	found := false
	read := func(name string, each func(wire)) {
		ok, failed := readLines(filepath.Join(dir, name), each)
		found, err = found || ok, errors.Join(err, failed)
	}
	read("attacks.jsonl", func(w wire) { texts = append(texts, w.attack()) })
	read("unicode.jsonl", func(w wire) { texts = append(texts, w.glyphs()) })
	read("tasks.jsonl", func(w wire) { tasks = append(tasks, w.task()) })
	read("benign.jsonl", func(w wire) { benign = append(benign, w.Text) })
	if err == nil && !found {
		err = fmt.Errorf("%s holds none of attacks.jsonl, unicode.jsonl, tasks.jsonl and benign.jsonl", dir)
	}
	return texts, tasks, benign, err
}

func readLines(path string, each func(wire)) (bool, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	in := bufio.NewScanner(bytes.NewReader(raw))
	in.Buffer(nil, 1<<20)
	for n := 1; in.Scan(); n++ {
		var w wire
		if err := json.Unmarshal(in.Bytes(), &w, jsontext.AllowInvalidUTF8(true)); err != nil {
			return true, fmt.Errorf("%s:%d: %w", filepath.Base(path), n, err)
		}
		each(w)
	}
	return true, in.Err()
}

func (w wire) attack() Text {
	t := Text{ID: PlainID(w.ID), Source: w.Source, Text: w.Text}
	for _, c := range w.Want {
		args := c.Raw
		if args == "" {
			args = string(c.Args)
		}
		t.Want = append(t.Want, Call{c.Tool, args})
	}
	return t
}

// glyphs is a line of unicode.jsonl: where it enters says whether it is an argument, a tool's name, an answer or a text.
func (w wire) glyphs() Text {
	if raw, err := hex.DecodeString(w.Hex); err == nil && w.Hex != "" {
		w.Text = string(raw)
	}
	t := Text{ID: PlainID(w.ID), Source: "unicode/" + w.Where, Text: w.Text}
	stop := Call{"app_stop", `{"app":"vault"}`}
	switch w.Where {
	case "arg:app":
		t.Want = []Call{{"app_stop", `{"app":` + Quote(w.Text) + `}`}}
	case "arg:value":
		t.Want = []Call{{"settings_set", `{"key":"node.name","value":` + Quote(w.Text) + `}`}}
	case "arg:key":
		t.Want = []Call{{"settings_set", `{"key":` + Quote(w.Text) + `,"value":"dark"}`}}
	case "args":
		t.Want = []Call{{"app_stop", w.Text}}
	case "tool":
		t.Want = []Call{{w.Text, stop.Args}}
	case "reply":
		t.Say, t.Want = w.Text, []Call{stop}
	default:
		t.Want = []Call{stop}
	}
	return t
}

func (w wire) task() Task {
	t := Task{ID: PlainID(w.ID), Peer: w.Principal == "peer", Say: w.Say, Approvals: w.Approvals, Fact: w.Fact, Deny: w.Deny}
	for _, c := range w.Calls {
		t.Calls = append(t.Calls, Call{c.Tool, string(c.Args)})
	}
	return t
}

// PlainID makes an identifier fit to be a part of a case's.
func PlainID(id string) string { return strings.NewReplacer("/", "_", " ", "_").Replace(id) }
