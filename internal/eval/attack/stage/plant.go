package stage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"atoll/internal/eval"
	"atoll/internal/eval/attack/stranger"
	"atoll/internal/eval/attack/suite"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fence"
)

// planted is one text in its places: how each is read, and what must be there as the node's people see it.
type planted struct {
	n     int
	text  *suite.Text
	reads map[string]suite.Call
	holds map[string][]string // JSON texts, without their quotation marks
	lines int
}

// BatchSize is how many texts are put down at once: for each there is an app with a title, and a list has room for few.
const BatchSize = 8

// plant puts the texts where it takes the node a moment to notice them.
func (w *World) plant(texts []*suite.Text, uses func(*suite.Text, string) bool) []*planted {
	var out []*planted
	files, titles := 0, 0
	for _, t := range texts {
		w.turns++
		p := &planted{n: w.turns, text: t, reads: map[string]suite.Call{}, holds: map[string][]string{}}
		if uses(t, suite.AtFile) || uses(t, suite.AtSummary) {
			p.reads[suite.AtFile] = suite.Call{Tool: "content_list", Args: fmt.Sprintf(`{"prefix":"`+inside+`/%d/"}`, p.n)}
			files += w.file(p)
		}
		if title := fit(t.Text, 100, unicode.IsPrint); uses(t, suite.AtTitle) {
			p.reads[suite.AtTitle] = suite.Call{Tool: "app_list", Args: "{}"}
			w.define(p.banner(), title, false, "exit 0")
			titles++
		}
		out = append(out, p)
	}
	if files > 0 {
		w.until("the files", func() bool {
			for _, p := range out {
				if _, ok := p.reads[suite.AtFile]; !ok || p.text.Text == "" || len(p.holds[suite.AtFile]) > 0 {
					continue
				}
				if p.holds[suite.AtFile] = pathsOf(w.raw("content.list", map[string]any{"prefix": fmt.Sprintf(inside+"/%d/", p.n)})); len(p.holds[suite.AtFile]) == 0 {
					return false
				}
			}
			return true
		})
	}
	if titles > 0 {
		w.until("the titles", func() bool { return w.titles(out) })
	}
	return out
}

// pull takes them up again.
func (w *World) pull(all []*planted) {
	for _, p := range all {
		_ = os.RemoveAll(filepath.Join(w.dir, "content", inside, fmt.Sprint(p.n)))
		_ = os.Remove(filepath.Join(w.dir, "apps", p.banner()+".yaml")) // there is none of a text that needed no title
	}
}

// inside is the folder of the files whose names are texts, and all that peers may see.
const inside = "t"

// file makes a file whose path is the text: "/" and what else no name can hold become something near, and names that would
// be too long go on below. It reports how many it made.
func (w *World) file(p *planted) int {
	const most = 240 // bytes of a name
	if p.text.Text == "" {
		return 0 // no file has no name
	}
	text := strings.ToValidUTF8(p.text.Text, "\uFFFD")
	text = strings.NewReplacer("/", "\u2215", "\x00", "\u2400").Replace(text)
	path := filepath.Join(w.dir, "content", inside, fmt.Sprint(p.n))
	for depth := 0; text != "" && depth < 14; depth++ { // as many as a path has room for
		n := min(len(text), most)
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n--
		}
		name := text[:n]
		if strings.HasPrefix(name, ".") {
			name = "\u2024" + name[1:] // what begins with a dot is not shared
		}
		path, text = path+"/"+name, text[n:]
	}
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		w.Fatal(err)
	}
	return 1
}

func pathsOf(listing string) (out []string) {
	var l struct {
		Items []struct {
			Path jsontext.Value `json:"path"`
		} `json:"items"`
	}
	_ = json.Unmarshal([]byte(listing), &l)
	for _, i := range l.Items {
		out = append(out, bare(i.Path))
	}
	return out
}

// bare is a JSON text without its quotation marks.
func bare(v jsontext.Value) string {
	return strings.TrimSuffix(strings.TrimPrefix(string(v), `"`), `"`)
}

// banner is the app whose title is the text.
func (p *planted) banner() string { return fmt.Sprintf("b%d", p.n) }

// titles reads back what stands in the apps' list, and reports whether all of it is there. A definition that is refused is
// kept out, with words.
func (w *World) titles(all []*planted) bool {
	var l struct {
		Apps []struct {
			App   string         `json:"app"`
			Title jsontext.Value `json:"title"`
		} `json:"apps"`
		Problems []struct {
			File    string `json:"file"`
			Problem string `json:"problem"`
		} `json:"problems"`
	}
	_ = json.Unmarshal([]byte(w.raw("apps.list", nil)), &l)
	for _, p := range all {
		want := fit(p.text.Text, 100, unicode.IsPrint)
		if _, ok := p.reads[suite.AtTitle]; !ok || want == "" {
			continue
		}
		found := false
		for _, a := range l.Apps {
			if a.App == p.banner() && suite.Normal(a.Title) == suite.Quote(want) {
				p.holds[suite.AtTitle], found = []string{bare(a.Title)}, true
			}
		}
		for _, problem := range l.Problems {
			found = found || problem.File == p.banner()+".yaml" && problem.Problem != ""
		}
		if !found {
			return false
		}
	}
	return true
}

// fit is the nearest text of at most n characters that holds only some kinds.
func fit(s string, n int, ok func(rune) bool) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case ok(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return -1
	}, strings.ToValidUTF8(s, "\uFFFD"))
	s = strings.TrimSpace(s)
	if r := []rune(s); len(r) > n {
		s = strings.TrimSpace(string(r[:n]))
	}
	return s
}

// put puts a text where it is at once.
func (w *World) put(p *planted, place string) {
	if _, ok := p.reads[place]; ok {
		return
	}
	switch place {
	case suite.AtLog:
		w.log(p)
	case suite.AtName, suite.AtStatus, suite.AtPeerFile:
		w.tell(p)
	case suite.AtSetting:
		w.name(p)
	}
}

// log has the talker log the text.
func (w *World) log(p *planted) {
	end := fmt.Sprintf("end of %d", p.n)
	f, err := os.OpenFile(filepath.Join(w.scene.dir, "fifo"), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(p.text.Text + "\n" + end + "\n")
		err = firstOf(err, f.Close())
	}
	if err != nil {
		w.Fatal(err)
	}
	n := min(500, strings.Count(p.text.Text, "\n")+2)
	w.until("the log", func() bool {
		var l struct {
			Lines []struct {
				Text jsontext.Value `json:"text"`
			} `json:"lines"`
		}
		_ = json.Unmarshal([]byte(w.raw("apps.logs", map[string]any{"app": talker, "lines": n})), &l)
		if len(l.Lines) == 0 || bare(l.Lines[len(l.Lines)-1].Text) != end {
			return false
		}
		for _, line := range l.Lines[:len(l.Lines)-1] {
			p.holds[suite.AtLog] = append(p.holds[suite.AtLog], bare(line.Text))
		}
		return true
	})
	p.reads[suite.AtLog], p.lines = suite.Call{Tool: "app_logs", Args: fmt.Sprintf(`{"app":"%s","lines":%d}`, talker, n)}, n
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// tell has the peer "show" call itself by the text, name it as its version, and share a file of that name.
func (w *World) tell(p *planted) {
	s := w.peers.show()
	text := strings.ToValidUTF8(p.text.Text, "\uFFFD")
	path := fmt.Sprintf("t%d/", p.n) + fit(strings.NewReplacer("/", "\u2215", `\`, "\u2216").Replace(strings.TrimLeft(text, ".")), 60,
		func(r rune) bool { return !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r) })
	if len(text) > 4000 { // a frame has room for this much of a name, of which the node keeps 64 characters
		text = strings.ToValidUTF8(text[:4000], "")
	}
	s.Says(text, text, path)
	w.refresh(s)
	var l struct {
		Peers []struct {
			Key     string         `json:"key"`
			Name    jsontext.Value `json:"name"`
			Version jsontext.Value `json:"version"`
		} `json:"peers"`
	}
	_ = json.Unmarshal([]byte(w.raw("mesh.status", nil)), &l)
	for _, peer := range l.Peers {
		if peer.Key == s.Key {
			p.holds[suite.AtName], p.holds[suite.AtStatus] = []string{bare(peer.Name)}, []string{bare(peer.Version)}
		}
	}
	p.holds[suite.AtPeerFile] = pathsOf(w.raw("content.list", map[string]any{"peer": "show", "prefix": fmt.Sprintf("t%d/", p.n)}))
	p.reads[suite.AtName], p.reads[suite.AtStatus] = suite.Call{Tool: "mesh_status", Args: "{}"}, suite.Call{Tool: "mesh_status", Args: "{}"}
	p.reads[suite.AtPeerFile] = suite.Call{Tool: "content_list", Args: fmt.Sprintf(`{"peer":"show","prefix":"t%d/"}`, p.n)}
	w.dirty = true
}

// refresh has the node ask the peer anew what it says. A connection that one end has just given up is made again.
func (w *World) refresh(s *stranger.Stranger) {
	var r eval.Reply
	for range 5 {
		w.breathe()
		if r = w.owner.Call("mesh.refresh", map[string]any{"peer": s.Key}); r.Code == "" {
			return
		}
		s.Host.Disconnect(w.peers.key)
		w.peers.connect(s)
	}
	w.Fatalf("mesh.refresh: %s %s", r.Code, r.Message)
}

// name sets the node's name to the text, or to what is near it and the setting's rules let through. What they refuse is
// refused with words, and kept out.
func (w *World) name(p *planted) {
	p.reads[suite.AtSetting] = suite.Call{Tool: "settings_get", Args: `{"key":"node.name"}`}
	w.dirty = true
	for _, try := range []string{strings.ToValidUTF8(p.text.Text, "\uFFFD"), fit(p.text.Text, 60, func(r rune) bool { return r < 0x250 && unicode.IsPrint(r) })} {
		w.breathe()
		r := w.owner.Call("settings.set", map[string]any{"key": "node.name", "value": try})
		switch {
		case r.Code == "":
			p.holds[suite.AtSetting] = []string{strings.TrimSuffix(strings.TrimPrefix(suite.Quote(try), `"`), `"`)}
			w.settings["node.name"] = suite.Quote(try)
			return
		case r.Field != "value":
			w.Fatalf("settings.set refused a name without saying why: %s %s", r.Code, r.Message)
		}
	}
}

// fenced reports whether what was planted there must be fenced: one plain word of the owner's is a fact.
func (p *planted) fenced(place string) bool {
	if place != suite.AtSetting {
		return len(p.holds[place]) > 0
	}
	for _, h := range p.holds[place] {
		if !fence.Word(h).Plain() {
			return true
		}
	}
	return false
}
