package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/go-json-experiment/json"

	"atoll/internal/caller"
	"atoll/internal/confirm"
	"atoll/internal/fault"
	"atoll/internal/grant"
	"atoll/internal/rpc"
	"atoll/internal/tool"
)

type contract struct {
	OpenMethods       []string            `toml:"open_methods"`
	Categories        []grant.Category    `toml:"categories"`
	PrivateCategories []grant.Category    `toml:"private_categories"`
	Settable          []string            `toml:"settable"`
	NeverSettings     []string            `toml:"never_settings"`
	Times             map[string]int      `toml:"times"`
	Roles             map[string][]string `toml:"roles"`
	Rates             map[string][]string `toml:"rates"`
	Tools             map[string]string   `toml:"tools"`
	Constants         map[string]string   `toml:"constants"`
}

func readContract(t *testing.T) (c contract) {
	t.Helper()
	meta, err := toml.DecodeFile("testdata/contract.toml", &c)
	if err != nil || len(meta.Undecoded()) > 0 {
		t.Fatal(err, meta.Undecoded())
	}
	return c
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// G1, G2, section 3: who may call what, with what effect and by which doors.
func TestRoleTable(t *testing.T) {
	c := readContract(t)
	n, err := open(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	got := map[string][]string{}
	for _, name := range n.gate.Names() {
		row, _ := n.gate.Row(name)
		line := name + " " + row.Effect.String()
		if row.Doors&rpc.People == 0 {
			t.Errorf("%s is not for people: no handler exists for the assistant alone (G3)", name)
		}
		if row.Doors&rpc.Tools != 0 {
			line += " tools"
		}
		if row.Doors&rpc.Peers != 0 {
			line += " peers"
		}
		if row.Doors&rpc.Asked != 0 {
			line += " asked"
		}
		got[row.Role.String()] = append(got[row.Role.String()], line)
	}
	for _, role := range slices.Sorted(maps.Keys(got)) {
		same(t, "methods from "+role, got[role], c.Roles[role])
	}
	same(t, "methods without a session", rpc.OpenMethods(), c.OpenMethods)
	for _, name := range n.rooms.Names() {
		if strings.HasPrefix(name, "assistant.") {
			t.Errorf("tools are bound to a gate that holds %s", name)
		}
	}
	for name, want := range c.Rates {
		row, _ := n.gate.Row(name)
		var rates []string
		for _, r := range row.Rates {
			soft := ""
			if r.Soft > 0 {
				soft = fmt.Sprintf("(%d)", r.Soft)
			}
			rates = append(rates, fmt.Sprintf("%d%s/%d %s", r.Max, soft, r.Window/time.Second, [...]string{"session", "account", "address"}[r.By]))
		}
		same(t, "rates of "+name, rates, want)
	}
}

// T3, T4, section 4: the thirteen tools and nothing else.
func TestToolTable(t *testing.T) {
	c := readContract(t)
	got := map[string]string{}
	for _, tl := range tool.Registry() {
		effect := "read"
		if tl.Destructive {
			effect = "destroy"
		}
		got[tl.Name] = string(tl.Category) + " " + effect + " " + tl.Method
		if tl.Allowable != (tl.Name == "app_start" || tl.Name == "app_restart") {
			t.Errorf("%s: wrong about standing permissions (C11)", tl.Name)
		}
	}
	if !maps.Equal(got, c.Tools) || len(got) != 13 {
		t.Errorf("got %v", got)
	}
	if !slices.Equal(grant.Categories(), c.Categories) {
		t.Errorf("categories %v", grant.Categories())
	}
	for _, cat := range grant.Categories() {
		if cat.Private() != slices.Contains(c.PrivateCategories, cat) {
			t.Errorf("%s: wrong about what reaches the disk (H3)", cat)
		}
	}
}

// T5: what can be set, and what is on neither list, by name.
func TestSettingsLists(t *testing.T) {
	c := readContract(t)
	n, err := open(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	owner := caller.Operator(1, "ada", caller.Owner, "s", "")
	result, err := n.gate.Call(t.Context(), owner, rpc.People, "settings.get", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := rpc.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Settings map[string]struct {
			Settable bool `json:"settable"`
		} `json:"settings"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	var settable []string
	for key, s := range list.Settings {
		if s.Settable {
			settable = append(settable, key)
		}
		for _, word := range c.NeverSettings {
			if strings.Contains(key, word) {
				t.Errorf("%s is readable", key)
			}
		}
	}
	same(t, "settable", settable, c.Settable)
	for _, key := range []string{"assistant.base_url", "listen", "assistant.mode", "secrets.claude-api-key", "grants.apps", "node.version"} {
		_, err := n.rooms.Call(t.Context(), owner, rpc.Tools, "settings.set", []byte(`{"key":"`+key+`","value":"x"}`), nil)
		if !fault.Is(err, fault.Rule) {
			t.Errorf("settings.set %s: %v", key, err)
		}
	}
}

// C9: one chain, each shorter than the one that waits for it.
func TestTimes(t *testing.T) {
	c := readContract(t)
	chain := []time.Duration{confirm.PendingTime, confirm.TurnTime, confirm.ClientTime, confirm.FrameTime}
	for i, name := range []string{"pending", "turn", "client", "frame"} {
		if chain[i] != time.Duration(c.Times[name])*time.Second || i > 0 && chain[i-1]+confirm.TurnMargin > chain[i] {
			t.Errorf("%s is %s", name, chain[i])
		}
	}
}
