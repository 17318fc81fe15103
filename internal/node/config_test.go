package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Section 3: unknown keys and bad values are refused by name; the environment wins over the file.
func TestLoadSettings(t *testing.T) {
	for _, tc := range []struct{ file, env, want string }{
		{"", "", ""},
		{"listen = \"127.0.0.1:9000\"\n[assistant]\nlocal_first = true\n", "", ""},
		{"lisen = \"x\"", "", `unknown key "lisen"`},
		{"[assistant]\nkey = \"x\"", "", `unknown key "assistant.key"`},
		{"listen = 5", "", "listen"},
		{"listen = \"nonsense\"", "", "listen:"},
		{"[assistant]\nbackend = \"gpt\"", "", "assistant.backend"},
		{"[assistant]\nbackend = \"openai\"", "", "base_url"},
		{"[assistant]\nbackend = \"claude\"", "", "needs model"},
		{"[assistant]\ndaily_budget_usd = -1", "", "daily_budget_usd"},
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
