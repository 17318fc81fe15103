package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
)

const about = `Atoll turns this server into a node you can talk to, and that cannot act without you.

Begin with "atoll try": a node with a small sample app in a temporary directory, and a chat on it.

Exit codes: 0 done, 1 failed, 2 written wrongly, 3 refused or declined, 4 not logged in,
5 no node answers.

Which node: --address or --socket, else $ATOLL_ADDRESS, else the one of your last login, else the
one that runs here. With --json every command writes one JSON document, errors included
({"error": {"code", "message", "field"}}).`

// root builds the tree of commands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "atoll", Short: "A home server you can talk to", Long: about, Version: a.Version,
		Example:       "  atoll try\n  atoll serve --data-dir /var/lib/atoll\n  atoll chat -m \"how full is the disk?\"",
		SilenceErrors: true, SilenceUsage: true, Args: noSuch, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "write one JSON document")
	flags.StringVar(&a.address, "address", "", "the node's address, like http://127.0.0.1:8420")
	flags.StringVar(&a.socket, "socket", "", "the node's socket, DIR/atoll.sock")
	root.AddCommand(a.tryCommand(), a.serveCommand(), a.setupCommand(), a.loginCommand(), a.logoutCommand(), a.chatCommand(),
		a.statusCommand(), a.appsCommand(), a.userCommand(), a.sessionCommand(), a.grantsCommand(), a.modeCommand(),
		a.permissionsCommand(), a.historyCommand(), a.noticesCommand(), a.auditCommand(), a.settingsCommand(), a.toolsCommand(),
		a.meshCommand(), a.doctorCommand(), a.evalCommand(), a.versionCommand(), a.completionCommand())
	return root
}

// noSuch names an unknown subcommand.
func noSuch(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		words := "there is no command " + args[0] + " in " + cmd.CommandPath()
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			words += "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return errors.New(words)
	}
	return nil
}

// group is a command that only holds others.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: noSuch, SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.New("say which of the commands in " + cmd.CommandPath())
		}}
	cmd.AddCommand(children...)
	cmd.Example = children[0].Example
	return cmd
}

// leaf is a command that does something.
func (a *app) leaf(use, short, example string, args cobra.PositionalArgs, f func(context.Context, []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Example: "  " + strings.ReplaceAll(example, "\n", "\n  "), Args: args, RunE: a.run(f)}
}

// dataDirFlag adds --data-dir.
func dataDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "data-dir", "", "the node's data directory (default $ATOLL_DATA_DIR, $STATE_DIRECTORY, $XDG_DATA_HOME/atoll or ~/.local/share/atoll)")
	_ = cmd.MarkFlagDirname("data-dir")
}

func (a *app) completionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "Write a shell's completion script", ValidArgs: []string{"bash", "zsh", "fish"},
		Example: "  atoll completion bash > /etc/bash_completion.d/atoll\n  atoll completion zsh > \"${fpath[1]}/_atoll\"\n  atoll completion fish > ~/.config/fish/completions/atoll.fish",
		Args:    cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.started = true
		switch args[0] {
		case "bash":
			return cmd.Root().GenBashCompletionV2(a.Stdout, true)
		case "zsh":
			return cmd.Root().GenZshCompletion(a.Stdout)
		}
		return cmd.Root().GenFishCompletion(a.Stdout, true)
	}
	return cmd
}
