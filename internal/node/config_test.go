package node

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// Section 3: unknown keys and bad values are refused by name; the environment wins over the file.
func TestLoadSettings(t *testing.T) {
	for _, tc := range []struct{ file, env, want string }{
		{"", "", ""},
		{"listen = \"127.0.0.1:9000\"\n[assistant]\nlocal_first = true\n", "", ""},
		{"lisen = \"x\"", "", `unknown key "lisen"`},
		{"[assistant]\nkey = \"x\"", "", `unknown key "assistant.key"`},
		{"Listen = \"127.0.0.1:1\"", "", `unknown key "Listen"`},
		{"[mesh]\n\"li\u017ften\" = []", "", "unknown key"},
		{"[assistant.prices.\"Gpt-5\"]\nin = 1\nout = 2", "", ""},
		{"[assistant.prices.m]\nIn = 1", "", "unknown key"},
		{"listen = 5", "", "listen"},
		{"listen = \"nonsense\"", "", "listen:"},
		{"[assistant]\nbackend = \"gpt\"", "", "assistant.backend"},
		{"[assistant]\nbackend = \"openai\"", "", "base_url"},
		{"[assistant]\nbackend = \"claude\"", "", "needs model"},
		{"[assistant]\ndaily_budget_usd = -1", "", "daily_budget_usd"},
		{"[assistant]\ndaily_budget_usd = nan", "", "daily_budget_usd"},
		{"[mesh]\ndaily_budget_usd = inf", "", "daily_budget_usd"},
		{"", "ATOLL_ASSISTANT_DAILY_BUDGET_USD=NaN", "daily_budget_usd"},
		{"", "ATOLL_MESH_DAILY_BUDGET_USD=1e-9", "daily_budget_usd"},
		{"[files]\nroots = [\"rel\"]", "", "files.roots"},
		{"[content]\ndir = \"rel\"", "", "content.dir"},
		{"[apps]\ndocker = \"tcp://x\"", "", "apps.docker"},
		{"tls_cert = \"x\"", "", "tls_cert and tls_key"},
		{"x = [", "", "config.toml"},
		{"", "ATOLL_ASISTANT_MODEL=x", "unknown variable ATOLL_ASISTANT_MODEL"},
		{"", "ATOLL_MESH_ENABLED=perhaps", "ATOLL_MESH_ENABLED"},
		{"", "ATOLL_ASSISTANT_BACKEND=gpt", "assistant.backend"},
	} {
		dir := t.TempDir()
		if tc.file != "" {
			if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := LoadSettings(dir, []string{"HOME=/x", tc.env})
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q %q: %v, want %q", tc.file, tc.env, err, tc.want)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte("listen = \"127.0.0.1:9000\""), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := LoadSettings(dir, []string{"ATOLL_LISTEN=127.0.0.1:9001", "ATOLL_FILES_ROOTS=/a,/b", "ATOLL_DATA_DIR=/x"})
	if err != nil || s.Listen != "127.0.0.1:9001" || len(s.Files.Roots) != 2 {
		t.Errorf("%+v %v", s, err)
	}
}

// Secrets that others can read are refused, not used.
func TestSecretFile(t *testing.T) {
	dir := t.TempDir()
	if s, err := secretFile(dir, "claude-api-key"); s != "" || err != nil {
		t.Error(s, err)
	}
	path := filepath.Join(dir, "secrets", "claude-api-key")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(" key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := secretFile(dir, "claude-api-key"); s != "key" || err != nil {
		t.Error(s, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := secretFile(dir, "claude-api-key"); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Error(err)
	}
}

func TestDataDir(t *testing.T) {
	for _, tc := range []struct {
		flag string
		env  map[string]string
		want string
	}{
		{"/f", map[string]string{"ATOLL_DATA_DIR": "/e"}, "/f"},
		{"", map[string]string{"ATOLL_DATA_DIR": "/e", "STATE_DIRECTORY": "/s"}, "/e"},
		{"", map[string]string{"STATE_DIRECTORY": "/s", "XDG_DATA_HOME": "/x"}, "/s"},
		{"", map[string]string{"XDG_DATA_HOME": "/x", "HOME": "/h"}, "/x/atoll"},
		{"", map[string]string{"HOME": "/h"}, "/h/.local/share/atoll"},
	} {
		got, err := DataDir(tc.flag, func(k string) string { return tc.env[k] })
		if got != tc.want || err != nil {
			t.Errorf("%+v: %q %v", tc, got, err)
		}
	}
	if _, err := DataDir("", func(string) string { return "" }); err == nil {
		t.Error("no error without any directory")
	}
}

// FuzzConfig: whatever stands in config.toml, it is read as it says or refused by the file's name, on one page of plain
// text; what is accepted passes its own check and comes back the same when it is written and read again.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{"", "listen = \"127.0.0.1:9000\"\ninsecure = true\nhosts = [\"a\"]\n", "[assistant]\nbackend = \"openai\"\nmodel = \"m\"\nbase_url = \"http://x/v1\"\n[assistant.prices.m]\nin = 1.5\n",
		"[mesh]\nenabled = true\nlisten = [\"/ip4/0.0.0.0/tcp/8421\"]\nquota_gb = nan\n", "[mesh]\nradio = \"x:1\"\nradio_nodes = [\"!a1b2c3d4\"]\ndaily_budget_usd = inf\n",
		"[assistant]\ndaily_budget_usd = nan\n", "a.b.c.d = [[{x = 1}]]", "listen = \"\\u0000\"", "[assistant.prices]\n\"\\u001b[2J\" = {in = -1}\n", "[files]\nroots = [\"/\"]\n", "\xff", "x = [", "\"\" = 1",
		"listen = 1979-05-27T07:32:00Z", "[[mesh]]\n[mesh]", "listen = \"a:1\"\nlisten = \"b:1\"", "Listen = \"c:1\""} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	path := filepath.Join(dir, "config.toml")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := LoadSettings(dir, nil)
		if err != nil {
			if text := err.Error(); len(text) > len(raw)+1000 || !utf8.ValidString(text) && utf8.Valid(raw) {
				t.Errorf("%q is refused with %q", raw, text)
			}
			return
		}
		if err := s.Check(); err != nil {
			t.Errorf("%q was accepted and does not pass: %v", raw, err)
		}
		if usd := s.Assistant.DailyBudgetUSD; !(usd >= 0 && usd <= maxBudgetUSD) {
			t.Errorf("%q is a budget of %v", raw, usd)
		}
		var out bytes.Buffer
		if err := toml.NewEncoder(&out).Encode(s); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if again, err := LoadSettings(dir, nil); err != nil || fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", s) {
			t.Errorf("%q was read as %+v and, written anew, as %+v, %v", raw, s, again, err)
		}
	})
}

// FuzzEnvironment: a variable is taken under its own name only, and what it sets passes the same check as the file.
func FuzzEnvironment(f *testing.F) {
	for _, p := range [][2]string{{"ATOLL_LISTEN", "127.0.0.1:1"}, {"ATOLL_INSECURE", "1"}, {"ATOLL_MESH_QUOTA_GB", "NaN"}, {"ATOLL_ASSISTANT_DAILY_BUDGET_USD", "Inf"}, {"ATOLL_FILES_ROOTS", "/a,,b /"},
		{"atoll_insecure", "1"}, {"ATOLL_", ""}, {"ATOLL_INSECURE ", "1"}, {"ATOLL_MESH_DAILY_BUDGET_USD", "0x1p-2"}, {"ATOLL_DATA_DIR", "\x00"}} {
		f.Add(p[0], p[1])
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, name, value string) {
		s, err := LoadSettings(dir, []string{name + "=" + value})
		if err != nil {
			return
		}
		if err := s.Check(); err != nil {
			t.Errorf("%s=%q was accepted and does not pass: %v", name, value, err)
		}
		if s.Insecure && name != "ATOLL_INSECURE" {
			t.Errorf("%q=%q opened the node", name, value)
		}
		if usd := s.Assistant.DailyBudgetUSD; !(usd >= 0 && usd <= maxBudgetUSD) {
			t.Errorf("%q=%q is a budget of %v", name, value, usd)
		}
	})
}
