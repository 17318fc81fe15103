package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"atoll/internal/cli/client"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
)

func diskColumns() []column {
	return []column{col("DISK", "mount"), {Title: "USED", Keys: []string{"used_percent"}, Show: term.Percent}, {Title: "FREE", Keys: []string{"free_bytes"}, Show: term.Bytes},
		{Title: "SIZE", Keys: []string{"total_bytes"}, Show: term.Bytes}, col("WARN", "warn")}
}

func nodeVersion(raw jsontext.Value) string {
	var r row
	if json.Unmarshal(raw, &r) != nil {
		return term.Text(raw)
	}
	return field(r, "version", "atoll")
}

func (a *app) statusCommand() *cobra.Command {
	return a.leaf("status", "Show the server, its disks and its apps", "atoll status", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		all := map[string]jsontext.Value{}
		for _, method := range []string{"node.version", "system.info", "system.disk-status", "apps.list"} {
			var raw jsontext.Value
			if err := c.Call(ctx, method, nil, &raw); err != nil {
				return err
			}
			all[method] = raw
		}
		if a.json {
			return a.printJSON(map[string]jsontext.Value{"node": all["node.version"], "system": all["system.info"], "disks": all["system.disk-status"], "apps": all["apps.list"]})
		}
		return a.showStatus(c, all)
	})
}

func (a *app) showStatus(c *client.Client, all map[string]jsontext.Value) error {
	var info row
	if err := json.Unmarshal(all["system.info"], &info); err != nil {
		return fault.Wrap(err, fault.Failed, "the node's answer is not what this version of atoll reads — are both of one version?")
	}
	a.printf("Node at %s, version %s", c.Address(), nodeVersion(all["node.version"]))
	for _, line := range []struct {
		title string
		col   column
	}{{"Host", col("", "hostname")}, {"System", col("", "os")}, {"Up for", column{Keys: []string{"uptime_s"}, Show: term.Seconds}},
		{"Load", col("", "load1")}, {"Processor", column{Keys: []string{"cpu_percent"}, Show: term.Percent}},
		{"Memory", column{Keys: []string{"memory_used_bytes"}, Show: term.Bytes}}, {"of", column{Keys: []string{"memory_total_bytes"}, Show: term.Bytes}}} {
		if text := line.col.Text(info); text != "" {
			a.printf("  %-10s %s", line.title, text)
		}
	}
	a.printf("")
	disks, err := rowsOf(all["system.disk-status"], "disks")
	if err != nil {
		return err
	}
	a.table(disks, "No disks.", diskColumns()...)
	a.printf("")
	return a.showApps(all["apps.list"])
}

func (a *app) settingsCommand() *cobra.Command {
	return group("settings", "Show and change settings",
		a.leaf("get [KEY]", "Show one setting, or all", "atoll settings get\natoll settings get node.name", cobra.MaximumNArgs(1), func(ctx context.Context, args []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			raw, settings, err := getSettings(ctx, c, args)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(raw)
			}
			var rows []row
			for _, key := range sortedKeys(settings) {
				r := settings[key]
				r["key"], _ = jsontext.AppendQuote(nil, key)
				rows = append(rows, r)
			}
			a.table(rows, "No settings.", col("KEY", "key"), col("VALUE", "value"), col("TYPE", "type"), col("CAN BE SET", "settable"), col("CHOICES", "choices"))
			return nil
		}),
		a.leaf("set KEY VALUE", "Change one setting", "atoll settings set node.name attic", cobra.ExactArgs(2), func(ctx context.Context, args []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			_, settings, err := getSettings(ctx, c, args[:1])
			if err != nil {
				return err
			}
			value, err := settingValue(term.Text(settings[args[0]]["type"]), args[1])
			if err != nil {
				return err
			}
			var raw jsontext.Value
			if err := c.Call(ctx, "settings.set", map[string]any{"key": args[0], "value": value}, &raw); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(raw)
			}
			a.printf("%s is now %s.", term.Clean(args[0]), term.Text(value))
			return nil
		}))
}

func getSettings(ctx context.Context, c *client.Client, key []string) (raw jsontext.Value, settings map[string]row, err error) {
	params := map[string]string{}
	if len(key) == 1 {
		params["key"] = key[0]
	}
	if err := c.Call(ctx, "settings.get", params, &raw); err != nil {
		return nil, nil, err
	}
	var result struct {
		Settings map[string]row `json:"settings"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return nil, nil, fault.Wrap(err, fault.Failed, "the node's answer is not what this version of atoll reads — are both of one version?")
	}
	return raw, result.Settings, nil
}

// settingValue writes a value in the type of its setting; digits stay as they were typed.
func settingValue(kind, text string) (jsontext.Value, error) {
	switch kind {
	case "integer":
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return nil, usageError{error: fault.New(fault.InvalidParams, "%s must be a whole number", text).At("value")}
		}
		return jsontext.Value(strings.TrimPrefix(text, "+")), nil
	case "boolean":
		if text == "true" || text == "false" {
			return jsontext.Value(text), nil
		}
		return nil, usageError{error: fault.New(fault.InvalidParams, "%s must be true or false", text).At("value")}
	}
	return jsontext.AppendQuote(nil, text)
}
