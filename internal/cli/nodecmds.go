package cli

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"atoll/internal/cli/client"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
	"atoll/internal/secret"
)

func (a *app) tryCommand() *cobra.Command {
	var dir string
	cmd := a.leaf("try", "Start a node with a sample app here, and chat on it", "atoll try\natoll try --data-dir ./trial", cobra.NoArgs,
		func(ctx context.Context, _ []string) (err error) {
			if dir != "" {
				if dir, err = filepath.Abs(dir); err != nil {
					return usage("--data-dir: %v", err)
				}
			}
			local, err := a.Try(ctx, TryOptions{DataDir: dir})
			if err != nil {
				return err
			}
			defer func() {
				stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
				defer cancel()
				if closeErr := local.Close(stop); err == nil {
					err = closeErr
				}
			}()
			c, err := client.New(client.Config{Address: local.Address, ChatTimeout: a.ChatTimeout,
				Session: client.Session{Token: local.Session, CSRF: local.CSRF, Username: local.Username, Role: "owner"}})
			if err != nil {
				return err
			}
			defer c.Close()
			return a.talk(ctx, c, "", greeting(local))
		})
	cmd.Flags().StringVar(&dir, "data-dir", "", "keep the node's data here (default: a temporary directory, removed at the end)")
	_ = cmd.MarkFlagDirname("data-dir")
	return cmd
}

// greeting is the first thing a person reads in try.
func greeting(l *Local) []string {
	where := "Its data is in " + term.Clean(l.DataDir)
	if l.Temporary {
		where += " and is removed when you leave."
	} else {
		where += " and stays there."
	}
	return []string{
		"Atoll: a node with a small sample app, running in this process. You are its owner.",
		where,
		"The lines with a bar are the node's own; what the assistant says is indented and has none.",
		"Everything is closed to the assistant until you open it, and nothing is changed until you approve.",
		"Try:  how full is the disk?   is the sample app running? why did it stop?   restart it",
		"/help lists the chat's commands. Ctrl-D leaves and stops the node.",
	}
}

func (a *app) serveCommand() *cobra.Command {
	var o ServeOptions
	cmd := a.leaf("serve", "Run the node", "atoll serve\natoll serve --data-dir /var/lib/atoll --listen 127.0.0.1:8420", cobra.NoArgs,
		func(ctx context.Context, _ []string) error { return a.Serve(ctx, o) })
	dataDirFlag(cmd, &o.DataDir)
	cmd.Flags().StringVar(&o.Listen, "listen", "", "address and port to listen on (default $ATOLL_LISTEN, config.toml or 127.0.0.1:8420)")
	return cmd
}

// login holds the flags of setup and login.
type login struct {
	username string
	stdin    bool
}

func (l *login) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.username, "username", "", "the account's name")
	cmd.Flags().BoolVar(&l.stdin, "password-stdin", false, "read the password from standard input, one line")
}

func (a *app) setupCommand() *cobra.Command {
	var l login
	cmd := a.leaf("setup ADDRESS", "Create the owner with the one-time address of a new node",
		"atoll setup 'http://127.0.0.1:8420/#setup=TOKEN'", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
			address, token, err := setupAddress(args[0])
			if err != nil {
				return err
			}
			a.address = address
			return a.logIn(ctx, l, "Username of the owner: ", true, func(c *client.Client, name string, pw secret.String) (client.Session, error) {
				return c.Setup(ctx, token, name, pw)
			})
		})
	l.flags(cmd)
	return cmd
}

// setupAddress takes the one-time address apart. The token stands in the fragment, which is never sent by itself (G7).
func setupAddress(s string) (address string, token secret.String, err error) {
	u, err := url.Parse(s)
	if err == nil {
		if t, ok := strings.CutPrefix(u.Fragment, "setup="); ok && t != "" {
			u.Fragment = ""
			address, err = client.Address(u.String())
			return address, secret.New(t), err
		}
	}
	return "", secret.String{}, usage("this is no one-time address; it ends in #setup=TOKEN — copy all of it, in quotes")
}

func (a *app) loginCommand() *cobra.Command {
	var l login
	cmd := a.leaf("login", "Open a session and keep it for later commands",
		"atoll login --address http://127.0.0.1:8420\natoll login --socket /var/lib/atoll/atoll.sock --username ada", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			return a.logIn(ctx, l, "Username: ", false, func(c *client.Client, name string, pw secret.String) (client.Session, error) {
				return c.Login(ctx, name, pw)
			})
		})
	l.flags(cmd)
	return cmd
}

func (a *app) logIn(ctx context.Context, l login, prompt string, fresh bool, open func(*client.Client, string, secret.String) (client.Session, error)) error {
	c, creds, err := a.stranger(ctx)
	if err != nil {
		return err
	}
	if !c.Answers(ctx) {
		if err := c.Call(ctx, "node.version", nil, nil); err != nil {
			return err // before anybody types a password
		}
	}
	if client.Plain(c.Address()) {
		a.note("Note: %s is not encrypted; others on the way can read the password.", c.Address())
	}
	name := l.username
	if name == "" {
		if name, err = a.ask(ctx, prompt, false, "give --username NAME"); err != nil {
			return err
		}
	}
	pw, err := a.password(ctx, "Password: ", l.stdin, fresh)
	if err != nil {
		return err
	}
	s, err := open(c, name, pw)
	if err != nil {
		return err
	}
	if err := creds.Put(c.Address(), s); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]any{"address": c.Address(), "username": s.Username, "role": s.Role, "expires_at": s.ExpiresAt})
	}
	a.printf("Logged in at %s as %s (%s).", c.Address(), term.Clean(s.Username), term.Clean(s.Role))
	return nil
}

func (a *app) logoutCommand() *cobra.Command {
	return a.leaf("logout", "End the session and forget it", "atoll logout", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		creds, err := a.credentials()
		if err != nil {
			return err
		}
		err = c.Logout(ctx)
		if err != nil && !fault.Is(err, fault.Unauthenticated) {
			return err
		}
		if err := creds.Remove(c.Address()); err != nil {
			return err
		}
		return a.done("Logged out of %s.", c.Address())
	})
}

// done says that something was done.
func (a *app) done(format string, args ...any) error {
	if a.json {
		return a.printJSON(map[string]bool{"done": true})
	}
	a.printf(format, args...)
	return nil
}

func (a *app) versionCommand() *cobra.Command {
	return a.leaf("version", "Show the version of this program and of the node", "atoll version", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		v := struct {
			Version string         `json:"version"`
			Go      string         `json:"go"`
			Node    jsontext.Value `json:"node,omitzero"`
		}{Version: a.Version, Go: runtime.Version()}
		if c, _, err := a.stranger(ctx); err == nil {
			_ = c.Call(ctx, "node.version", nil, &v.Node) // no node is no error here
		}
		if a.json {
			return a.printJSON(v)
		}
		a.printf("atoll %s (%s)", v.Version, v.Go)
		if len(v.Node) > 0 {
			a.printf("node  %s", nodeVersion(v.Node))
		}
		return nil
	})
}

func (a *app) doctorCommand() *cobra.Command {
	var flag string
	cmd := a.leaf("doctor", "Check the configuration and the configured model", "atoll doctor\natoll doctor --data-dir /var/lib/atoll", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			dir, err := a.dataDir(flag)
			if err != nil {
				return err
			}
			if _, err := os.Stat(dir); err != nil {
				return fault.Wrap(err, fault.NotFound, "there is no data directory %s — start a node once with `atoll serve`, or give --data-dir", dir)
			}
			checks, err := a.Doctor(ctx, dir, runs(ctx, dir))
			if err != nil {
				return err
			}
			return a.showChecks(checks)
		})
	dataDirFlag(cmd, &flag)
	return cmd
}

func (a *app) showChecks(checks []Check) error {
	bad := 0
	for _, c := range checks {
		mark := "ok  "
		if !c.OK {
			mark = "FAIL"
			bad++
		}
		if a.json {
			continue
		}
		a.printf("%s  %s: %s", mark, term.Clean(c.Name), term.Clean(c.Detail))
		for _, line := range strings.Split(strings.TrimSpace(c.Fix), "\n") {
			if line != "" {
				a.printf("      %s", term.Line(line))
			}
		}
	}
	if a.json {
		if err := a.printJSON(map[string]any{"ok": bad == 0, "checks": checks}); err != nil {
			return err
		}
	}
	if bad > 0 {
		return silent(ExitFailed)
	}
	return nil
}
