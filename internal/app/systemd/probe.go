package systemd

import (
	"context"
	"os"
	"strings"
	"time"

	"atoll/internal/app"
	"atoll/internal/fault"
)

const probeTime = 20 * time.Second

// Report is what Probe found.
type Report struct {
	Bus     error  // why systemd cannot be reached; nil if it can
	Version string // systemd's own, where it was reached
	Units   []UnitReport
	Journal error // why logs cannot be read; nil if they can
	// User is who the node runs as. Rule lets that user start, stop and restart the listed units, by a file at RuleFile; it
	// is empty for root. Whether polkit has such a rule already cannot be asked without trying.
	User string
	Rule string
}

// UnitReport is what there is of one listed unit.
type UnitReport struct {
	Name    string
	State   app.State // empty where there is a problem
	Problem string    // not there, masked, not to be started by hand: empty means none; outside text
}

// Probe looks at what the configuration names, for a person who sets the node up. It starts nothing. The error is one of
// the configuration.
func Probe(ctx context.Context, cfg Config) (Report, error) {
	m, err := New(cfg)
	if err != nil {
		return Report{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	r := Report{User: nodeUser()}
	if os.Geteuid() != 0 && len(m.names) > 0 {
		r.Rule = PolkitRule(r.User, m.names)
	}
	if l, err := dial(ctx, m.cfg.Bus); err != nil {
		r.Bus = unreachable(err, m.cfg.Bus)
	} else {
		defer l.close()
		if v, err := l.calls.GetManagerProperty("Version"); err == nil { // as D-Bus writes it, in quotes
			r.Version = clip(strings.Trim(v, `"`))
		}
		for _, name := range m.names {
			r.Units = append(r.Units, m.probe(ctx, l, m.units[name]))
		}
	}
	unit := "dbus.service"
	if len(m.names) > 0 {
		unit = m.names[0]
	}
	r.Journal = m.journal(ctx, unit, lastLines(1), func([]app.Line, bool) error { return nil })
	return r, nil
}

func (m *Manager) probe(ctx context.Context, l *link, u *unit) UnitReport {
	r := UnitReport{Name: u.name}
	p, err := m.read(ctx, l, u)
	if err == nil {
		err = missing(u, p)
	}
	if err == nil {
		r.State = m.view(u, p).State
		if errStart := m.admit(u, p, restart); errStart != nil {
			err = errStart
		}
	}
	if err != nil {
		r.Problem = fault.Of(err).Public
	}
	return r
}
