package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"atoll/internal/cli/client"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
)

// appColumns are those of the list of apps. What stands in others or in the name goes first where the screen is narrow.
func appColumns() []column {
	return []column{
		{Title: "APP", Keys: []string{"app"}, Show: appName},
		{Title: "TITLE", Keys: []string{"title"}, Spare: 6},
		{Title: "STATE", Keys: []string{"state"}},
		{Title: "HEALTH", Keys: []string{"health"}, Spare: 1},
		{Title: "SINCE", Keys: []string{"since"}, Spare: 2},
		{Title: "PID", Keys: []string{"pid"}, Spare: 8},
		{Title: "EXIT", Keys: []string{"exit_code"}, Spare: 3},
		{Title: "RESTARTS", Keys: []string{"restarts"}, Show: notZero, Spare: 4},
		{Title: "CPU", Keys: []string{"cpu_percent"}, Show: term.Percent, Spare: 5},
		{Title: "MEMORY", Keys: []string{"memory_bytes"}, Show: term.Bytes, Spare: 5},
		{Title: "PORTS", Keys: []string{"ports"}, Show: ports, Spare: 7},
		{Title: "IMAGE", Keys: []string{"image"}, Show: image, Spare: 9},
		{Title: "RUNTIME", Keys: []string{"runtime"}, Spare: 10},
		{Title: "REASON", Keys: []string{"reason"}, Show: short, Spare: 7},
	}
}

// appName shows an app by its name, and a service, which servicesUnder left as a list of one, indented under its app.
func appName(v jsontext.Value) string {
	if v.Kind() == '[' {
		return "  " + term.Text(v)
	}
	return term.Text(v)
}

// servicesUnder puts the services of each app after it.
func servicesUnder(apps []row) []row {
	var out []row
	for _, r := range apps {
		out = append(out, r)
		var services []row
		if json.Unmarshal(r["services"], &services) != nil {
			continue
		}
		for _, s := range services {
			name := field(s, "app")
			s["id"] = s["app"]
			s["app"], _ = json.Marshal([]string{name[strings.LastIndex(name, "/")+1:]})
			delete(s, "runtime") // its app's
			out = append(out, s)
		}
	}
	return out
}

func notZero(v jsontext.Value) string {
	if string(v) == "0" {
		return ""
	}
	return term.Text(v)
}

// image shows an image without its digest.
func image(v jsontext.Value) string {
	name, digest, ok := strings.Cut(term.Text(v), "@")
	if ok && name == "" {
		name = digest
	}
	return cut(name)
}

// short shows a text that can be long on the room of a few words.
func short(v jsontext.Value) string { return cut(term.Text(v)) }

func cut(s string) string {
	const most = 48
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most-1]) + "…"
	}
	return s
}

// ports shows where an app can be reached, each port once.
func ports(v jsontext.Value) string {
	var all []row
	if json.Unmarshal(v, &all) != nil {
		return term.Text(v)
	}
	var words []string
	for _, p := range all {
		w := field(p, "port")
		switch address := field(p, "address"); {
		case address == "" || address == "::" || address == "0.0.0.0": // all
		case strings.Contains(address, ":"):
			w = "[" + address + "]:" + w
		default:
			w = address + ":" + w
		}
		if inside := field(p, "container_port"); inside != "" && inside != field(p, "port") {
			w += "->" + inside
		}
		if w += "/" + field(p, "protocol"); !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	return strings.Join(words, ", ")
}

func (a *app) showApps(raw jsontext.Value) error {
	apps, err := rowsOf(raw, "apps")
	if err != nil {
		return err
	}
	rows := servicesUnder(apps)
	width := 0
	if f := term.File(a.Stdout); f != nil {
		width = term.Columns(f)
	}
	term.TableWithin(a.Stdout, width, rows, "No apps.", appColumns()...)
	a.warn(rows)
	return a.problems(raw)
}

// warn tells what stopping an app would take down beside it.
func (a *app) warn(rows []row) {
	for _, r := range rows {
		if w := field(r, "warning"); w != "" {
			a.printf("Note on %s: %s", field(r, "id", "app"), w)
		}
	}
}

func (a *app) appsCommand() *cobra.Command {
	cmd := group("apps", "List, read and control the apps",
		a.leaf("list", "List the apps", "atoll apps list", cobra.NoArgs, func(ctx context.Context, _ []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			var raw jsontext.Value
			if err := c.Call(ctx, "apps.list", nil, &raw); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(raw)
			}
			return a.showApps(raw)
		}),
		a.logsCommand(),
		a.appAction("start", "Start an app"), a.appAction("stop", "Stop an app"), a.appAction("restart", "Restart an app"))
	return cmd
}

func (a *app) logsCommand() *cobra.Command {
	var lines int
	var follow bool
	cmd := a.leaf("logs APP", "Show the last lines of an app's log, and follow it", "atoll apps logs sample --lines 50\natoll apps logs sample --follow", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		if follow {
			return a.follow(ctx, c, args[0], lines)
		}
		var raw jsontext.Value
		if err := c.Call(ctx, "apps.logs", map[string]any{"app": args[0], "lines": lines}, &raw); err != nil {
			return err
		}
		if a.json {
			return a.printJSON(raw)
		}
		rows, err := rowsOf(raw, "lines")
		if err != nil {
			return err
		}
		for _, r := range rows {
			a.logLine(r)
		}
		if len(rows) == 0 {
			a.printf("The log is empty.")
		}
		return nil
	})
	cmd.Flags().IntVarP(&lines, "lines", "n", 100, "how many lines, 1 to 500")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with each new line, until Ctrl-C")
	cmd.ValidArgsFunction = a.completeApps
	return cmd
}

// follow shows each line as it comes. The node ends the call after a time; then it is called again for what is new.
func (a *app) follow(ctx context.Context, c *client.Client, name string, lines int) error {
	for {
		streams := false
		err := c.Stream(ctx, "apps.follow", map[string]any{"app": name, "lines": lines}, &jsontext.Value{}, func(fr client.Frame) {
			var r row
			streams = true
			switch {
			case fr.Name != "line" || json.Unmarshal(fr.Data, &r) != nil:
			case a.json:
				fmt.Fprintf(a.Stdout, "%s\n", term.EscapeJSON(fr.Data))
			default:
				a.logLine(r)
			}
		})
		switch {
		case ctx.Err() != nil: // the person's wish
			return nil
		case err != nil:
			return err
		case !streams: // unreachable unless the node is of another version
			return fault.New(fault.Failed, "the node does not stream this log; read it with `atoll apps logs`")
		}
		lines = 0
	}
}

// logLine shows one line of a log.
func (a *app) logLine(r row) {
	when := field(r, "time")
	if when != "" {
		when += "  "
	}
	from := field(r, "stream")
	if service := field(r, "service"); service != "" {
		from = service + " " + from
	}
	a.printf("%s%-6s  %s", when, from, logText(r["text"]))
}

// logText shows a log line with its own spacing, without what a terminal would obey.
func logText(v jsontext.Value) string {
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return term.Text(v)
	}
	return term.Line(string(b))
}

func (a *app) appAction(verb, short string) *cobra.Command {
	cmd := a.leaf(verb+" APP", short, "atoll apps "+verb+" sample", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		var raw jsontext.Value
		if err := c.Call(ctx, "apps."+verb, map[string]string{"app": args[0]}, &raw); err != nil {
			return err
		}
		var r row
		if err := json.Unmarshal(raw, &r); err != nil {
			return fault.Wrap(err, fault.Failed, "the node's answer is not what this version of atoll reads — are both of one version?")
		}
		if a.json {
			err = a.printJSON(raw)
		} else {
			err = a.showAction(r, raw)
		}
		if err == nil && failedAction(verb, r) {
			return silent(ExitFailed)
		}
		return err
	})
	cmd.ValidArgsFunction = a.completeApps
	return cmd
}

// failedAction reports whether what was seen after an action is not what was asked for.
func failedAction(verb string, r row) bool {
	state := field(r, "state")
	if verb == "stop" {
		return state != "stopped" && state != "exited" && state != "failed"
	}
	return state != "running" || field(r, "health") == "unhealthy"
}

// showAction says how the app is after an action, and the end of its log where it did not come up.
func (a *app) showAction(r row, raw jsontext.Value) error {
	words := field(r, "state")
	switch health := field(r, "health"); {
	case health == "starting":
		words += " (its health check has not decided yet)"
	case health != "":
		words += " (" + health + ")"
	}
	if since := field(r, "since"); since != "" {
		words += " since " + since
	}
	if why := field(r, "reason"); why != "" {
		words += ": " + why
	}
	if string(r["observed"]) == "false" && field(r, "health") != "starting" {
		words += " (the state after it was not observed; look again with `atoll apps list`)"
	}
	a.printf("%s is %s.", field(r, "app"), strings.TrimSuffix(words, "."))
	a.warn([]row{r})
	lines, err := rowsOf(raw, "log")
	if len(lines) > 0 {
		a.printf("The last lines of its log:")
	}
	for _, l := range lines {
		a.logLine(l)
	}
	return err
}

// completeApps completes app names from the node; where it does not answer at once there are none.
func (a *app) completeApps(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	var result struct {
		Apps []struct {
			App string `json:"app"`
		} `json:"apps"`
	}
	var names []string
	if c, err := a.connect(ctx); err == nil && len(args) == 0 && c.Call(ctx, "apps.list", nil, &result) == nil {
		for _, r := range result.Apps {
			if strings.HasPrefix(r.App, prefix) {
				names = append(names, term.Clean(r.App))
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
