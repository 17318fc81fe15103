package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"atoll/internal/app"
	"atoll/internal/app/docker/compose"
	"atoll/internal/app/docker/socket"
	"atoll/internal/cgroup"
	"atoll/internal/fault"
)

const (
	firstWait = 2 * time.Second        // for the engine's first answer after the node has started
	fresh     = 200 * time.Millisecond // an app looked at later than this is asked about again
	freshMax  = 32                     // containers of one app that are asked about on a look
	lookTime  = 5 * time.Second        // for the engine to answer about one app
)

// Config is what the runtime needs.
type Config struct {
	Log *slog.Logger
	// Socket is the engine's: "auto" looks in the usual places, "unix:///path" is one. Nothing is read from the process
	// environment.
	Socket string
	// RuntimeDir is the user's own runtime directory ($XDG_RUNTIME_DIR), for "auto"; empty means none.
	RuntimeDir string
	// SelfID tells the id of the container that this program runs in, or its beginning; nil finds it out.
	SelfID func() string
	// Model is the place of the assistant's model server, as host:port or address; empty means none of this kind.
	Model string
	Now   func() time.Time // nil means time.Now
}

// api is all that is ever asked of an engine. Nothing in it makes, changes or removes a container.
type api interface {
	ContainerList(context.Context, client.ContainerListOptions) (client.ContainerListResult, error)
	ContainerInspect(context.Context, string, client.ContainerInspectOptions) (client.ContainerInspectResult, error)
	ContainerLogs(context.Context, string, client.ContainerLogsOptions) (client.ContainerLogsResult, error)
	ContainerStart(context.Context, string, client.ContainerStartOptions) (client.ContainerStartResult, error)
	ContainerStop(context.Context, string, client.ContainerStopOptions) (client.ContainerStopResult, error)
	ContainerRestart(context.Context, string, client.ContainerRestartOptions) (client.ContainerRestartResult, error)
	Events(context.Context, client.EventsListOptions) client.EventsResult
	Ping(context.Context, client.PingOptions) (client.PingResult, error)
	ServerVersion(context.Context, client.ServerVersionOptions) (client.ServerVersionResult, error)
	io.Closer
}

// Engine is the containers of one engine. It is an app.Runtime; Run keeps it linked.
type Engine struct {
	cfg      Config
	sockets  []string
	auto     bool
	self     string
	model    compose.Server
	meter    *cgroup.Meter
	watchers app.Watchers
	turns    turns
	logIdle  time.Duration // how long a log that is not followed may be silent
	lookTime time.Duration // for the engine to answer about one app
	tried    sync.Once
	first    chan struct{} // closed by tried once the first try to reach the engine is over
	kick     chan struct{} // buffered; a container is to be asked about
	doubt    chan struct{} // buffered; the engine did not answer somebody

	mu     sync.Mutex // guards the fields below
	link   Link
	api    api // nil while the engine is not reached
	all    map[string]*compose.Container
	apps   *compose.Index // nil when it must be made anew
	ends   *compose.Ends
	dirty  map[string]struct{} // containers to be asked about
	life   context.Context     // of Run, for actions that outlive their callers; nil while it does not run
	work   sync.WaitGroup      // those actions
	missed string              // the socket of the engine that was linked last
}

var _ app.Runtime = (*Engine)(nil)

// Link is how things stand with the engine.
type Link struct {
	Up       bool
	Absent   bool      // no engine is there and none was configured: nobody misses it
	Since    time.Time // of this
	Socket   string    // that is used, or stands in the way
	Engine   string    // "Docker" or "Podman"
	Version  string    // outside text
	API      string    // version of its API, outside text
	Problem  string    // why it is not reached and what to do; outside text
	Besides  []string  // problems of other sockets that were passed over
	isPodman bool
}

// New checks the configuration. Nothing is asked of an engine before Run.
func New(cfg Config) (*Engine, error) {
	if cfg.Log == nil {
		return nil, errors.New("docker: no log")
	}
	sockets, auto, err := socket.Paths(cfg.Socket, cfg.RuntimeDir)
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	model, err := compose.ServerOf(cfg.Model, compose.ThisMachine)
	if err != nil {
		return nil, fmt.Errorf("docker: the model's place is no address: %w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.SelfID == nil {
		cfg.SelfID = func() string {
			name, _ := os.Hostname() // without one it is not found by name
			return compose.OwnID("/proc/self", name)
		}
	}
	return &Engine{
		cfg: cfg, sockets: sockets, auto: auto, model: model, self: cfg.SelfID(), meter: cgroup.NewMeter(cfg.Now), logIdle: logIdle, lookTime: lookTime,
		first: make(chan struct{}), kick: make(chan struct{}, 1), doubt: make(chan struct{}, 1),
		link: Link{Since: cfg.Now(), Problem: "the container engine has not been asked yet; try again in a moment"},
		all:  map[string]*compose.Container{}, ends: compose.NewEnds(), dirty: map[string]struct{}{},
	}, nil
}

// Name implements app.Runtime.
func (e *Engine) Name() string { return "docker" }

// State tells how things stand with the engine.
func (e *Engine) State() Link {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.link
}

// List implements app.Runtime. It answers from memory; while the engine is not reached there are no apps and a problem
// that says so.
func (e *Engine) List(ctx context.Context) ([]app.App, []app.Problem, error) {
	if err := e.await(ctx); err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	apps, problems := e.list()
	return apps, problems, nil
}

// Measure implements app.Runtime.
func (e *Engine) Measure(ctx context.Context) ([]app.App, []app.Problem, error) {
	if err := e.await(ctx); err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	apps, problems := e.list()
	tops, pids := e.indexed().Tops, e.processes()
	e.mu.Unlock()
	use := e.meter.Read(pids)
	for i := range apps {
		fill(&apps[i], tops[i], use)
	}
	return apps, problems, nil
}

// list is List; e.mu is held.
func (e *Engine) list() (apps []app.App, problems []app.Problem) {
	if e.link.Problem != "" {
		problems = append(problems, app.Problem{Problem: e.link.Problem})
	}
	for _, p := range e.link.Besides {
		problems = append(problems, app.Problem{Problem: p})
	}
	if !e.link.Up {
		return nil, problems
	}
	v := e.view()
	for _, g := range e.indexed().Tops {
		apps = append(apps, v.app(g))
	}
	return apps, problems
}

// processes are those of the containers, with the time since when each runs; e.mu is held. Seen from inside a container
// the engine's numbers are other processes, so there are none.
func (e *Engine) processes() map[int]time.Time {
	pids := map[int]time.Time{}
	for _, b := range e.all {
		if e.runsIn(b) && !b.HostPID {
			return nil
		}
		if b.PID > 0 {
			pids[b.PID] = b.Started
		}
	}
	return pids
}

func fill(a *app.App, g *compose.Group, use map[int]cgroup.Figures) {
	for _, b := range g.Members {
		f := use[b.PID]
		if f.CPUPercent != nil {
			if a.CPUPercent == nil {
				a.CPUPercent = new(float64)
			}
			*a.CPUPercent += *f.CPUPercent
		}
		if f.MemoryBytes != nil {
			if a.MemoryBytes == nil {
				a.MemoryBytes = new(uint64)
			}
			*a.MemoryBytes += *f.MemoryBytes
		}
	}
	for i := range a.Services {
		fill(&a.Services[i], g.Services[i], use)
	}
}

// Inspect implements app.Runtime. An app of few containers is asked about again where what is known is not of this
// moment.
func (e *Engine) Inspect(ctx context.Context, name string) (app.App, error) {
	g, _, err := e.locate(ctx, name)
	if err != nil {
		return app.App{}, err
	}
	var old []string
	now := e.cfg.Now()
	for _, b := range g.Members {
		if now.Sub(b.Seen) > fresh {
			old = append(old, b.ID)
		}
	}
	if len(old) > 0 && len(old) <= freshMax {
		look, cancel := context.WithTimeout(ctx, e.lookTime)
		defer cancel()
		if err := e.ask(look, old); err != nil {
			return app.App{}, e.unanswered(ctx, err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if g = e.indexed().ByID[name]; g == nil {
		return app.App{}, unknown(name)
	}
	return e.view().app(g), nil
}

// Examine implements app.Runtime. The engine is asked each time: what is decided on must be what is there (F-A2).
func (e *Engine) Examine(ctx context.Context, name string) (app.App, string, error) {
	g, err := e.refreshed(ctx, name)
	if err != nil {
		return app.App{}, "", err
	}
	mark := g.Fingerprint()
	if mark == "" {
		return app.App{}, "", fault.New(fault.Failed, "the engine's description of %s cannot be read, so it is not known what would run; see the node's log", quoted(name)).At("app")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.view().app(g), mark, nil
}

// refreshed finds an app as the engine has it now, with containers that were added or made anew under its name, of
// which no event may have come yet.
func (e *Engine) refreshed(ctx context.Context, name string) (*compose.Group, error) {
	g, from, err := e.find(ctx, name)
	if from == nil {
		return nil, err
	}
	look, cancel := context.WithTimeout(ctx, e.lookTime)
	defer cancel()
	refs, err := e.refs(look, from, name, g)
	if err == nil {
		err = e.ask(look, refs)
	}
	if err == nil && g != nil {
		err = e.ask(look, e.unasked(g))
	}
	if err != nil {
		return nil, e.unanswered(ctx, err)
	}
	g, _, err = e.find(ctx, name)
	return g, err
}

// refs are what to ask about an app so that containers come to light that it has and that are not known; g is nil where
// none of it is. A lone container is asked about by its name, which leads to it or to what took its place.
func (e *Engine) refs(ctx context.Context, from api, name string, g *compose.Group) ([]string, error) {
	lone, label := strings.TrimPrefix(name, "/"), compose.ProjectLabel(name)
	if g != nil {
		lone, label = g.Members[0].Name, g.Members[0].ProjectLabel()
	}
	var refs []string
	if (label == "" || g == nil) && compose.PathName.MatchString(lone) {
		refs = append(refs, lone)
	}
	if label == "" {
		return refs, nil
	}
	list, err := from.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", label)})
	for _, c := range list.Items {
		if compose.ValidID.MatchString(c.ID) && !slices.Contains(refs, c.ID) && e.box(c.ID) == nil {
			refs = append(refs, c.ID)
		}
	}
	return refs, err
}

// unasked are the containers of an app of which nothing was learned since it was found.
func (e *Engine) unasked(g *compose.Group) (ids []string) {
	for _, b := range g.Members {
		if e.box(b.ID) == b {
			ids = append(ids, b.ID)
		}
	}
	return ids
}

// await waits for the first try to reach the engine, so that a list asked for at once is not empty.
func (e *Engine) await(ctx context.Context) error {
	select {
	case <-e.first:
		return nil
	default:
	}
	late := time.NewTimer(firstWait)
	defer late.Stop()
	select {
	case <-e.first:
	case <-late.C:
	case <-ctx.Done():
		return fault.Wrap(ctx.Err(), fault.Cancelled, "cancelled before the container engine answered")
	}
	return nil
}

// find finds an app in memory, and the engine where it is reached.
func (e *Engine) find(ctx context.Context, name string) (*compose.Group, api, error) {
	if err := e.await(ctx); err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.link.Up {
		if e.link.Absent {
			return nil, nil, unknown(name)
		}
		return nil, nil, fault.New(fault.Unavailable, "%s", e.link.Problem)
	}
	g := e.indexed().ByID[name]
	if g == nil {
		return nil, e.api, unknown(name)
	}
	return g, e.api, nil
}

// locate finds an app in memory or, where it may be too new for that, at the engine.
func (e *Engine) locate(ctx context.Context, name string) (*compose.Group, api, error) {
	g, from, err := e.find(ctx, name)
	if g == nil && from != nil {
		g, err = e.refreshed(ctx, name)
	}
	return g, from, err
}

func unknown(name string) error {
	return fault.New(fault.NotFound, "there is no container app %s", quoted(name)).At("app")
}

// indexed groups the containers where they changed; e.mu is held.
func (e *Engine) indexed() *compose.Index {
	if e.apps == nil {
		e.apps = compose.Arrange(e.all)
	}
	return e.apps
}

// view is for words about apps; e.mu is held.
func (e *Engine) view() view {
	return view{now: e.cfg.Now(), podman: e.link.isPodman, warn: func(b *compose.Container) (w warning) {
		if e.runsIn(b) {
			w |= itself
		}
		if e.model.ServedBy(b) {
			w |= itsModel
		}
		return w
	}}
}

func (e *Engine) runsIn(b *compose.Container) bool {
	return len(e.self) >= 12 && strings.HasPrefix(b.ID, e.self)
}

// unanswered turns what came instead of an answer about an app into a fault. A silent engine is looked into.
func (e *Engine) unanswered(ctx context.Context, err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if ctx.Err() != nil {
		return fault.Wrap(ctx.Err(), fault.Cancelled, "cancelled before the container engine answered")
	}
	select {
	case e.doubt <- struct{}{}:
	default:
	}
	if socket.Said(err) == "" {
		return fault.Wrap(err, fault.Unavailable, "the container engine does not answer; look whether it runs")
	}
	return fault.Wrap(err, fault.Unavailable, "the container engine could not say: %s", quoted(socket.Said(err)))
}
