package local

import (
	"fmt"
	"strings"

	"atoll/internal/fault"
	"atoll/internal/model/local/sentence"
)

// toolText is how a tool is spoken of.
type toolText struct {
	name    string
	can     string // "I can …"
	look    string // "I am not allowed to …"
	example string // %s is an app
}

// toolTexts lists the tools in the order people see.
func toolTexts() []toolText {
	return []toolText{
		{"system_disk_status", "see how full the disks are", "look at the disks", "how full is the disk?"},
		{"system_info", "see processor, memory, temperature and uptime", "look at the system's figures", "how busy is the node?"},
		{"app_list", "list the apps and their state", "look at the apps", "is %s running?"},
		{"app_logs", "read an app's log", "look at the apps", "why did %s stop?"},
		{"app_start", "start an app", "start apps", "start %s"},
		{"app_stop", "stop an app", "stop apps", "stop %s"},
		{"app_restart", "restart an app", "restart apps", "restart %s"},
		{"content_list", "list the shared content", "look at the shared content", "what do I share?"},
		{"files_list", "list files", "look at the files", "what files are there?"},
		{"mesh_status", "see the other nodes", "look at the mesh", "which peers are online?"},
		{"settings_get", "read the settings", "look at the settings", "what is the node called?"},
		{"settings_set", "change a setting", "change settings", "set node.name to harbour"},
		{"wallet_status", "see the Bitcoin node's status", "look at the wallet", "is the bitcoin node synced?"},
	}
}

func textOf(tool string) toolText {
	for _, t := range toolTexts() {
		if t.name == tool {
			return t
		}
	}
	return toolText{name: tool, can: "use " + sentence.Clean(tool, 40), look: "use " + sentence.Clean(tool, 40)}
}

func (p plan) example(t toolText) string {
	if !strings.Contains(t.example, "%s") {
		return t.example
	}
	app := "jellyfin"
	if len(p.names.Apps) > 0 {
		app = sentence.Clean(p.names.Apps[0], 80)
	}
	return strings.Replace(t.example, "%s", app, 1)
}

// help says what is granted, with an example for each.
func (p plan) help() string {
	var b strings.Builder
	for _, t := range toolTexts() {
		if p.offered(t.name) {
			fmt.Fprintf(&b, "\n- %s: %s", t.can, p.example(t))
		}
	}
	if b.Len() == 0 {
		return "Nothing on this node is open to me now, so I can look at nothing and change nothing. " +
			"You can ask all the same, for example: how full is the disk?"
	}
	text := "I can:" + b.String()
	for _, t := range toolTexts() {
		if sentence.Changing(t.name) && p.offered(t.name) {
			return text + "\nA change needs the whole message to be that one request, and a person confirms it first."
		}
	}
	return text
}

// unknown says so, with three sentences that would work.
func (p plan) unknown() string {
	var granted, general []string
	for _, t := range toolTexts() {
		switch {
		case p.offered(t.name):
			granted = append(granted, p.example(t))
		case t.name == "system_disk_status" || t.name == "app_list" || t.name == "app_logs":
			general = append(general, p.example(t))
		}
	}
	return "I did not understand that. I know plain sentences about this node, such as:\n- " +
		strings.Join(append(granted, general...)[:3], "\n- ")
}

// refused says in plain words why a call gave nothing.
func (p plan) refused(d done) string {
	t := textOf(d.name)
	nothing := ""
	if sentence.Changing(d.name) {
		nothing = " Nothing was changed."
	}
	switch d.code {
	case fault.NotGranted, fault.Forbidden:
		return "I am not allowed to " + t.look + " here." + nothing
	case fault.ReadOnly:
		return "I may only read now, not change anything." + nothing
	case fault.Off:
		return "The assistant is switched off." + nothing
	case fault.Declined:
		return "That was declined: " + p.action(d) + ". Nothing was changed."
	case fault.Expired:
		return "Nobody answered in time: " + p.action(d) + ". Nothing was changed. You can ask for it again."
	case fault.Cancelled:
		return "That was cancelled before it was decided: " + p.action(d) + "." + nothing
	case fault.NobodyToAsk:
		return "There is nobody here who could confirm that: " + p.action(d) + ". Nothing was changed."
	case fault.Dropped:
		return "The node was restarted while the question stood: " + p.action(d) + ". Nothing was changed."
	case fault.Changed:
		return "Between the question and the answer something changed, so it was not done: " + p.action(d) + "." + quoted(d.text)
	case fault.OutcomeUnknown:
		return "It was begun, but its outcome was not seen: " + p.action(d) + ". Look at the state before you ask for it again."
	case fault.RateLimited:
		return "That was asked too often. Please try again later." + nothing
	case fault.TooManyCalls, fault.Loop:
		return "That was too much for one message." + nothing
	case fault.NotConfigured:
		return "That part of the node is not set up." + quoted(d.text)
	case fault.Unavailable:
		return "That part of the node cannot be reached now." + quoted(d.text)
	case fault.InvalidArgs:
		return "The node did not take that." + nothing + " It says:" + quoted(d.text)
	case fault.Rule, fault.NotFound:
		return "That is not possible." + nothing + " The node says:" + quoted(d.text)
	}
	return "That did not work: " + p.action(d) + ". The node says:" + quoted(d.text)
}

// action names what was asked for, from this backend's own intent.
func (p plan) action(d done) string {
	switch d.name {
	case "app_start", "app_stop", "app_restart":
		return strings.TrimPrefix(d.name, "app_") + " " + sentence.Clean(p.App, 80)
	case "settings_set":
		return fmt.Sprintf("set %s to %s", sentence.Clean(p.Key, 80), sentence.Clean(fmt.Sprint(p.Value), 80))
	}
	return textOf(d.name).look
}

// quoted sets somebody else's words apart, line by line.
func quoted(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && len(lines) < 12 {
			lines = append(lines, sentence.Clean(line, 400))
		}
	}
	return indented(lines)
}

// indented writes lines of data, each on its own line behind four spaces.
func indented(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return "\n    " + strings.Join(lines, "\n    ")
}
