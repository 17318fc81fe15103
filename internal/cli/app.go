package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"atoll/internal/cli/client"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
	"atoll/internal/secret"
)

// app is one run of the program.
type app struct {
	Deps
	json    bool
	address string
	socket  string
	started bool          // a command runs: errors are no longer ones of usage
	lines   *bufio.Reader // stdin, once something was read from it
}

func unreachable(err error) bool { return errors.Is(err, client.ErrUnreachable) }

// run wraps what a command does.
func (a *app) run(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return f(cmd.Context(), args)
	}
}

// usage is a mistake of the person that only shows once a command runs.
func usage(format string, args ...any) error {
	return usageError{error: fault.New(fault.InvalidParams, format, args...)}
}

// dataDir is the data directory: the flag, the environment, the default of the node.
func (a *app) dataDir(flag string) (string, error) {
	dir := flag
	for _, try := range []string{a.Env("ATOLL_DATA_DIR"), a.Env("STATE_DIRECTORY")} {
		if dir == "" {
			dir = try
		}
	}
	if base := a.Env("XDG_DATA_HOME"); dir == "" && base != "" {
		dir = filepath.Join(base, "atoll")
	}
	if home := a.Env("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".local", "share", "atoll")
	}
	if dir == "" {
		return "", usage("no data directory is known — give --data-dir")
	}
	return filepath.Abs(dir)
}

// socketOf is where a node with that data directory listens.
func socketOf(dir string) string { return filepath.Join(dir, "atoll.sock") }

// runs reports whether a node holds the data directory: its socket accepts.
func runs(ctx context.Context, dir string) bool {
	d := net.Dialer{Timeout: 2 * time.Second}
	conn, err := d.DialContext(ctx, "unix", socketOf(dir))
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// credentials is the file of sessions.
func (a *app) credentials() (*client.Credentials, error) {
	base := a.Env("XDG_CONFIG_HOME")
	if base == "" {
		if a.Env("HOME") == "" {
			return nil, fault.New(fault.Failed, "no place for sessions is known — set HOME or XDG_CONFIG_HOME")
		}
		base = filepath.Join(a.Env("HOME"), ".config")
	}
	return client.OpenCredentials(filepath.Join(base, "atoll", "credentials.json")), nil
}

// target is the address to talk to: --address, --socket, ATOLL_ADDRESS, the last login, the socket of the node here, and
// else where a node listens by default.
func (a *app) target(ctx context.Context, creds *client.Credentials) (string, error) {
	switch {
	case a.address != "" && a.socket != "":
		return "", usage("give --address or --socket, not both")
	case a.address != "":
		return client.Address(a.address)
	case a.socket != "":
		path, err := filepath.Abs(a.socket)
		if err != nil {
			return "", err
		}
		return client.Address("unix://" + path)
	case a.Env("ATOLL_ADDRESS") != "":
		return client.Address(a.Env("ATOLL_ADDRESS"))
	}
	if current, err := creds.Current(); err != nil || current != "" {
		return current, err
	}
	if dir, err := a.dataDir(""); err == nil && runs(ctx, dir) {
		return client.Address("unix://" + socketOf(dir))
	}
	return client.Address("http://127.0.0.1:8420")
}

// stranger makes a client without a session.
func (a *app) stranger(ctx context.Context) (*client.Client, *client.Credentials, error) {
	creds, err := a.credentials()
	if err != nil {
		return nil, nil, err
	}
	address, err := a.target(ctx, creds)
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(client.Config{Address: address, ChatTimeout: a.ChatTimeout})
	return c, creds, err
}

// connect makes a client with the session kept for the address.
func (a *app) connect(ctx context.Context) (*client.Client, error) {
	c, creds, err := a.stranger(ctx)
	if err != nil {
		return nil, err
	}
	session, ok, err := creds.Get(c.Address())
	if err != nil {
		return nil, err
	}
	if !ok {
		if !c.Answers(ctx) {
			return nil, c.Call(ctx, "node.version", nil, nil) // says why it cannot be reached
		}
		return nil, fault.New(fault.Unauthenticated, "not logged in at %s — run `atoll login`, or `atoll setup ADDRESS` on a new node", c.Address())
	}
	return client.New(client.Config{Address: c.Address(), Session: session, ChatTimeout: a.ChatTimeout})
}

// maxInput bounds a line read from stdin.
const maxInput = 64 << 10

// readLine reads one line of stdin.
func (a *app) readLine() (string, error) {
	if a.lines == nil {
		a.lines = bufio.NewReaderSize(a.Stdin, maxInput)
	}
	line, err := a.lines.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", usage("a line on standard input is too long")
	case err != nil && !errors.Is(err, io.EOF):
		return "", fault.Wrap(err, fault.Failed, "standard input cannot be read")
	case len(line) == 0:
		return "", usage("standard input ended too early")
	}
	return strings.TrimRight(string(line), "\r\n"), nil
}

// ask asks a person for one line. Without a terminal it is a mistake of usage, and words say what to give instead.
func (a *app) ask(ctx context.Context, prompt string, hidden bool, words string) (string, error) {
	in, out := term.File(a.Stdin), term.File(a.Stderr)
	if out == nil {
		out = term.File(a.Stdout)
	}
	if in == nil || out == nil {
		return "", usage("there is no terminal to ask on — %s", words)
	}
	t, err := term.Open(in, out)
	if err != nil {
		return "", fault.Wrap(err, fault.Failed, "the terminal cannot be used")
	}
	line, err := t.ReadLine(ctx, prompt, hidden)
	return line, errors.Join(err, t.Close())
}

// username asks for the name where none was given.
func (a *app) username(ctx context.Context, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	return a.ask(ctx, "Username: ", false, "give --username NAME")
}

// password reads a password: a line of stdin, or hidden from the terminal, twice where it is a new one.
func (a *app) password(ctx context.Context, prompt string, fromStdin, fresh bool) (secret.String, error) {
	if fromStdin {
		line, err := a.readLine()
		return secret.New(line), err
	}
	first, err := a.ask(ctx, prompt, true, "give --password-stdin")
	if err != nil || !fresh {
		return secret.New(first), err
	}
	second, err := a.ask(ctx, "Once more: ", true, "give --password-stdin")
	if err == nil && first != second {
		return secret.String{}, usage("the two passwords are not the same — nothing was done")
	}
	return secret.New(first), err
}
