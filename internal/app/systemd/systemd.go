package systemd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"atoll/internal/app"
	"atoll/internal/fault"
)

const (
	runtimeName = "systemd"
	systemBus   = "unix:path=/run/dbus/system_bus_socket"
	journalctl  = "journalctl"
)

// Config is what the runtime needs.
type Config struct {
	Log *slog.Logger
	// Units are the only units that it knows, by systemd's full names; one without a type is a service.
	Units []string
	// Bus is the D-Bus address of systemd; empty means the system bus at its usual place, whatever the environment says.
	Bus string
	// Journalctl is the program that reads the journal: an absolute path, or a name that is looked for in the usual
	// places; empty means journalctl.
	Journalctl string
	Now        func() time.Time // nil means time.Now
}

// Manager is the listed units. It is safe for concurrent use. Run must run.
type Manager struct {
	cfg      Config
	names    []string         // in the owner's order
	units    map[string]*unit // by name; neither changes
	self     []string         // the control groups that this process is in
	root     string           // before the paths of unit files; empty but in tests
	watchers app.Watchers
	usage    usage
	tried    chan struct{} // closed once the bus has been tried for the first time

	mu   sync.Mutex // guards the fields below
	link *link      // nil while there is none
	why  error      // why there is none
}

// New checks the configuration and makes the runtime. It does not reach for the bus: Run does. It refuses, by name,
// everything on the list that is not one plain unit: patterns, templates, paths.
func New(cfg Config) (*Manager, error) {
	if cfg.Log == nil {
		return nil, errors.New("systemd: no log")
	}
	names, err := unitNames(cfg.Units)
	if err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Bus, cfg.Journalctl = cmp.Or(cfg.Bus, systemBus), cmp.Or(cfg.Journalctl, journalctl)
	if !strings.HasPrefix(cfg.Bus, "unix:") {
		return nil, fmt.Errorf("systemd: bus address %q is not one of a socket (unix:path=/…)", cfg.Bus)
	}
	if strings.Contains(cfg.Journalctl, "/") && !filepath.IsAbs(cfg.Journalctl) {
		return nil, fmt.Errorf("systemd: journalctl at %q: an absolute path is needed", cfg.Journalctl)
	}
	m := &Manager{cfg: cfg, names: names, units: map[string]*unit{}, self: ownGroups(), tried: make(chan struct{}),
		why: fault.New(fault.Unavailable, "systemd has not been reached yet")}
	for _, name := range names {
		m.units[name] = newUnit(name)
	}
	return m, nil
}

// ownGroups are the paths in /proc/self/cgroup.
func ownGroups() []string {
	b, _ := os.ReadFile("/proc/self/cgroup") // none: no unit is then known to hold this process
	var out []string
	for line := range strings.Lines(string(b)) {
		if i := strings.Index(line, ":/"); i >= 0 {
			out = append(out, strings.TrimSpace(line[i+1:]))
		}
	}
	return out
}

// Name implements app.Runtime.
func (m *Manager) Name() string { return runtimeName }

// idOf is a unit's name for a person.
func idOf(name string) string { return runtimeName + ":" + name }

// unit finds a listed unit. The name must be a listed one byte for byte: no other one ever reaches systemd.
func (m *Manager) unit(name string) (*unit, error) {
	if u := m.units[name]; u != nil {
		return u, nil
	}
	return nil, fault.New(fault.NotFound, "%+q is not on the list of systemd units", name[:min(len(name), 100)]).At("app")
}

// List implements app.Runtime. A listed unit that systemd does not have, or has under another name, is a problem.
func (m *Manager) List(ctx context.Context) ([]app.App, []app.Problem, error) {
	apps, problems, _, err := m.list(ctx)
	return apps, problems, err
}

// Measure implements app.Runtime.
func (m *Manager) Measure(ctx context.Context) ([]app.App, []app.Problem, error) {
	apps, problems, totals, err := m.list(ctx)
	if err == nil {
		m.usage.fill(apps, totals, m.cfg.Now())
	}
	return apps, problems, err
}

// list has what each listed app has used beside it.
func (m *Manager) list(ctx context.Context) (apps []app.App, problems []app.Problem, totals []total, err error) {
	if len(m.names) == 0 {
		return nil, nil, nil, nil
	}
	l, err := m.reach(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, name := range m.names {
		u := m.units[name]
		p, err := m.read(ctx, l, u)
		if err == nil {
			err = missing(u, p)
		}
		switch {
		case err == nil:
			apps = append(apps, m.view(u, p))
			totals = append(totals, totalOf(p))
		case l.ctx.Err() != nil || ctx.Err() != nil:
			return nil, nil, nil, err
		default:
			problems = append(problems, app.Problem{File: name, Problem: fault.Of(err).Public})
		}
	}
	return apps, problems, totals, nil
}

// Inspect implements app.Runtime.
func (m *Manager) Inspect(ctx context.Context, name string) (app.App, error) {
	u, p, err := m.look(ctx, name)
	if err != nil {
		return app.App{}, err
	}
	return m.view(u, p), nil
}

// look reads a listed unit that is there.
func (m *Manager) look(ctx context.Context, name string) (*unit, props, error) {
	u, err := m.unit(name)
	if err != nil {
		return nil, nil, err
	}
	l, err := m.reach(ctx)
	if err != nil {
		return nil, nil, err
	}
	p, err := m.read(ctx, l, u)
	if err != nil {
		return nil, nil, err
	}
	return u, p, missing(u, p)
}

// read asks systemd for the unit's properties.
func (m *Manager) read(ctx context.Context, l *link, u *unit) (props, error) {
	inner, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	all, err := l.calls.GetAllPropertiesContext(inner, u.name)
	if err != nil {
		return nil, notRead(ctx, l, u.name, err)
	}
	return u.latest(props(all), m.cfg.Now()), nil
}

// missing is the error for a unit that is not an app: not there, or only another name of one that is. One that still
// runs without its file is there.
func missing(u *unit, p props) error {
	if id := p.text("Id"); id != "" && id != u.name {
		return fault.New(fault.NotFound, "%s is another name of %+q; list the unit by that name", u.name, id).At("app")
	}
	if p.text("LoadState") == "not-found" && down(p) {
		return fault.New(fault.NotFound, "systemd has no unit %s", u.name).At("app")
	}
	return nil
}
