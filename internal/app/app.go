// Package app is the room of the apps on this machine: it lists them, reads their logs, starts and stops them, whatever
// runtime they belong to. It runs nothing itself: the runtimes below it do (process, docker, systemd).
package app

import (
	"context"
	"time"

	"atoll/internal/fence"
)

// Bare is the runtime whose apps go by their bare name; all others are runtime:name.
const Bare = "process"

// State is what an app is doing.
type State string

// The states. Exited is an end of the app's own, whatever its exit code; Failed means that it could not be started;
// Backoff waits for the next try of its restart policy; Partly is an app of several services of which some that should
// run do not; Paused has its processes frozen; Removed is sent once when an app is no longer there.
const (
	Starting State = "starting"
	Running  State = "running"
	Partly   State = "partly running"
	Paused   State = "paused"
	Stopping State = "stopping"
	Stopped  State = "stopped"
	Exited   State = "exited"
	Failed   State = "failed"
	Backoff  State = "backoff"
	Removed  State = "removed"
)

// Up reports whether the app has, or is about to have or lose, a process.
func (s State) Up() bool { return s == Running || s == Starting || s == Stopping }

// Down reports whether there is nothing of the app that could be stopped.
func (s State) Down() bool { return s == Stopped || s == Exited || s == Failed || s == Removed }

// Health is what an app's own check says of it; empty where it has none.
type Health string

// The healths, in Docker's words.
const (
	HealthStarting Health = "starting"
	Healthy        Health = "healthy"
	Unhealthy      Health = "unhealthy"
)

// Port is a port of an app that can be reached from outside it.
type Port struct {
	Address   string // it is bound to; empty means all
	Port      int    // on this machine
	Container int    // inside the app's container
	Protocol  string // "tcp", "udp", "sctp"
}

// App is one app as its runtime sees it.
type App struct {
	Name        string // within the runtime
	Foreign     bool   // its name was given by neither the owner's configuration nor Atoll (U1)
	Title       string // only one that the owner wrote
	State       State
	Since       time.Time // when the state began; zero means unknown
	PID         int       // zero when no process is known
	ExitCode    *int      // of the last end; nil means none or unknown
	Signal      string    // that ended it: "SIGKILL"
	ExitUnknown bool      // it ended while nobody could see how
	Reason      string    // why it could not be started or stopped; outside text
	Restarts    int       // by its restart policy, since a person or the node last started it
	CPUPercent  *float64  // of one processor, over the time since the figure was last taken
	MemoryBytes *uint64
	// DefinitionChanged means that it runs by an older definition; the new one counts from the next start.
	DefinitionChanged bool
	Image             string // outside text; of a container
	Health            Health
	Ports             []Port
	// Services are the parts of an app that has several, in the order in which they start. A service is an app too: its
	// name is the app's, a slash and its own, and every method of Runtime takes it.
	Services []App
	// Warning says, in Atoll's own words, what stopping it would take down beside itself: "Atoll runs in it".
	Warning string
}

// Problem is something that keeps an app from being there at all. Both texts can hold a stranger's words.
type Problem struct {
	File    string `json:"file,omitempty"`
	Problem string `json:"problem"`
}

// Line is one line of a log.
type Line struct {
	Time   time.Time  `json:"time,omitzero"` // zero where the runtime does not know it
	Stream fence.Word `json:"stream"`        // "output", "stdout", "stderr", or "atoll" for what the runtime itself did
	// Service is the part of the app that wrote it, where it has several.
	Service string `json:"service,omitempty"`
	Text    string `json:"text"` // valid UTF-8, no line break, at most MaxLine bytes
}

// MaxLine bounds a line of a log in bytes; what is longer is cut and Truncated set.
const MaxLine = 16 << 10

// Log is the end of an app's log, oldest line first.
type Log struct {
	Lines     []Line
	Truncated bool // a line was cut, or fewer lines than asked for fitted the bound
}

// Runtime is one kind of app on this machine. Implementations are safe for concurrent use; apptest holds them to one
// behaviour. Names are the runtime's own, without its prefix. Errors are *fault.Error: NotFound for an unknown name,
// Rule for an action that makes no sense in the app's state or with its definition, Busy for one that could not begin
// before the context ended, Unavailable where the runtime cannot be reached. A context's own error means that the
// action had begun and goes on.
type Runtime interface {
	// Name is the prefix of the runtime's ids, a word that never changes.
	Name() string
	// List returns every app, without figures of use, and the problems of those that cannot be listed.
	List(ctx context.Context) ([]App, []Problem, error)
	// Measure is List with figures of use. A share of the processor is over the time since Measure was last called.
	Measure(ctx context.Context) ([]App, []Problem, error)
	// Inspect returns one app as it is now, without figures of use.
	Inspect(ctx context.Context, name string) (App, error)
	// Examine is Inspect with nothing from memory, and with a fingerprint that identifies what would run beyond its state:
	// definition, image, unit. It is the same after a restart of the app or the node and differs once what would run
	// differs (F-A2, C11).
	Examine(ctx context.Context, name string) (a App, fingerprint string, err error)
	// Start, Stop and Restart return once the runtime has done it or knows that it failed; what came of it is read
	// with Inspect. Restart also starts an app that is not running.
	Start(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	Restart(ctx context.Context, name string) error
	// Logs returns at most n lines from the end, in bounded memory.
	Logs(ctx context.Context, name string, n int) (Log, error)
	// Follow gives emit the last n lines and then each new one, oldest first, from one goroutine. It goes on while the app
	// stops and starts again, and ends with ctx, with the error of emit, with NotFound once the app is gone, or with
	// Unavailable once the runtime is.
	Follow(ctx context.Context, name string, n int, emit func(Line) error) error
	// Watch calls changed with the name of each app whose state or definition changed, from one goroutine, until ctx
	// ends. It returns early only with an error.
	Watch(ctx context.Context, changed func(name string)) error
}
