package node

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"atoll/internal/folder"
	"atoll/internal/mesh/link"
	"atoll/internal/mesh/radio"
)

// Settings is the operator's configuration: config.toml, over it the environment, over that the flags (SPEC section 3).
type Settings struct {
	Listen         string   `toml:"listen"`
	Insecure       bool     `toml:"insecure"`
	TLSCert        string   `toml:"tls_cert"`
	TLSKey         string   `toml:"tls_key"`
	Hosts          []string `toml:"hosts"`
	TrustedProxies []string `toml:"trusted_proxies"`
	Assistant      struct {
		Backend        string  `toml:"backend"`
		Model          string  `toml:"model"`
		BaseURL        string  `toml:"base_url"`
		LocalFirst     bool    `toml:"local_first"`
		DailyBudgetUSD float64 `toml:"daily_budget_usd"`
		// Prices are dollars for a million tokens, by model, over the built-in list.
		Prices map[string]PriceSetting `toml:"prices"`
	} `toml:"assistant"`
	Apps struct {
		Docker       string   `toml:"docker"`
		SystemdUnits []string `toml:"systemd_units"`
	} `toml:"apps"`
	Files struct {
		Roots []string `toml:"roots"`
	} `toml:"files"`
	Content struct {
		Dir string `toml:"dir"`
	} `toml:"content"`
	Wallet struct {
		URL        string `toml:"url"`
		User       string `toml:"user"`
		CookieFile string `toml:"cookie_file"`
	} `toml:"wallet"`
	Mesh struct {
		Enabled  bool     `toml:"enabled"`
		Listen   []string `toml:"listen"`
		Discover bool     `toml:"discover"`
		Relays   []string `toml:"relays"`
		Relay    bool     `toml:"relay"`
		// Assistant answers peers: "local", or "configured" for the owner's own backend.
		Assistant      string  `toml:"assistant"`
		DailyBudgetUSD float64 `toml:"daily_budget_usd"`
		QuotaGB        float64 `toml:"quota_gb"` // of downloads, in 10^9 bytes
		// Radio is a Meshtastic device's host:port; RadioNodes are who may ask over it, as "!a1b2c3d4" or "!a1b2c3d4=KEY".
		Radio      string   `toml:"radio"`
		RadioNodes []string `toml:"radio_nodes"`
	} `toml:"mesh"`
}

// PriceSetting is one model's prices in dollars for a million tokens.
type PriceSetting struct {
	In         float64 `toml:"in"`
	Out        float64 `toml:"out"`
	CacheRead  float64 `toml:"cache_read"`
	CacheWrite float64 `toml:"cache_write"`
}

// DefaultListen is where a node listens unless told otherwise.
const DefaultListen = "127.0.0.1:8420"

// DataDir picks the data directory: the flag, ATOLL_DATA_DIR, systemd's $STATE_DIRECTORY, $XDG_DATA_HOME/atoll,
// ~/.local/share/atoll.
func DataDir(flag string, env func(string) string) (string, error) {
	for _, dir := range []string{flag, env("ATOLL_DATA_DIR"), env("STATE_DIRECTORY")} {
		if dir != "" {
			return filepath.Abs(dir)
		}
	}
	if dir := env("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "atoll"), nil
	}
	home := env("HOME")
	if home == "" {
		return "", errors.New("no data directory: give --data-dir, or set ATOLL_DATA_DIR or HOME")
	}
	return filepath.Join(home, ".local", "share", "atoll"), nil
}

// LoadSettings reads config.toml in dir, if there is one, and the environment. Unknown keys are refused by name.
func LoadSettings(dir string, env []string) (Settings, error) {
	s := Settings{Listen: DefaultListen}
	s.Assistant.Backend, s.Apps.Docker = "local", "auto"
	s.Mesh.Discover, s.Mesh.Assistant, s.Mesh.QuotaGB = true, "local", 20
	path := filepath.Join(dir, "config.toml")
	raw, err := folder.ReadSmall(path, maxConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return s, fmt.Errorf("the configuration cannot be read; move it away, or make it a file that the node may read: %w", owned(dir, err))
	default:
		if err := s.decode(path, string(raw)); err != nil {
			return s, err
		}
	}
	if err := s.environment(env); err != nil {
		return s, err
	}
	return s, s.Check()
}

// maxConfig bounds config.toml, and a secret's file, in bytes.
const maxConfig = 1 << 20

// decode reads the file's text over what is set.
func (s *Settings) decode(path, text string) error {
	meta, err := toml.Decode(text, s)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if unknown := append(meta.Undecoded(), slices.DeleteFunc(meta.Keys(), spelled)...); len(unknown) > 0 {
		return fmt.Errorf("%s: unknown key %q", path, unknown[0].String())
	}
	return nil
}

// spelled reports whether a key is written as ours are. The decoder takes LISTEN for listen too, and of both any one; a
// model's name, under assistant.prices, is the operator's word.
func spelled(key toml.Key) bool {
	for i, part := range key {
		ours := !strings.ContainsFunc(part, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') })
		if model := i == 2 && key[1] == "prices"; !ours && !model {
			return false
		}
	}
	return true
}

// variables are the environment's names: the file's in capitals, with ATOLL_ before them.
func (s *Settings) variables() map[string]func(string) error {
	text := func(p *string) func(string) error { return func(v string) error { *p = v; return nil } }
	list := func(p *[]string) func(string) error {
		return func(v string) error {
			*p = strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' })
			return nil
		}
	}
	toggle := func(p *bool) func(string) error {
		return func(v string) (err error) { *p, err = strconv.ParseBool(v); return err }
	}
	number := func(p *float64) func(string) error {
		return func(v string) (err error) { *p, err = strconv.ParseFloat(v, 64); return err }
	}
	return map[string]func(string) error{
		"ATOLL_LISTEN": text(&s.Listen), "ATOLL_INSECURE": toggle(&s.Insecure), "ATOLL_TLS_CERT": text(&s.TLSCert),
		"ATOLL_TLS_KEY": text(&s.TLSKey), "ATOLL_HOSTS": list(&s.Hosts), "ATOLL_TRUSTED_PROXIES": list(&s.TrustedProxies),
		"ATOLL_ASSISTANT_BACKEND": text(&s.Assistant.Backend), "ATOLL_ASSISTANT_MODEL": text(&s.Assistant.Model),
		"ATOLL_ASSISTANT_BASE_URL": text(&s.Assistant.BaseURL), "ATOLL_ASSISTANT_LOCAL_FIRST": toggle(&s.Assistant.LocalFirst),
		"ATOLL_ASSISTANT_DAILY_BUDGET_USD": number(&s.Assistant.DailyBudgetUSD),
		"ATOLL_APPS_DOCKER":                text(&s.Apps.Docker), "ATOLL_APPS_SYSTEMD_UNITS": list(&s.Apps.SystemdUnits),
		"ATOLL_FILES_ROOTS": list(&s.Files.Roots), "ATOLL_CONTENT_DIR": text(&s.Content.Dir),
		"ATOLL_WALLET_URL": text(&s.Wallet.URL), "ATOLL_WALLET_USER": text(&s.Wallet.User),
		"ATOLL_WALLET_COOKIE_FILE": text(&s.Wallet.CookieFile), "ATOLL_MESH_ENABLED": toggle(&s.Mesh.Enabled),
		"ATOLL_MESH_LISTEN": list(&s.Mesh.Listen), "ATOLL_MESH_DISCOVER": toggle(&s.Mesh.Discover),
		"ATOLL_MESH_RELAYS": list(&s.Mesh.Relays), "ATOLL_MESH_RELAY": toggle(&s.Mesh.Relay), "ATOLL_MESH_ASSISTANT": text(&s.Mesh.Assistant),
		"ATOLL_MESH_DAILY_BUDGET_USD": number(&s.Mesh.DailyBudgetUSD), "ATOLL_MESH_QUOTA_GB": number(&s.Mesh.QuotaGB),
		"ATOLL_MESH_RADIO": text(&s.Mesh.Radio), "ATOLL_MESH_RADIO_NODES": list(&s.Mesh.RadioNodes),
	}
}

// elsewhere are variables of this name that other parts read.
var elsewhere = [...]string{"ATOLL_DATA_DIR", "ATOLL_ADDRESS", "ATOLL_SOCKET"}

func (s *Settings) environment(env []string) error {
	known := s.variables()
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "ATOLL_") || slices.Contains(elsewhere[:], name) {
			continue
		}
		set, ok := known[name]
		if !ok {
			return fmt.Errorf("unknown variable %s; there are %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if err := set(value); err != nil {
			return fmt.Errorf("%s: %q is not acceptable", name, value)
		}
	}
	return nil
}

// Check refuses what could not work, naming the key.
func (s *Settings) Check() error {
	if _, _, err := net.SplitHostPort(s.Listen); err != nil {
		return fmt.Errorf("listen: %q is not host:port", s.Listen)
	}
	if (s.TLSCert == "") != (s.TLSKey == "") {
		return errors.New("tls_cert and tls_key go together")
	}
	if !slices.Contains([]string{"local", "claude", "openai"}, s.Assistant.Backend) {
		return fmt.Errorf(`assistant.backend: %q is none of "local", "claude", "openai"`, s.Assistant.Backend)
	}
	if s.Assistant.Backend == "openai" && (s.Assistant.BaseURL == "" || s.Assistant.Model == "") {
		return errors.New(`assistant: backend "openai" needs base_url (ending in /v1) and model`)
	}
	if s.Assistant.Backend == "claude" && s.Assistant.Model == "" {
		return errors.New(`assistant: backend "claude" needs model`)
	}
	if !budgetable(s.Assistant.DailyBudgetUSD) {
		return fmt.Errorf("assistant.daily_budget_usd: %v is none; give dollars a day, or 0 for no budget", s.Assistant.DailyBudgetUSD)
	}
	for _, r := range s.Files.Roots {
		if !filepath.IsAbs(r) {
			return fmt.Errorf("files.roots: %q is not a full path", r)
		}
	}
	if s.Content.Dir != "" && !filepath.IsAbs(s.Content.Dir) {
		return fmt.Errorf("content.dir: %q is not a full path", s.Content.Dir)
	}
	if d := s.Apps.Docker; d != "auto" && d != "off" && !strings.HasPrefix(d, "unix:///") {
		return fmt.Errorf(`apps.docker: %q is none of "auto", "off", "unix:///…"`, d)
	}
	return s.checkMesh()
}

// maxBudgetUSD keeps a budget countable; minBudgetUSD is the smallest part that is counted.
const (
	maxBudgetUSD = 1e9
	minBudgetUSD = 1e-6
)

// budgetable reports whether a budget can be kept. TOML knows nan, which is neither below nor above anything, and would be
// no budget at all.
func budgetable(usd float64) bool { return usd == 0 || usd >= minBudgetUSD && usd <= maxBudgetUSD }

func (s *Settings) checkMesh() error {
	m := &s.Mesh
	switch {
	case m.Assistant != "local" && m.Assistant != "configured":
		return fmt.Errorf(`mesh.assistant: %q is none of "local", "configured"`, m.Assistant)
	case !budgetable(m.DailyBudgetUSD):
		return fmt.Errorf("mesh.daily_budget_usd: %v is none; give dollars a day, or 0 for no budget", m.DailyBudgetUSD)
	case !(m.QuotaGB > 0 && m.QuotaGB <= 1e6):
		return errors.New("mesh.quota_gb: must be above zero, and at most a million")
	case m.Radio == "" && len(m.RadioNodes) > 0:
		return errors.New("mesh.radio_nodes: needs mesh.radio, the device's host:port")
	}
	for key, list := range map[string][]string{"mesh.listen": m.Listen, "mesh.relays": m.Relays} {
		for _, a := range list {
			if err := link.CheckAddr(a); err != nil {
				return fmt.Errorf("%s: %q is no address like /ip4/0.0.0.0/tcp/8421: %w", key, a, err)
			}
		}
	}
	for _, a := range m.Relays {
		if !strings.Contains(a, "/p2p/") {
			return fmt.Errorf("mesh.relays: %q lacks the relay's key; it ends in /p2p/12D3KooW…", a)
		}
	}
	for _, n := range m.RadioNodes {
		if _, err := radio.ParseListed(n); err != nil {
			return fmt.Errorf("mesh.radio_nodes: %w", err)
		}
	}
	if m.Radio != "" {
		if _, _, err := net.SplitHostPort(m.Radio); err != nil {
			return fmt.Errorf("mesh.radio: %q is not host:port", m.Radio)
		}
	}
	return nil
}

// secretFile reads a secret that must be nobody else's to read. A missing file is no secret and no error.
func secretFile(dir, name string) (string, error) {
	path := filepath.Join(dir, "secrets", name)
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s can be read by others: chmod 600 it", path)
	}
	raw, err := folder.ReadSmall(path, maxConfig)
	if err != nil {
		return "", fmt.Errorf("%s is no secret that can be read; move it away, or make it a file of the node's own: %w", path, err)
	}
	return strings.TrimSpace(string(raw)), err
}
