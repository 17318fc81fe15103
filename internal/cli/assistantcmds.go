package cli

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"atoll/internal/cli/chat"
	"atoll/internal/cli/client"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
)

// categories are completed by the shell; the node alone decides what there is.
func categories() []string {
	return []string{"system", "apps", "content", "files", "mesh", "settings", "wallet"}
}

func (a *app) grantsCommand() *cobra.Command {
	list := a.leaf("list", "Show which categories the assistant may use", "atoll grants list", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		return a.grants(ctx, "assistant.grants-get", nil)
	})
	var long string
	open := a.leaf("open CATEGORY...", "Let the assistant use categories", "atoll grants open system --for 1h\natoll grants open apps --for forever", cobra.MinimumNArgs(1),
		func(ctx context.Context, args []string) error {
			g := client.Grant{Granted: true}
			if long != "forever" {
				d, err := time.ParseDuration(long)
				if err != nil || d <= 0 {
					return usageError{error: fault.New(fault.InvalidParams, "write it like 1h, 30m or forever").At("--for")}
				}
				g.ExpiresAt = time.Now().Add(d).UTC().Truncate(time.Second)
			}
			return a.setGrants(ctx, args, g)
		})
	open.Flags().StringVar(&long, "for", "1h", "for how long: 1h, 30m, or forever")
	shut := a.leaf("close CATEGORY...", "Close categories to the assistant", "atoll grants close apps", cobra.MinimumNArgs(1),
		func(ctx context.Context, args []string) error { return a.setGrants(ctx, args, client.Grant{}) })
	open.ValidArgs, shut.ValidArgs = categories(), categories()
	return group("grants", "What the assistant may use", list, open, shut)
}

func (a *app) setGrants(ctx context.Context, names []string, g client.Grant) error {
	grants := map[string]client.Grant{}
	for _, name := range names {
		grants[name] = g
	}
	return a.grants(ctx, "assistant.grants-set", map[string]any{"grants": grants})
}

func (a *app) grants(ctx context.Context, method string, params any) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	var raw jsontext.Value
	if err := c.Call(ctx, method, params, &raw); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(raw)
	}
	var result struct {
		Grants map[string]client.Grant `json:"grants"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return fault.Wrap(err, fault.Failed, "the node's answer is not what this version of atoll reads — are both of one version?")
	}
	for _, name := range sortedKeys(result.Grants) {
		state := "closed"
		if g := result.Grants[name]; g.Granted && g.ExpiresAt.IsZero() {
			state = "open"
		} else if g.Granted {
			state = "open until " + g.ExpiresAt.Local().Format("2006-01-02 15:04")
		}
		a.printf("%-10s %s", term.Clean(name), state)
	}
	return nil
}

func (a *app) modeCommand() *cobra.Command {
	cmd := a.leaf("mode [off|read-only|confirm]", "Show or set what the assistant may do at all", "atoll mode\natoll mode read-only", cobra.MaximumNArgs(1),
		func(ctx context.Context, args []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			var result struct {
				Mode string `json:"mode"`
			}
			if len(args) == 0 {
				err = c.Call(ctx, "assistant.mode-get", nil, &result)
			} else {
				err = c.Call(ctx, "assistant.mode-set", map[string]string{"mode": args[0]}, &result)
			}
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(result)
			}
			a.printf("%s", term.Clean(result.Mode))
			return nil
		})
	cmd.ValidArgs = []string{"off", "read-only", "confirm"}
	return cmd
}

func (a *app) permissionsCommand() *cobra.Command {
	return group("permissions", "Actions that may run for a time without asking",
		a.leaf("list", "List them", "atoll permissions list", cobra.NoArgs, func(ctx context.Context, _ []string) error {
			return a.listing(ctx, "assistant.permissions-list", nil, "permissions", "Every action is asked.", col("ID", "id"), col("ACTION", "summary"),
				col("SINCE", "since"), col("UNTIL", "expires_at"), col("USED IN THE LAST HOUR", "used_last_hour"))
		}),
		a.leaf("revoke ID", "End one, so that the action is asked again", "atoll permissions revoke 4f1c", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
			if err := a.call(ctx, "assistant.permissions-revoke", map[string]string{"id": args[0]}); err != nil {
				return err
			}
			return a.done("Ended; it is asked again.")
		}))
}

func (a *app) toolsCommand() *cobra.Command {
	return a.leaf("tools", "List what the assistant can do", "atoll tools", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		return a.listing(ctx, "assistant.list-tools", nil, "tools", "No category is open, so the assistant can use no tool.", col("TOOL", "tool"),
			col("CATEGORY", "category"), col("ASKS FIRST", "destructive"), col("OPEN", "offered"), col("DOES", "description"))
	})
}

func (a *app) historyCommand() *cobra.Command {
	one := func(use, short, example, method, words string) *cobra.Command {
		return a.leaf(use, short, example, cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
			if err := a.call(ctx, method, map[string]string{"conversation": args[0]}); err != nil {
				return err
			}
			return a.done("%s", words)
		})
	}
	conversations := []column{col("CONVERSATION", "conversation"), col("TITLE", "title"), col("TURNS", "turns"), col("LAST", "updated_at"),
		col("WHO", "who"), col("FOUND", "snippet")}
	return group("history", "Your conversations",
		a.leaf("list", "List them", "atoll history list", cobra.NoArgs, func(ctx context.Context, _ []string) error {
			return a.listing(ctx, "assistant.conversations", nil, "conversations", "No conversations yet.", conversations...)
		}),
		a.historyShow(),
		a.leaf("rename ID TITLE", "Give one a title", "atoll history rename 4f1c \"the full disk\"", cobra.ExactArgs(2), func(ctx context.Context, args []string) error {
			if err := a.call(ctx, "assistant.rename", map[string]string{"conversation": args[0], "title": args[1]}); err != nil {
				return err
			}
			return a.done("Renamed.")
		}),
		a.leaf("search QUERY", "Find words in them", "atoll history search disk", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
			return a.listing(ctx, "assistant.search", map[string]string{"query": args[0]}, "finds", "Nothing found.", conversations...)
		}),
		a.historyExport(),
		one("undo ID", "Take the last turn out of one (not out of the world)", "atoll history undo 4f1c", "assistant.undo", "The last turn is out of the conversation. What it did on the node stays done."),
		a.historyDelete())
}

func (a *app) historyShow() *cobra.Command {
	return a.leaf("show ID", "Show one", "atoll history show 4f1c", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		var raw jsontext.Value
		if err := c.Call(ctx, "assistant.history", map[string]string{"conversation": args[0]}, &raw); err != nil {
			return err
		}
		if a.json {
			return a.printJSON(raw)
		}
		var h client.History
		if err := json.Unmarshal(raw, &h); err != nil {
			return fault.Wrap(err, fault.Failed, "the node's answer is not what this version of atoll reads — are both of one version?")
		}
		chat.ShowHistory(term.NewScreen(a.Stdout, nil), h)
		return nil
	})
}

func (a *app) historyExport() *cobra.Command {
	var format, file string
	cmd := a.leaf("export ID", "Write one out", "atoll history export 4f1c --format markdown -o chat.md", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		var doc struct {
			Format string `json:"format"`
			Text   string `json:"text"`
		}
		if err := c.Call(ctx, "assistant.export", map[string]string{"conversation": args[0], "format": format}, &doc); err != nil {
			return err
		}
		if a.json {
			return a.printJSON(doc)
		}
		text := strings.TrimSuffix(doc.Text, "\n")
		if file == "" {
			if term.File(a.Stdout) != nil {
				text = term.Block(text)
			}
			a.printf("%s", text)
			return nil
		}
		if err := renameio.WriteFile(file, []byte(text+"\n"), os.FileMode(0o600)); err != nil {
			return fault.Wrap(err, fault.Failed, "%s cannot be written — %v", file, err)
		}
		return a.done("Written to %s.", file)
	})
	cmd.Flags().StringVar(&format, "format", "markdown", "json or markdown")
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to this file instead of standard output")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"json", "markdown"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) historyDelete() *cobra.Command {
	var all bool
	cmd := a.leaf("delete [ID]", "Delete one, or all", "atoll history delete 4f1c\natoll history delete --all", cobra.MaximumNArgs(1), func(ctx context.Context, args []string) error {
		params := map[string]string{}
		switch {
		case all == (len(args) == 1):
			return usage("name one conversation, or give --all")
		case !all:
			params["conversation"] = args[0]
		}
		if err := a.call(ctx, "assistant.clear-history", params); err != nil {
			return err
		}
		return a.done("Deleted.")
	})
	cmd.Flags().BoolVar(&all, "all", false, "delete all your conversations")
	return cmd
}
