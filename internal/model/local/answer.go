package local

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/model/local/sentence"
)

// maxRows bounds the entries of a list in an answer.
const maxRows = 40

// answer words a successful result. It says nothing that the result does not say.
func (p plan) answer(d done) string {
	text := ""
	switch d.name {
	case "system_disk_status":
		text = p.disks(read[diskStatus](&d))
	case "system_info":
		text = p.system(read[systemInfo](&d))
	case "app_list":
		text = p.apps(read[appList](&d))
	case "app_logs":
		text = p.logs(d)
	case "app_start", "app_stop", "app_restart":
		text = p.appChanged(d)
	case "content_list":
		text = p.content(read[contentList](&d))
	case "files_list":
		text = p.files(read[fileList](&d))
	case "mesh_status":
		text = p.mesh(read[meshStatus](&d))
	case "settings_get":
		text = p.settings(read[settingsGet](&d))
	case "settings_set":
		text = p.settingChanged(read[settingsSet](&d))
	case "wallet_status":
		text = p.wallet(d)
	}
	if d.cut() && d.name != "app_logs" {
		text += "\nThe list was too long and was cut, so there is more."
	}
	return text
}

func (p plan) disks(s diskStatus) string {
	if len(s.Disks) == 0 {
		return "The node reports no disks."
	}
	var b strings.Builder
	for i, d := range s.Disks {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s is %s full: %s used of %s, %s free.", sentence.Clean(d.Mount, 80), percent(d.Use, d.Used, d.Total),
			humanize.Bytes(d.Used), humanize.Bytes(d.Total), humanize.Bytes(d.Free))
		if d.Warn && s.Warn > 0 {
			fmt.Fprintf(&b, " That is over the warning threshold of %d%%.", s.Warn)
		}
	}
	return b.String()
}

func percent(given *float64, used, total uint64) string {
	switch {
	case given != nil:
		return fmt.Sprintf("%.0f%%", *given)
	case total > 0:
		return fmt.Sprintf("%.0f%%", 100*float64(used)/float64(total))
	}
	return "an unknown part"
}

// system words the figures asked for; all of them where none was.
func (p plan) system(s systemInfo) string {
	wanted := func(f string) bool { return p.Focus == "" || slices.Contains(strings.Split(p.Focus, ","), f) }
	parts := [...]struct{ focus, text string }{
		{"system", identity(s)}, {"cpu", load(s)}, {"memory", memory(s)}, {"temperature", temperature(s)},
		{"uptime", uptime(s)}, {"address", addresses(s)}, {"time", p.clock(s)},
	}
	var lines []string
	for _, part := range parts {
		if !wanted(part.focus) {
			continue
		}
		if part.text != "" {
			lines = append(lines, part.text)
		} else if p.Focus != "" {
			lines = append(lines, "The node does not report its "+strings.ReplaceAll(part.focus, "cpu", "load")+".")
		}
	}
	if len(lines) == 0 {
		return "The node reports no figures of its system."
	}
	return strings.Join(lines, "\n")
}

func identity(s systemInfo) string {
	if s.Hostname == "" && s.OS == "" && s.CPUs == 0 {
		return ""
	}
	text := strings.TrimSpace(sentence.Clean(s.Hostname, 80) + " runs " + sentence.Clean(s.OS, 80))
	if s.Kernel != "" {
		text += ", kernel " + sentence.Clean(s.Kernel, 80)
	}
	if s.Arch != "" {
		text += ", " + sentence.Clean(s.Arch, 40)
	}
	if s.CPUs > 0 {
		text += ", with " + counted(s.CPUs, "processor")
	}
	return text + "."
}

func load(s systemInfo) string {
	var parts []string
	if s.CPU != nil {
		parts = append(parts, fmt.Sprintf("the processor is at %.0f%%", *s.CPU))
	}
	if s.Load1 != nil {
		text := fmt.Sprintf("the load is %.2f", *s.Load1)
		if s.Load5 != nil && s.Load15 != nil {
			text += fmt.Sprintf(" (%.2f over 5 minutes, %.2f over 15)", *s.Load5, *s.Load15)
		}
		if s.CPUs > 0 {
			text += " on " + counted(s.CPUs, "processor")
		}
		parts = append(parts, text)
	}
	return asSentence(strings.Join(parts, ", "))
}

func memory(s systemInfo) string {
	if s.MemTotal == 0 {
		return ""
	}
	text := fmt.Sprintf("Memory: %s available of %s, %s used.", humanize.IBytes(s.MemAvailable), humanize.IBytes(s.MemTotal), humanize.IBytes(s.MemUsed))
	if s.SwapTotal > 0 {
		text += fmt.Sprintf(" Swap: %s used of %s.", humanize.IBytes(s.SwapUsed), humanize.IBytes(s.SwapTotal))
	}
	return text
}

func temperature(s systemInfo) string {
	parts := []string{}
	for i, t := range s.Temperatures {
		if i == 8 {
			break
		}
		parts = append(parts, fmt.Sprintf("%s %.0f °C", sentence.Clean(t.Sensor, 40), t.Celsius))
	}
	if len(parts) == 0 {
		return ""
	}
	return "Temperature: " + strings.Join(parts, ", ") + "."
}

func uptime(s systemInfo) string {
	if s.Uptime <= 0 {
		return ""
	}
	return "It has been up for " + span(time.Duration(s.Uptime)*time.Second) + "."
}

func addresses(s systemInfo) string {
	if len(s.Addresses) == 0 {
		return ""
	}
	return "Addresses: " + sentence.Listed(s.Addresses) + "."
}

func (p plan) clock(s systemInfo) string {
	if s.Time.IsZero() {
		return ""
	}
	return "Its time is " + s.Time.Format("Monday, 2 January 2006, 15:04 MST") + "."
}

func (p plan) content(c contentList) string {
	whose := "This node shares"
	if p.Focus == "peer" {
		whose = sentence.Clean(p.Name, 80) + " shares"
	}
	if len(c.Items) == 0 {
		return whose + " nothing, as far as this node knows."
	}
	total := len(c.Items)
	if c.Total != nil {
		total = *c.Total
	}
	text := whose + " " + counted(total, "file")
	if c.TotalBytes != nil {
		text += ", " + humanize.Bytes(*c.TotalBytes)
	}
	var rows []string
	for _, it := range c.Items {
		row := fmt.Sprintf("%s (%s)", sentence.Clean(it.Path, 200), humanize.Bytes(it.Size))
		if it.Peer != "" && p.Focus != "peer" {
			row += ", from " + sentence.Clean(it.Peer, 80)
		}
		rows = append(rows, row)
	}
	return text + ":" + limited(rows, c.Truncated)
}

func (p plan) files(f fileList) string {
	if len(f.Entries) == 0 {
		if p.Path == "" {
			return "No folders are open to this node's assistant."
		}
		return sentence.Clean(p.Path, 200) + " is empty."
	}
	head := "These folders are open to look into:"
	if p.Path != "" && p.Path != "/" {
		head = fmt.Sprintf("In %s: %s.", sentence.Clean(p.Path, 200), counted(len(f.Entries), "entry"))
		if f.Truncated {
			head = fmt.Sprintf("In %s, the first entries:", sentence.Clean(p.Path, 200))
		}
	}
	return head + limited(fileRows(f), f.Truncated)
}

func fileRows(f fileList) []string {
	var rows []string
	for _, e := range f.Entries {
		switch e.Kind {
		case "dir":
			rows = append(rows, sentence.Clean(strings.TrimSuffix(e.Name, "/"), 200)+"/")
		case "file":
			rows = append(rows, fmt.Sprintf("%s (%s)", sentence.Clean(e.Name, 200), humanize.Bytes(e.Size)))
		default:
			rows = append(rows, sentence.Clean(e.Name, 200))
		}
	}
	return rows
}

// foundFiles answers a search from all the folders that were listed.
func (p plan) foundFiles() string {
	var rows []string
	looked, partly := 0, false
	for _, d := range p.done {
		if d.name != "files_list" || d.error {
			continue
		}
		list := read[fileList](&d)
		partly = partly || list.Truncated || d.cut()
		if d.args.Path != "/" {
			looked++
		}
		for _, e := range list.Entries {
			if strings.Contains(strings.ToLower(e.Name), strings.ToLower(p.Name)) {
				rows = append(rows, sentence.Clean(strings.TrimSuffix(d.args.Path, "/")+"/"+strings.TrimPrefix(e.Name, "/"), 300))
			}
		}
	}
	text := fmt.Sprintf("I looked for %q directly in %s, not in the folders inside", sentence.Clean(p.Name, 80), counted(looked, "folder"))
	if partly {
		text += "; a list was too long to see whole"
	}
	if len(rows) == 0 {
		return text + ". Nothing there has that in its name."
	}
	return text + ", and found:" + limited(rows, false)
}

func (p plan) mesh(m meshStatus) string {
	if m.Enabled != nil && !*m.Enabled {
		return "The mesh is switched off, so there are no peers."
	}
	var rows []string
	for _, peer := range m.Peers {
		name := peer.Name
		if peer.Label != "" { // the owner's word for it
			name = peer.Label
		}
		if p.Focus == "peer" && !strings.EqualFold(name, p.Name) {
			continue
		}
		row := sentence.Clean(name, 80)
		switch {
		case peer.Online != nil && *peer.Online:
			row += ": online"
		case peer.Online != nil:
			row += ": not online"
		case peer.State != "":
			row += ": " + sentence.Clean(peer.State, 40)
		}
		if peer.LastSeen != nil {
			row += ", last seen " + p.when(*peer.LastSeen)
		}
		if peer.Status != "" {
			row += ", says: " + sentence.Clean(peer.Status, 200)
		}
		rows = append(rows, row)
	}
	switch {
	case len(m.Peers) == 0:
		return "This node knows no peers."
	case len(rows) == 0:
		return fmt.Sprintf("This node knows no peer called %q.", sentence.Clean(p.Name, 80))
	case p.Focus == "peer":
		return "The mesh reports:" + indented(rows)
	}
	return "This node knows " + counted(len(rows), "peer") + ":" + limited(rows, false)
}

func (p plan) settings(s settingsGet) string {
	if one, ok := s.Settings[p.Key]; ok && p.Key != "" {
		return fmt.Sprintf("%s is %s.", p.Key, shown(one.Value))
	}
	if len(s.Settings) == 0 {
		return "The node reports no settings."
	}
	var rows []string
	for _, k := range slices.Sorted(maps.Keys(s.Settings)) {
		row := sentence.Clean(k, 80) + " = " + shown(s.Settings[k].Value)
		if s.Settings[k].Settable {
			row += " (can be set)"
		}
		rows = append(rows, row)
	}
	return "The settings:" + limited(rows, false)
}

func (p plan) settingChanged(s settingsSet) string {
	if s.Key == "" || len(s.Value) == 0 {
		return "The node took the request, but did not say what the setting is now."
	}
	text := fmt.Sprintf("%s is now %s", sentence.Clean(s.Key, 80), shown(s.Value))
	if len(s.Previous) > 0 {
		text += "; it was " + shown(s.Previous)
	}
	return text + "."
}

// shown writes a JSON value for a person: text without its quotes.
func shown(v jsontext.Value) string {
	var s string
	if v.Kind() == '"' && json.Unmarshal(v, &s) == nil {
		if s == "" {
			return "(empty)"
		}
		return sentence.Clean(s, 200)
	}
	return sentence.Clean(string(v), 200)
}

func limited(rows []string, more bool) string {
	cut := rows[:min(len(rows), maxRows)]
	text := indented(cut)
	switch {
	case len(rows) > len(cut):
		text += fmt.Sprintf("\nand %d more.", len(rows)-len(cut))
	case more:
		text += "\nThere is more than this list holds."
	}
	return text
}
