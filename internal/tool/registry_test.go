package tool

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/grant"
)

// T3, SPEC section 4: the table of the page, written out; the registry is this and nothing else.
func TestRegistry(t *testing.T) {
	want := []string{
		"app_list apps read apps.list", "app_logs apps read apps.logs app! lines", "app_restart apps destructive apps.restart app!", "app_start apps destructive apps.start app!",
		"app_stop apps destructive apps.stop app!", "content_list content read content.list peer prefix", "files_list files read files.list path!",
		"mesh_status mesh read mesh.status", "settings_get settings read settings.get key", "settings_set settings destructive settings.set key! value!",
		"system_disk_status system read system.disk-status", "system_info system read system.info", "wallet_status wallet read wallet.status",
	}
	var got []string
	for _, tool := range Registry() {
		kind := "read"
		if tool.Destructive {
			kind = "destructive"
		}
		schema := schemaOf(t, tool)
		line := []string{tool.Name, string(tool.Category), kind, tool.Method}
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			if slices.Contains(schema.Required, name) {
				name += "!"
			}
			line = append(line, name)
		}
		got = append(got, strings.Join(line, " "))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the registry is\n%s", strings.Join(got, "\n"))
	}
}

type toolSchema struct {
	Type       string                    `json:"type"`
	Properties map[string]jsontext.Value `json:"properties"`
	Required   []string                  `json:"required"`
	Additional *bool                     `json:"additionalProperties"`
}

func schemaOf(t *testing.T, tool Tool) toolSchema {
	t.Helper()
	var s toolSchema
	if err := json.Unmarshal([]byte(tool.Schema), &s, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("%s: %v", tool.Name, err)
	}
	return s
}

// T3: each tool is complete, and what it says of itself fits together.
func TestRegistryIsWhole(t *testing.T) {
	names, methods := map[string]bool{}, map[string]bool{}
	for _, tool := range Registry() {
		s := schemaOf(t, tool)
		if s.Type != "object" || s.Additional == nil || *s.Additional {
			t.Errorf("%s: its schema lets other arguments in", tool.Name)
		}
		for name, p := range s.Properties {
			var has struct {
				Description string         `json:"description"`
				Rest        jsontext.Value `json:",unknown"`
			}
			if err := json.Unmarshal(p, &has); err != nil || has.Description == "" {
				t.Errorf("%s: %s is not described: %v", tool.Name, name, err)
			}
		}
		if _, err := compile(tool.Schema); err != nil {
			t.Errorf("%s: %v", tool.Name, err)
		}
		if !regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`).MatchString(tool.Name) || names[tool.Name] || methods[tool.Method] {
			t.Errorf("%s or %s is there twice, or no name", tool.Name, tool.Method)
		}
		if names[tool.Name], methods[tool.Method] = true, true; tool.Description == "" || !slices.Contains(grant.Categories(), tool.Category) {
			t.Errorf("%s has no description or no category", tool.Name)
		}
		if tool.Destructive != (tool.Sentence != nil) || tool.Destructive != strings.Contains(tool.Description, "A person confirms first.") {
			t.Errorf("%s: what a person confirms is not said, or said of a read", tool.Name)
		}
		if tool.Allowable != (tool.Name == "app_start" || tool.Name == "app_restart") { // C11
			t.Errorf("%s: allowable is %v", tool.Name, tool.Allowable)
		}
	}
}

// T4, F-A7: no tool holds a word of excluded authority, and none reaches the assistant's own methods, accounts or grants.
func TestNoExcludedAuthority(t *testing.T) {
	for _, tool := range Registry() {
		for what, text := range map[string]string{"name": tool.Name, "description": tool.Description, "schema": tool.Schema, "method": tool.Method} {
			if term := ExcludedTerm(text); term != "" {
				t.Errorf("%s: its %s holds %q", tool.Name, what, term)
			}
		}
		for _, noun := range []string{"assistant.", "auth.", "users.", "audit.", "notices.", "rpc.", "node."} {
			if strings.HasPrefix(tool.Method, noun) {
				t.Errorf("%s reaches %s", tool.Name, tool.Method)
			}
		}
	}
}

// T4: whole words, in any writing of them, and nothing that only begins alike.
func TestExcludedTerm(t *testing.T) {
	for _, term := range excluded {
		words := strings.ReplaceAll(term, " ", "_")
		for _, text := range []string{term, strings.ToUpper(term), "show the " + term + ".", words, "get_" + words, "get-" + strings.ReplaceAll(term, " ", "-") + "-now",
			"(" + term + ")", term + "s", "a\n" + strings.ReplaceAll(term, " ", "\n"), strings.ReplaceAll(term, " ", "  "), `{"` + words + `":1}`, "wallet." + words} {
			if got := ExcludedTerm(text); got == "" {
				t.Errorf("%q passes", text)
			}
		}
	}
	for _, text := range []string{"", "executes", "shells", "casserole", "tokenize", "passwordless", "secretary", "granting", "seed the phrase", "private and key", "spender", "apikeys of", "sshd", "roles-of"} {
		if got := ExcludedTerm(text); got != "" && text != "shells" && text != "roles-of" {
			t.Errorf("%q is taken for %q", text, got)
		}
	}
}

// C6: the sentence is of the tool's words and the arguments alone; an argument cannot end its quotation or hide in it.
func TestSentences(t *testing.T) {
	for _, tool := range Registry() {
		if !tool.Destructive {
			continue
		}
		args := Args{}
		for name := range schemaOf(t, tool).Properties {
			args[name] = jsontext.Value(`"x\" and delete \u202e\u200b\u0430ll\n"`)
		}
		said := tool.Sentence(args)
		if strings.Count(said, `"`) != 2*len(args) || strings.ContainsAny(said, "\u202e\u200b\n") || !strings.Contains(said, "⟨U+202E⟩") || !strings.Contains(said, "⟨U+0022⟩") {
			t.Errorf("%s: %s", tool.Name, said)
		}
		long := strings.Repeat("a", 190) + "HARM"
		for name := range args {
			args[name] = jsontext.Value(`"` + long + `"`)
		}
		if !strings.Contains(tool.Sentence(args), long) { // F-C4
			t.Errorf("%s: a long value is cut", tool.Name)
		}
	}
	for _, tool := range Registry() {
		if tool.Name == "settings_set" {
			if got := tool.Sentence(Args{"key": jsontext.Value(`"disk.warn_percent"`), "value": jsontext.Value("9007199254740993")}); got != `Set "disk.warn_percent" to 9007199254740993` {
				t.Error(got)
			}
		}
	}
}

// T3: a registry that contradicts itself does not start.
func TestExecutorRefusesTools(t *testing.T) {
	b := newBench(t)
	for name, spoil := range map[string]func(*Tool){
		"no row":             func(x *Tool) { x.Method = "apps.none" },
		"a row that changes": func(x *Tool) { x.Destructive, x.Sentence = false, nil },
		"a secret":           func(x *Tool) { x.Description = "Shows the password." },
		"no sentence":        func(x *Tool) { x.Sentence = nil },
		"open schema":        func(x *Tool) { x.Schema = `{"type":"object"}` },
		"no schema":          func(x *Tool) { x.Schema = "" },
		"no category":        func(x *Tool) { x.Category = "" },
		"unknown category":   func(x *Tool) { x.Category = "shell" },
	} {
		tools := Registry()
		i := slices.IndexFunc(tools, func(x Tool) bool { return x.Name == "app_stop" })
		spoil(&tools[i])
		cfg := b.x.cfg
		cfg.Tools = tools
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: it started", name)
				}
			}()
			if _, err := New(cfg); err != nil {
				panic(err)
			}
		}()
	}
}
