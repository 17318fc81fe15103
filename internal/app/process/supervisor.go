package process

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"atoll/internal/app"
	"atoll/internal/fault"
	"atoll/internal/journal"
	"atoll/internal/proc"
)

const defaultLogBytes = 8 << 20

// Whose words a line of a log is. One file takes stdout and stderr, so that their order is kept and no pipe runs through
// the node.
const (
	outputStream = "output"
	noteStream   = "atoll"
)

// Config is what a supervisor needs. Zero values other than Dir and Log have defaults.
type Config struct {
	Dir string // the data directory: apps/, logs/ and run/ are in it
	Log *slog.Logger
	// Launcher is the command line of a program that calls Launch; default this program with LaunchArg.
	Launcher []string
	// StopOnClose stops the apps with the supervisor. Otherwise they go on, and the next supervisor takes them over.
	StopOnClose  bool
	Now          func() time.Time
	RetryFirst   time.Duration // wait before the first try of a restart policy; default 1 s, then doubled
	RetryMax     time.Duration // default 1 min
	HealthyAfter time.Duration // up for this long, an app starts over with RetryFirst; default 30 s
	MaxLogBytes  int64         // of the newest of three files; default 8 MiB
	RotateEvery  time.Duration // between two looks at the logs' sizes; default 1 s
}

// Supervisor runs the apps defined in the data directory. It is an app.Runtime. Exactly one may be open on a directory;
// the node's own lock holds that.
type Supervisor struct {
	cfg             Config
	apps, logs, run string // folders
	boot            string
	who             account
	quit            chan struct{}
	wg              sync.WaitGroup // every goroutine of the supervisor and its units
	watchers        app.Watchers
	usage           usage

	mu       sync.Mutex // guards the fields below; before unit.mu
	units    map[string]*unit
	files    map[string]file
	problems []app.Problem
	seen     map[string]bool // names that had their automatic start
	closed   bool
}

var _ app.Runtime = (*Supervisor)(nil)

// New reads the definitions, takes over the apps that are still running, starts the automatic ones and watches the
// folder. Close ends it.
func New(cfg Config) (*Supervisor, error) {
	if cfg.Dir == "" || cfg.Log == nil {
		return nil, errors.New("process: no data directory or no log")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if len(cfg.Launcher) == 0 {
		cfg.Launcher = []string{"/proc/self/exe", LaunchArg}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.RetryFirst = cmp.Or(cfg.RetryFirst, time.Second)
	cfg.RetryMax = cmp.Or(cfg.RetryMax, time.Minute)
	cfg.HealthyAfter = cmp.Or(cfg.HealthyAfter, 30*time.Second)
	cfg.MaxLogBytes = cmp.Or(cfg.MaxLogBytes, defaultLogBytes)
	cfg.RotateEvery = cmp.Or(cfg.RotateEvery, time.Second)
	s := &Supervisor{
		cfg: cfg, apps: filepath.Join(dir, "apps"), logs: filepath.Join(dir, "logs"), run: filepath.Join(dir, "run"),
		boot: proc.BootID(), who: account{os.Geteuid(), user.Lookup}, quit: make(chan struct{}),
		units: map[string]*unit{}, seen: map[string]bool{},
	}
	for _, d := range []string{s.apps, s.logs, s.run} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	w, err := fsnotify.NewWatcher()
	if err == nil {
		err = w.Add(s.apps)
	}
	if err != nil {
		cfg.Log.Warn("the folder of app definitions cannot be watched and is read every few seconds", "error", err)
		if w != nil {
			_ = w.Close()
			w = nil
		}
	}
	s.reload()
	s.adoptOrphans()
	s.wg.Go(func() { s.watchFolder(w, lookAt(s.apps).ino) })
	s.wg.Go(s.rotateLogs)
	return s, nil
}

// Close ends the supervision and waits for it. With StopOnClose the apps are stopped first, each with its own time; when
// ctx ends before that, what is left is killed.
func (s *Supervisor) Close(ctx context.Context) {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	if again {
		s.wg.Wait()
		return
	}
	if s.cfg.StopOnClose {
		var stops sync.WaitGroup
		for _, u := range s.all() {
			stops.Go(func() { _ = s.ask(ctx, u, stop) }) // refused where it is down
		}
		stops.Wait()
	}
	close(s.quit)
	s.wg.Wait()
}

func (s *Supervisor) closing() bool {
	select {
	case <-s.quit:
		return true
	default:
		return false
	}
}

// adoptOrphans takes over processes whose definition is gone or bad, so that they can be seen and stopped.
func (s *Supervisor) adoptOrphans() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range recorded(s.run) {
		if s.units[name] != nil {
			continue
		}
		if rec, err := readRecord(recordPath(s.run, name)); err == nil && rec.PID != 0 && rec.Boot == s.boot {
			s.add(name, nil)
		}
	}
}

// reload brings the units in line with the folder.
func (s *Supervisor) reload() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	before := s.problems
	s.files, s.problems = scan(s.apps, s.who)
	for _, p := range s.problems {
		if !slices.Contains(before, p) {
			s.cfg.Log.Warn("a definition cannot be used", "file", p.File, "problem", p.Problem)
		}
	}
	for name, u := range s.units {
		u.define(s.files[name].def)
	}
	for name, f := range s.files {
		if f.def != nil && s.units[name] == nil {
			s.add(name, f.def)
		}
	}
}

// add makes a unit; s.mu is held. A name is started by itself at most once in a supervisor's life, so that a file which
// an editor takes away and puts back starts nothing.
func (s *Supervisor) add(name string, def *definition) {
	u := newUnit(s, name, def, def != nil && def.Autostart && !s.seen[name])
	s.seen[name] = true
	s.units[name] = u
	s.wg.Go(u.run)
	s.watchers.Tell(name)
}

// drop forgets a unit that has neither definition nor process.
func (s *Supervisor) drop(u *unit) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := u.view(); ok {
		return false
	}
	delete(s.units, u.name)
	close(u.gone)
	s.watchers.Tell(u.name)
	return true
}

func (s *Supervisor) all() []*unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*unit, 0, len(s.units))
	for _, u := range s.units {
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b *unit) int { return cmp.Compare(a.name, b.name) })
	return out
}

// unit finds an app by its exact name, after reading its file again if that changed: what is decided on must be what
// the disk says (F-A2).
func (s *Supervisor) unit(name string) (*unit, error) {
	if !appName.MatchString(name) {
		return nil, s.unknown(name)
	}
	now := lookAt(filepath.Join(s.apps, name+".yaml"))
	s.mu.Lock()
	stale := s.files[name].id != now
	s.mu.Unlock()
	if stale {
		s.reload()
	}
	s.mu.Lock()
	u := s.units[name]
	s.mu.Unlock()
	if u != nil {
		return u, nil
	}
	if why := s.problem(name); why != "" {
		return nil, fault.New(fault.Rule, "%s cannot be used as an app: apps/%s.yaml has a problem: %s", name, name, why).At("app")
	}
	return nil, s.unknown(name)
}

// problem is the first thing wrong with the definition of an app, or "".
func (s *Supervisor) problem(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.problems {
		if p.File == name+".yaml" {
			return p.Problem
		}
	}
	return ""
}

func (s *Supervisor) unknown(name string) error {
	return fault.New(fault.NotFound, "there is no app %q", clip(name)).At("app")
}

// Name implements app.Runtime.
func (s *Supervisor) Name() string { return app.Bare }

// List implements app.Runtime.
func (s *Supervisor) List(context.Context) ([]app.App, []app.Problem, error) {
	var out []app.App
	for _, u := range s.all() {
		if a, ok := u.view(); ok {
			out = append(out, a)
		}
	}
	s.mu.Lock()
	problems := slices.Clone(s.problems)
	s.mu.Unlock()
	return out, problems, nil
}

// Measure implements app.Runtime.
func (s *Supervisor) Measure(ctx context.Context) ([]app.App, []app.Problem, error) {
	apps, problems, err := s.List(ctx)
	s.usage.fill(apps, s.cfg.Now())
	return apps, problems, err
}

// Inspect implements app.Runtime.
func (s *Supervisor) Inspect(_ context.Context, name string) (app.App, error) {
	u, err := s.unit(name)
	if err != nil {
		return app.App{}, err
	}
	a, ok := u.view()
	if !ok {
		return app.App{}, s.unknown(name)
	}
	return a, nil
}

// Logs implements app.Runtime.
func (s *Supervisor) Logs(_ context.Context, name string, n int) (app.Log, error) {
	u, err := s.unit(name)
	if err != nil {
		return app.Log{}, err
	}
	end, err := u.journal.Tail(n)
	if err != nil {
		return app.Log{}, fault.Wrap(err, fault.Unavailable, "the log of %s cannot be read", name)
	}
	log := app.Log{Lines: make([]app.Line, len(end.Lines)), Truncated: end.Truncated}
	for i, l := range end.Lines {
		log.Lines[i] = lineOf(l)
	}
	return log, nil
}

// Follow implements app.Runtime.
func (s *Supervisor) Follow(ctx context.Context, name string, n int, emit func(app.Line) error) error {
	u, err := s.unit(name)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(ctx)
	var ends sync.WaitGroup
	defer ends.Wait()
	defer cancel(nil)
	ends.Go(func() {
		select {
		case <-u.gone:
			cancel(s.unknown(name))
		case <-s.quit:
			cancel(fault.New(fault.Unavailable, "the node is closing"))
		case <-inner.Done():
		}
	})
	err = u.journal.Follow(inner, n, func(l journal.Line) error { return emit(lineOf(l)) })
	_, isPath := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, context.Canceled) && inner.Err() != nil:
		return context.Cause(inner)
	case isPath || errors.Is(err, errors.ErrUnsupported):
		return fault.Wrap(err, fault.Unavailable, "the log of %s cannot be read", name)
	}
	return err
}

func lineOf(l journal.Line) app.Line {
	line := app.Line{Time: l.Time, Stream: outputStream, Text: l.Text}
	if l.Note {
		line.Stream = noteStream
	}
	return line
}

// Start implements app.Runtime.
func (s *Supervisor) Start(ctx context.Context, name string) error { return s.do(ctx, name, start) }

// Stop implements app.Runtime. Every process of the app's session is gone when it returns nil.
func (s *Supervisor) Stop(ctx context.Context, name string) error { return s.do(ctx, name, stop) }

// Restart implements app.Runtime.
func (s *Supervisor) Restart(ctx context.Context, name string) error { return s.do(ctx, name, restart) }

func (s *Supervisor) do(ctx context.Context, name string, v verb) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return fault.New(fault.Unavailable, "the node is closing; nothing was done")
	}
	u, err := s.unit(name)
	if err != nil {
		return err
	}
	return s.ask(ctx, u, v)
}

// ask hands a request to the unit's goroutine. Until that takes it, nothing happens; after that it runs to its end,
// whatever becomes of ctx.
func (s *Supervisor) ask(ctx context.Context, u *unit, v verb) error {
	r := request{verb: v, reply: make(chan error, 1)}
	if err := ctx.Err(); err != nil {
		return fault.Wrap(err, fault.Cancelled, "cancelled before it began; nothing was done")
	}
	select {
	case u.requests <- r:
	case <-ctx.Done():
		return fault.Wrap(ctx.Err(), fault.Busy, "%s is still %s; nothing was done", u.name, u.state())
	case <-u.gone:
		return s.unknown(u.name)
	case <-s.quit:
		return fault.New(fault.Unavailable, "the node is closing; nothing was done")
	}
	select {
	case err := <-r.reply:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
