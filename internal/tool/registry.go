// Package tool is the curated registry and the choke point: the one function by which the assistant reaches the node
// (T1–T14). It owns no data of the node; every tool names a row of the gate and can do no more than that row.
package tool

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fence"
	"atoll/internal/grant"
)

// Tool is one entry of the registry: what the model may ask for, and what the person is asked.
type Tool struct {
	Name        string
	Description string // for the model
	Schema      string // JSON Schema of the arguments, an object without additional properties
	Category    grant.Category
	Destructive bool
	Method      string // the row it dispatches to
	// Sentence is what a person confirms, written from the validated arguments alone (C6). Only for destructive tools.
	Sentence func(Args) string
	// Done is the same sentence once it was done, for the host's own list (T11). A destructive tool has both.
	Done func(Args) string
	// Allowable tools may be let pass for a time (C11).
	Allowable bool
}

// Args are validated, canonical arguments.
type Args map[string]jsontext.Value

// Shown is an argument as a person sees it: strings in quotation marks, the invisible made visible.
func (a Args) Shown(name string) string {
	raw, ok := a[name]
	if !ok {
		return ""
	}
	var s string
	if raw.Kind() == '"' && json.Unmarshal(raw, &s) == nil {
		shown, _ := fence.Visible(s)
		return `"` + strings.ReplaceAll(shown, `"`, "⟨U+0022⟩") + `"` // a quotation mark in it cannot end it
	}
	return string(raw)
}

// named is an argument as Shown gives it, without the quotation marks where it is one plain word.
func (a Args) named(name string) string {
	shown := a.Shown(name)
	if bare := strings.Trim(shown, `"`); fence.Word(bare).Plain() && bare != "" {
		return bare
	}
	return shown
}

const (
	noArgs  = `{"type":"object","properties":{},"additionalProperties":false}`
	appArgs = `{"type":"object","properties":{"app":{"type":"string","minLength":1,"maxLength":200,"description":"the app's name as app_list gives it"}},"required":["app"],"additionalProperties":false}`
)

// Registry is the hand-written list of tools (T3). Nothing is derived from the method table, and nothing is added
// without a change of SPEC section 4.
func Registry() []Tool {
	return []Tool{
		{Name: "system_disk_status", Category: grant.System, Method: "system.disk-status", Schema: noArgs,
			Description: "Shows how full each disk of the server is, and the percentage from which it warns."},
		{Name: "system_info", Category: grant.System, Method: "system.info", Schema: noArgs,
			Description: "Shows processor, memory, load, temperature, uptime and addresses of the server."},
		{Name: "app_list", Category: grant.Apps, Method: "apps.list", Schema: noArgs,
			Description: "Lists the apps on the server with their state, since when, and what they use."},
		{Name: "app_logs", Category: grant.Apps, Method: "apps.logs",
			Schema:      `{"type":"object","properties":{"app":{"type":"string","minLength":1,"maxLength":200,"description":"the app's name as app_list gives it"},"lines":{"type":"integer","minimum":1,"maximum":500,"description":"how many of the last lines"}},"required":["app"],"additionalProperties":false}`,
			Description: "Reads the last lines of an app's log. Use it to find out why an app stopped."},
		{Name: "content_list", Category: grant.Content, Method: "content.list",
			Schema:      `{"type":"object","properties":{"peer":{"type":"string","minLength":1,"maxLength":200,"description":"a peer whose catalogue to list; leave out for this node's own"},"prefix":{"type":"string","maxLength":1000,"description":"only paths that begin like this"}},"additionalProperties":false}`,
			Description: "Lists the shared content of this node, or what a peer last said it shares."},
		{Name: "files_list", Category: grant.Files, Method: "files.list",
			Schema:      `{"type":"object","properties":{"path":{"type":"string","maxLength":4096,"description":"a folder under one of the configured roots; \"/\" lists the roots"}},"required":["path"],"additionalProperties":false}`,
			Description: "Lists a folder of the server's files."},
		{Name: "mesh_status", Category: grant.Mesh, Method: "mesh.status", Schema: noArgs,
			Description: "Shows the other nodes this one knows and whether they are reachable."},
		{Name: "settings_get", Category: grant.Settings, Method: "settings.get",
			Schema:      `{"type":"object","properties":{"key":{"type":"string","minLength":1,"maxLength":100,"description":"one setting; leave out for all"}},"additionalProperties":false}`,
			Description: "Reads the node's settings."},
		{Name: "wallet_status", Category: grant.Wallet, Method: "wallet.status", Schema: noArgs,
			Description: "Shows the height, the sync and the balance of the Bitcoin node. It cannot move coins."},
		{Name: "app_start", Category: grant.Apps, Destructive: true, Method: "apps.start", Schema: appArgs, Allowable: true,
			Description: "Starts an app. A person confirms first.",
			Sentence:    func(a Args) string { return "Start the app " + a.Shown("app") },
			Done:        func(a Args) string { return "Started " + a.named("app") }},
		{Name: "app_stop", Category: grant.Apps, Destructive: true, Method: "apps.stop", Schema: appArgs,
			Description: "Stops an app. A person confirms first.",
			Sentence:    func(a Args) string { return "Stop the app " + a.Shown("app") },
			Done:        func(a Args) string { return "Stopped " + a.named("app") }},
		{Name: "app_restart", Category: grant.Apps, Destructive: true, Method: "apps.restart", Schema: appArgs, Allowable: true,
			Description: "Restarts an app, or starts it if it is stopped. A person confirms first.",
			Sentence:    func(a Args) string { return "Restart the app " + a.Shown("app") },
			Done:        func(a Args) string { return "Restarted " + a.named("app") }},
		{Name: "settings_set", Category: grant.Settings, Destructive: true, Method: "settings.set",
			Schema:      `{"type":"object","properties":{"key":{"type":"string","minLength":1,"maxLength":100,"description":"one of the settings that can be set: node.name, ui.theme, ui.language, disk.warn_percent"},"value":{"type":["string","integer","boolean"],"description":"the new value, of the setting's type"}},"required":["key","value"],"additionalProperties":false}`,
			Description: "Changes one setting. A person confirms first.",
			Sentence:    func(a Args) string { return fmt.Sprintf("Set %s to %s", a.Shown("key"), a.Shown("value")) },
			Done:        func(a Args) string { return fmt.Sprintf("Set %s to %s", a.named("key"), a.Shown("value")) }},
	}
}

// excluded are the words of authority that no tool's name, description, schema or method may hold (T4).
var excluded = [...]string{"seed phrase", "private key", "password", "secret", "token", "credential", "api key", "spend",
	"send payment", "transfer", "grant", "role", "user account", "factory reset", "wipe", "firmware", "shell", "exec", "ssh", "sudo"}

// ExcludedTerm returns the first excluded term that stands in the text as whole words, or "".
func ExcludedTerm(text string) string {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	padded := " " + strings.Join(words, " ") + " "
	for _, term := range excluded {
		if strings.Contains(padded, " "+term+" ") || strings.Contains(padded, " "+term+"s ") {
			return term
		}
	}
	return ""
}
