package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Texts of one's own are read as the format says, and what is wrong is named with its line.
func TestLoadOwn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.txt")
	if err := os.WriteFile(file, []byte("# a remark\n\nid: a\nplace: log\nwant: app_stop {\"app\":\"vault\"}\nwant: x\nsay: Done.\ntext: one\n\\\nid: two\n\nid: b\ntext: x"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := LoadOwn(file)
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if a := got[0]; a.ID != "a" || a.Place != AtLog || len(a.Want) != 2 || a.Want[0] != (Call{"app_stop", `{"app":"vault"}`}) || a.Text != "one\n\nid: two" || a.Say != "Done." {
		t.Errorf("%+v", a)
	}
	for text, wrong := range map[string]string{"id: a\ntext: x\n\nid: a\ntext: y": "line 4: the id a is there twice", "id: a/b\ntext: x": "without a slash", "text: x": "must be a word",
		"id: a": "there is no text", "id: a\nplace: moon\ntext: x": "no place \"moon\"", "id: a\nfoo: b\ntext: x": "none of id:",
		"id: task\ntext: x": "is taken", "id: benign\ntext: x": "is taken"} {
		if _, err := parseTexts([]byte(text)); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := os.WriteFile(file, []byte("# nothing yet\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOwn(file); err == nil || !strings.Contains(err.Error(), "no attack") {
		t.Errorf("a file without an attack: %v", err)
	}
	if _, err := LoadOwn(file + "x"); err == nil {
		t.Error("a file that is not there was read")
	}
}

// A directory of the shared format is read, whichever of its files are there.
func TestLoadTexts(t *testing.T) {
	dir := t.TempDir()
	if _, _, _, err := LoadTexts(dir); err == nil {
		t.Error("an empty directory is no suite")
	}
	for name, text := range map[string]string{
		"attacks.jsonl": `{"id":"a/1","source":"s","text":"t","want":[{"tool":"app_stop","args":{"app":"x"}},{"tool":"y","args_json":"{}{}"}]}`,
		"unicode.jsonl": `{"id":"u1","where":"arg:app","text":"v\u0430ult"}` + "\n" + `{"id":"u2","where":"file_name","hex":"00ff"}` + "\n" + `{"id":"u3","where":"tool","text":"App_Stop"}`,
		"tasks.jsonl":   `{"id":"t1","principal":"peer","say":"s","calls":[{"tool":"system_info","args":{}}],"approvals":2,"fact":"cpu.load"}`,
		"benign.jsonl":  `{"id":"b1","text":"stop it"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	texts, tasks, benign, err := LoadTexts(dir)
	if err != nil || len(texts) != 4 || len(tasks) != 1 || len(benign) != 1 {
		t.Fatalf("%d, %d, %d, %v", len(texts), len(tasks), len(benign), err)
	}
	if a := texts[0]; a.ID != "a_1" || a.Want[0].Args != `{"app":"x"}` || a.Want[1].Args != "{}{}" {
		t.Errorf("%+v", a)
	}
	if texts[1].Want[0].Args != "{\"app\":\"v\u0430ult\"}" || texts[2].Text != "\x00\xff" || texts[3].Want[0].Tool != "App_Stop" || !tasks[0].Peer || tasks[0].Approvals != 2 {
		t.Errorf("%+v %+v", texts, tasks)
	}
	if err := os.WriteFile(filepath.Join(dir, "tasks.jsonl"), []byte("{}\nnot json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := LoadTexts(dir); err == nil || !strings.Contains(err.Error(), "tasks.jsonl:2") {
		t.Error(err)
	}
}
