package cli

import (
	"context"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"atoll/internal/caller"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
	"atoll/internal/secret"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// offline decides whether a command works on the data directory itself. It does where a directory is meant and no node
// holds it; where one does, a.socket is set to it, so that the command goes through the node.
func (a *app) offline(ctx context.Context, flag string) (dir string, offline bool, err error) {
	if a.address != "" || a.socket != "" {
		return "", false, nil
	}
	if dir, err = a.dataDir(flag); err != nil {
		return "", false, err
	}
	if flag == "" && a.Env("ATOLL_DATA_DIR") == "" {
		creds, err := a.credentials()
		if err != nil {
			return "", false, err
		}
		if current, err := creds.Current(); err != nil || current != "" || a.Env("ATOLL_ADDRESS") != "" {
			return "", false, err
		}
	}
	if !runs(ctx, dir) {
		return dir, true, nil
	}
	a.socket = socketOf(dir)
	if session, err := a.sameNode(); err == nil && session != "" {
		a.address, a.socket = session, ""
	}
	return dir, false, nil
}

// sameNode is the address of the last login if there is no session for the socket itself: a person who logged in by the
// address of the node here need not log in again for its socket.
func (a *app) sameNode() (string, error) {
	creds, err := a.credentials()
	if err != nil {
		return "", err
	}
	if _, ok, err := creds.Get("unix://" + a.socket); err != nil || ok {
		return "", err
	}
	return creds.Current()
}

func (a *app) userCommand() *cobra.Command {
	return group("user", "Manage accounts", a.userAdd(), a.userList(), a.userPasswd(), a.userRemove(), a.userSetRole())
}

func checkRole(role string) error {
	if _, err := caller.ParseRole(role); err != nil {
		return usageError{error: fault.New(fault.InvalidParams, "must be owner, member or viewer").At("role")}
	}
	return nil
}

func (a *app) userAdd() *cobra.Command {
	var dir, role string
	var stdin bool
	cmd := a.leaf("add NAME", "Create an account", "atoll user add ada --role owner --password-stdin < password.txt", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		if err := checkRole(role); err != nil {
			return err
		}
		dir, offline, err := a.offline(ctx, dir)
		if err != nil {
			return err
		}
		pw, err := a.password(ctx, "Password for "+term.Clean(args[0])+": ", stdin, true)
		if err != nil {
			return err
		}
		if offline {
			err = a.UserAdd(ctx, dir, args[0], role, pw)
		} else {
			err = a.call(ctx, "users.add", map[string]string{"username": args[0], "role": role, "password": pw.Reveal()})
		}
		if err != nil {
			return err
		}
		return a.done("Created %s (%s).", term.Clean(args[0]), role)
	})
	cmd.Flags().StringVar(&role, "role", "viewer", "owner, member or viewer")
	cmd.Flags().BoolVar(&stdin, "password-stdin", false, "read the password from standard input, one line")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"owner", "member", "viewer"}, cobra.ShellCompDirectiveNoFileComp))
	dataDirFlag(cmd, &dir)
	return cmd
}

// call calls a method whose result is of no interest.
func (a *app) call(ctx context.Context, method string, params any) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	return c.Call(ctx, method, params, nil)
}

func (a *app) userList() *cobra.Command {
	var dir string
	cmd := a.leaf("list", "List the accounts", "atoll user list", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		cols := []column{col("NAME", "username"), col("ROLE", "role"), col("CREATED", "created_at"), col("LAST SEEN", "last_seen")}
		dir, offline, err := a.offline(ctx, dir)
		if err != nil {
			return err
		}
		if !offline {
			return a.listing(ctx, "users.list", nil, "users", "No accounts.", cols...)
		}
		users, err := a.UserList(ctx, dir)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(map[string]any{"users": users})
		}
		raw, err := json.Marshal(map[string]any{"users": users})
		if err != nil {
			return err
		}
		rows, err := rowsOf(raw, "users")
		a.table(rows, "No accounts.", cols...)
		return err
	})
	dataDirFlag(cmd, &dir)
	return cmd
}

func (a *app) userPasswd() *cobra.Command {
	var dir string
	var stdin bool
	cmd := a.leaf("passwd [NAME]", "Change your password; with the node stopped, anybody's",
		"atoll user passwd\natoll user passwd ada --data-dir /var/lib/atoll", cobra.MaximumNArgs(1), func(ctx context.Context, args []string) error {
			dir, offline, err := a.offline(ctx, dir)
			if err != nil {
				return err
			}
			switch {
			case offline && len(args) == 0:
				return usage("the node is stopped, so say whose password: atoll user passwd NAME")
			case !offline && len(args) == 1:
				return usage("a running node changes your own password only — leave the name out, or stop the node")
			}
			var old secret.String
			if !offline {
				if old, err = a.password(ctx, "Password now: ", stdin, false); err != nil {
					return err
				}
			}
			fresh, err := a.password(ctx, "New password: ", stdin, true)
			if err != nil {
				return err
			}
			if offline {
				err = a.UserPasswd(ctx, dir, args[0], fresh)
			} else {
				err = a.call(ctx, "auth.passwd", map[string]string{"old": old.Reveal(), "new": fresh.Reveal()})
			}
			if err != nil {
				return err
			}
			return a.done("Changed. Sessions opened with the old password have ended; `atoll login` opens a new one.")
		})
	cmd.Flags().BoolVar(&stdin, "password-stdin", false, "read from standard input: the old password on one line (only with a running node), the new one on the next")
	dataDirFlag(cmd, &dir)
	return cmd
}

func (a *app) userRemove() *cobra.Command {
	var dir string
	cmd := a.leaf("remove NAME", "Remove an account and end its sessions", "atoll user remove ada", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		dir, offline, err := a.offline(ctx, dir)
		if err == nil && offline {
			err = a.UserRemove(ctx, dir, args[0])
		} else if err == nil {
			err = a.call(ctx, "users.remove", map[string]string{"username": args[0]})
		}
		if err != nil {
			return err
		}
		return a.done("Removed %s.", term.Clean(args[0]))
	})
	dataDirFlag(cmd, &dir)
	return cmd
}

func (a *app) userSetRole() *cobra.Command {
	var dir string
	cmd := a.leaf("set-role NAME ROLE", "Change what an account may do", "atoll user set-role ada member", cobra.ExactArgs(2), func(ctx context.Context, args []string) error {
		if err := checkRole(args[1]); err != nil {
			return err
		}
		dir, offline, err := a.offline(ctx, dir)
		if err == nil && offline {
			err = a.UserSetRole(ctx, dir, args[0], args[1])
		} else if err == nil {
			err = a.call(ctx, "users.set-role", map[string]string{"username": args[0], "role": args[1]})
		}
		if err != nil {
			return err
		}
		return a.done("%s is now %s.", term.Clean(args[0]), args[1])
	})
	dataDirFlag(cmd, &dir)
	return cmd
}

func (a *app) sessionCommand() *cobra.Command {
	return group("session", "List and end your sessions",
		a.leaf("list", "List your sessions", "atoll session list", cobra.NoArgs, func(ctx context.Context, _ []string) error {
			return a.listing(ctx, "auth.sessions", nil, "sessions", "No sessions.", col("ID", "id"), col("THIS ONE", "current"),
				col("SINCE", "created_at"), col("LAST SEEN", "last_seen"), col("FROM", "address"), col("ENDS", "expires_at"))
		}),
		a.leaf("revoke ID", "End one session", "atoll session revoke 4f1c", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
			if err := a.call(ctx, "auth.revoke", map[string]string{"id": args[0]}); err != nil {
				return err
			}
			return a.done("Ended.")
		}))
}

// number is an id as the node gave it: a number stays one.
func number(id string) jsontext.Value {
	v := jsontext.Value(id)
	if v.IsValid() && v.Kind() == '0' {
		return v
	}
	quoted, err := jsontext.AppendQuote(nil, id)
	if err != nil {
		return jsontext.Value(`""`) // unreachable unless the argument is not UTF-8; the node then says that the id is missing
	}
	return quoted
}
