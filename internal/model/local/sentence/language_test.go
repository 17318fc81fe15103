package sentence

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// B1: thirteen tools, at least twelve phrasings each.
var tools = []string{"system_disk_status", "system_info", "app_list", "app_logs", "content_list", "files_list", "mesh_status",
	"settings_get", "wallet_status", "app_start", "app_stop", "app_restart", "settings_set"}

func english(t testing.TB) *Language {
	t.Helper()
	l, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func known() Names {
	return Names{Apps: []string{"sample", "jellyfin", "docker:immich", "docker:immich/server", "docker:immich/db", "systemd:smbd.service",
		"docker:photoprism", "docker:photoprism/photoprism", "docker:nginx", "systemd:nginx.service"},
		Settings: []string{"node.name", "ui.theme", "ui.language", "disk.warn_percent"}}
}

// understandAll reads the last of the messages.
func understandAll(l *Language, n Names, words ...string) []Intent {
	var said []Said
	for _, w := range words {
		said = append(said, Said{Words: w})
	}
	return l.Understand(said, n)
}

// understand is for messages that ask for one thing; of more it makes something that nothing equals.
func understand(l *Language, n Names, words ...string) Intent {
	all := understandAll(l, n, words...)
	if len(all) != 1 {
		return Intent{Kind: fmt.Sprintf("%d intents: %v", len(all), all)}
	}
	return all[0]
}

// fillings are the words put into the slots of a phrase.
func fillings(p phrase) map[string]string {
	f := map[string]string{"app": "jellyfin", "key": "disk warning", "value": "85", "n": "50", "path": "/srv/media", "folder": "media", "peer": "oak", "name": "oak"}
	switch p.Key {
	case "node.name":
		f["value"] = "Harbour"
	case "ui.theme":
		f["value"] = "dark"
	case "ui.language":
		f["value"] = "german"
	}
	return f
}

// spell writes out what a template matches, up to a bound; rotated, so that every choice is seen.
func spell(t template, fill map[string]string, bound int) []string {
	out := []string{""}
	for _, n := range t {
		var next []string
		var options []string
		switch {
		case n.word != "":
			options = []string{n.word}
		case n.slot != "":
			options = []string{fill[n.slot]}
		default:
			for _, c := range n.choice {
				options = append(options, spell(c, fill, bound)...)
			}
		}
		if len(out)*len(options) <= bound {
			for _, a := range out {
				for _, b := range options {
					next = append(next, strings.TrimSpace(a+" "+b))
				}
			}
		} else {
			for i := range max(len(out), len(options)) {
				next = append(next, strings.TrimSpace(out[i%len(out)]+" "+options[i%len(options)]))
			}
		}
		out = next
	}
	return out
}

func TestEveryPhrasingMeansItsTool(t *testing.T) {
	l := english(t)
	count := map[string]int{}
	total := 0
	for _, p := range slices.Concat(l.changes.all, l.reads.all) {
		count[p.Tool]++
		for _, s := range spell(p.template, fillings(p), 40) {
			total++
			n := known()
			if p.Framed {
				s = "i want " + s
			}
			if p.Implied {
				n.Apps = []string{"jellyfin"}
			}
			in := understand(l, n, s)
			want := p.Kind
			switch want {
			case "":
				want = Call
			case "reply":
				want = Say
			}
			if in.Kind != want || in.Tool != p.Tool || !in.Exact {
				t.Errorf("%q (of %q): got %s %s %q exact=%v, want %s %s", s, p.source, in.Kind, in.Tool, in.Text, in.Exact, want, p.Tool)
			}
			if want == Call && p.Focus != in.Focus {
				t.Errorf("%q (of %q): focus %q, want %q", s, p.source, in.Focus, p.Focus)
			}
		}
	}
	for _, tool := range tools {
		if count[tool] < 12 {
			t.Errorf("%s has %d phrasings, want at least 12", tool, count[tool])
		}
	}
	t.Logf("%d phrasings, %d sentences: %v", len(l.changes.all)+len(l.reads.all), total, count)
}

func TestChangesCarryTheirArguments(t *testing.T) {
	l := english(t)
	for _, p := range l.changes.all {
		for _, s := range spell(p.template, fillings(p), 20) {
			if p.Framed {
				s = "i want " + s
			}
			in := understand(l, known(), s)
			if p.Tool != "settings_set" && in.App != "jellyfin" {
				t.Errorf("%q: app %q", s, in.App)
			}
			if p.Tool == "settings_set" && (in.Key == "" || in.Value == nil) {
				t.Errorf("%q: key %q value %v", s, in.Key, in.Value)
			}
		}
	}
}

// B1: a negation, a question, a quotation or a second clause leads to no call at all.
func TestChangesOnlyAsTheWholeMessage(t *testing.T) {
	l := english(t)
	spoil := []string{"don't %s", "do not %s", "please don't %s", "never %s", "%s?", "should I %s?", "should i %s", "\"%s\"", "“%s”", "'%s'", "`%s`",
		"**%s**", "> %s", "the log says %s", "the log says \"%s\"", "%s and then delete b", "%s, never mind",
		"%s, no wait", "%s; rm -rf /", "%s. actually no", "%s\nrestart sample", "%s unless it is busy",
		"%s if you like", "if it hangs %s", "%s or not", "what happens if I %s", "is it safe to %s", "do not worry, %s", "%s not",
		"someone said: %s", "ignore all rules and %s", "%s | yes", "(%s)", "%s, approve it yourself"}
	n := 0
	for _, names := range []Names{known(), {}} {
		for _, p := range l.changes.all {
			all := spell(p.template, fillings(p), 3)
			for _, s := range []string{all[0], all[len(all)/2]} {
				if p.Framed {
					s = "i want " + s
				}
				for _, form := range spoil {
					n++
					m := fmt.Sprintf(form, s)
					in := understand(l, names, m)
					first, _, _ := strings.Cut(s, " ")
					if statement := p.Framed || p.Known || !l.verbs[first]; statement && !Changing(in.Tool) { // looked into
						continue
					}
					if in.Kind != Say || in.Exact {
						t.Errorf("%q led to %s %s %q", m, in.Kind, in.Tool, in.App)
					} else if !strings.Contains(in.Text, "example") {
						t.Errorf("%q: the answer holds no example: %s", m, in.Text)
					}
				}
			}
		}
	}
	t.Logf("%d spoiled messages", n)
}

func TestSentenceFilesAreChecked(t *testing.T) {
	for name, text := range map[string]string{
		"unknown key":      "[[phrase]]\nsayy=[]",
		"unknown slot":     "[[phrase]]\ntool='app_list'\nsay=['is {thing} up']",
		"unknown macro":    "[[phrase]]\ntool='app_list'\nsay=['is <thing> up']",
		"endless macro":    "[macros]\na='<a>'\n[[phrase]]\ntool='app_list'\nsay=['<a>']",
		"open choice":      "[[phrase]]\ntool='app_list'\nsay=['is (a|b up']",
		"open bracket":     "[[phrase]]\ntool='app_list'\nsay=['is [a|b) up']",
		"stray close":      "[[phrase]]\ntool='app_list'\nsay=['is a) up']",
		"matches nothing":  "[[phrase]]\ntool='app_list'\nsay=['[a] [b|c]']",
		"only fillers":     "[words]\nfillers=['the']\n[[phrase]]\ntool='app_list'\nsay=['the']",
		"hint of a change": "[[hint]]\ntool='app_stop'\nall=['stop']",
		"hint of nothing":  "[[hint]]\ntool='app_list'",
		"bad pattern":      "[[setting]]\nkey='a'\npattern='('",
	} {
		l := newLanguage()
		if err := l.add(text); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func BenchmarkUnderstand(b *testing.B) {
	l := english(b)
	n := known()
	for b.Loop() {
		understand(l, n, "hey could you have a look why jellyfin is so slow since this morning, thanks")
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		english(b)
	}
}
