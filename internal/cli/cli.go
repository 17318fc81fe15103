// Package cli is the command line: it reads what a person typed, calls the node like any other client, and shows the
// answer. It holds no rule of the node; what needs the node itself comes in as functions.
package cli

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"atoll/internal/fault"
	"atoll/internal/secret"
)

// Exit codes. They are documented in the help text and do not change.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitRefused     = 3 // the node, or a person, said no
	ExitLogin       = 4 // no live session
	ExitUnreachable = 5 // no node answers
)

// Deps is what the command line needs from the program around it. Every field is required.
type Deps struct {
	// Stdin, Stdout and Stderr. Only an *os.File that is a terminal can be one for the person who is asked.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Env reads one variable of the environment.
	Env func(name string) string
	// Version of this program.
	Version string
	// ChatTimeout is how long a client waits for its chat call: confirm.ClientTime (C9).
	ChatTimeout time.Duration

	// Serve runs a node until ctx ends. It prints its own first line (the one-time address) and logs to stderr.
	Serve func(ctx context.Context, o ServeOptions) error
	// Try starts a node in this process. It must write nothing to the terminal.
	Try func(ctx context.Context, o TryOptions) (*Local, error)

	// These work on the data directory of a stopped node and refuse, by a fault, where one holds it. dir is absolute.
	UserAdd     func(ctx context.Context, dir, username, role string, password secret.String) error
	UserList    func(ctx context.Context, dir string) ([]User, error)
	UserPasswd  func(ctx context.Context, dir, username string, password secret.String) error
	UserRemove  func(ctx context.Context, dir, username string) error
	UserSetRole func(ctx context.Context, dir, username, role string) error
	// AuditVerify checks the chain; head is a hash to find in it, or empty.
	AuditVerify func(ctx context.Context, dir, head string) (AuditReport, error)
	// AuditExport writes every record as a JSON line, oldest first.
	AuditExport func(ctx context.Context, dir string, w io.Writer) error
	// Doctor checks the configuration and the configured model (B5). running says that a node holds the directory: then
	// it must only read.
	Doctor func(ctx context.Context, dir string, running bool) ([]Check, error)
	// Eval runs the attack suite. An ended context is no error: the result says that it was stopped.
	Eval func(ctx context.Context, o EvalOptions) (*EvalResult, error)
}

// ServeOptions are the flags of serve. An empty value was not given, so environment, file and default decide.
type ServeOptions struct {
	DataDir string
	Listen  string
}

// TryOptions are the flags of try.
type TryOptions struct {
	DataDir string // empty: a temporary directory, removed by Local.Close
}

// Local is a node that runs in this process, with a session of its owner that is held in memory only.
type Local struct {
	Address   string // for client.Address: "http://127.0.0.1:PORT" or "unix:///DIR/atoll.sock"
	Session   secret.String
	CSRF      secret.String
	Username  string
	DataDir   string
	Temporary bool                        // DataDir is removed by Close
	Close     func(context.Context) error // stops the node and its sample app
}

// User is one account, as users.list gives it.
type User struct {
	Username string `json:"username"`
	Role     string `json:"role"`
}

// AuditReport is what audit.verify answers.
type AuditReport struct {
	OK      bool      `json:"ok"`
	Records int64     `json:"records"`
	Head    string    `json:"head"`
	HeadAt  time.Time `json:"head_at,omitzero"`
	Broken  int64     `json:"broken,omitzero"` // the first broken or missing record
	Problem string    `json:"problem,omitempty"`
}

// Check is one line of doctor.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // what to do where OK is false
}

func (d Deps) check() error {
	for _, missing := range []bool{d.Stdin == nil, d.Stdout == nil, d.Stderr == nil, d.Env == nil, d.ChatTimeout <= 0, d.Serve == nil,
		d.Try == nil, d.UserAdd == nil, d.UserList == nil, d.UserPasswd == nil, d.UserRemove == nil, d.UserSetRole == nil,
		d.AuditVerify == nil, d.AuditExport == nil, d.Doctor == nil, d.Eval == nil} {
		if missing {
			return errors.New("cli: a field of Deps is not set")
		}
	}
	return nil
}

// Main runs one command and returns the exit code. ctx should end with SIGINT, SIGTERM and SIGHUP.
func Main(ctx context.Context, args []string, deps Deps) int {
	if err := deps.check(); err != nil {
		panic(err) // a mistake of the program around this package
	}
	a := &app{Deps: deps}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(deps.Stdin)
	root.SetOut(deps.Stdout)
	root.SetErr(deps.Stderr)
	ran, err := root.ExecuteContextC(ctx)
	if err != nil && !a.started {
		a.json = a.json || slices.Contains(args, "--json") // a mistake before it stops the parsing of flags
		err = usageError{err, ran.CommandPath()}
	}
	if err != nil {
		a.showError(err)
	}
	return exitCode(err)
}

// usageError is a mistake in how a command was written.
type usageError struct {
	error
	command string
}

func (e usageError) Unwrap() error { return e.error }

// silent is an exit code whose reason was already shown.
type silent int

func (silent) Error() string { return "" }

func exitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if s, ok := errors.AsType[silent](err); ok {
		return int(s)
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return ExitUsage
	}
	if unreachable(err) {
		return ExitUnreachable
	}
	return codeExit(fault.Of(err).Code)
}

// codeExit groups the codes of refusals.
func codeExit(code fault.Code) int {
	switch code {
	case fault.Unauthenticated, fault.CSRF:
		return ExitLogin
	case fault.InvalidParams:
		return ExitUsage
	case fault.NotGranted, fault.Rule, fault.Declined, fault.Expired, fault.Cancelled, fault.NobodyToAsk, fault.Changed, fault.TooSoon,
		fault.Dropped, fault.RateLimited, fault.TooManyCalls, fault.ReadOnly, fault.Off, fault.Busy, fault.Budget, fault.Forbidden:
		return ExitRefused
	}
	return ExitFailed
}
