package systemd

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"atoll/internal/fault"
)

const (
	destination = "org.freedesktop.systemd1"
	object      = dbus.ObjectPath("/org/freedesktop/systemd1")
	managerFace = "org.freedesktop.systemd1.Manager"
	propsFace   = "org.freedesktop.DBus.Properties"
	busFace     = "org.freedesktop.DBus"
)

const (
	connectTime = 10 * time.Second // for a link to be made
	callTime    = 10 * time.Second // for systemd to answer a question
	firstWait   = 250 * time.Millisecond
	longestWait = 15 * time.Second // between two tries to reach the bus
	goodLink    = 10 * time.Second // after which the waits begin anew
	patience    = 2 * time.Second  // that a call waits for the first try
	maxSignals  = 256
)

var errEnded = errors.New("the connection has ended")

// link is a connection to systemd, which ends by itself when the bus or systemd goes away.
type link struct {
	ctx     context.Context // ends with it
	end     context.CancelFunc
	calls   *sd.Conn
	bus     []*dbus.Conn // the two that calls uses: for questions, for signals
	owner   string       // systemd's own name on the bus: signals of any other sender are passed over
	signals chan *dbus.Signal
	jobs    jobs
}

// dial makes a link, without any subscription.
func dial(ctx context.Context, address string) (l *link, err error) {
	l = &link{signals: make(chan *dbus.Signal, maxSignals), jobs: jobs{waits: map[*wait]struct{}{}}}
	l.ctx, l.end = context.WithCancel(ctx)
	late := time.AfterFunc(connectTime, l.end)
	defer func() {
		if !late.Stop() && err == nil {
			err = errors.New("no answer in time")
		}
		if err != nil {
			l.close()
			l = nil
		}
	}()
	l.calls, err = sd.NewConnection(func() (*dbus.Conn, error) {
		conn, err := dbus.Connect(address, dbus.WithContext(l.ctx), dbus.WithAuth(dbus.AuthExternal(strconv.Itoa(os.Geteuid()))))
		if err == nil {
			l.bus = append(l.bus, conn)
		}
		return conn, err
	})
	if err != nil {
		return l, err
	}
	for _, conn := range l.bus {
		context.AfterFunc(conn.Context(), l.end)
	}
	l.bus[1].Signal(l.signals)
	return l, l.bus[1].BusObject().CallWithContext(l.ctx, busFace+".GetNameOwner", 0, destination).Store(&l.owner)
}

// close ends the link.
func (l *link) close() {
	l.end()
	for _, conn := range l.bus {
		_ = conn.Close()
	}
}

// subscribe asks for the signals about the listed units, and for no others.
func (l *link) subscribe(ctx context.Context, units map[string]*unit) error {
	conn := l.bus[1]
	match := func(options ...dbus.MatchOption) error { return conn.AddMatchSignalContext(ctx, options...) }
	err := errors.Join(
		match(dbus.WithMatchSender(busFace), dbus.WithMatchInterface(busFace), dbus.WithMatchMember("NameOwnerChanged"),
			dbus.WithMatchArg(0, destination)),
		match(dbus.WithMatchSender(destination), dbus.WithMatchInterface(managerFace), dbus.WithMatchMember("Reloading")))
	for _, u := range units {
		err = errors.Join(err, match(dbus.WithMatchSender(destination), dbus.WithMatchInterface(propsFace),
			dbus.WithMatchMember("PropertiesChanged"), dbus.WithMatchObjectPath(u.path)))
	}
	if err != nil {
		return err
	}
	return conn.Object(destination, object).CallWithContext(ctx, managerFace+".Subscribe", 0).Store()
}

// Run keeps the link with systemd until ctx ends: it takes what systemd tells and, when the bus goes away, tries again,
// less and less often. Calls that need a link fail meanwhile.
func (m *Manager) Run(ctx context.Context) {
	if len(m.names) == 0 {
		<-ctx.Done()
		return
	}
	first := sync.OnceFunc(func() { close(m.tried) })
	defer first()
	wait := firstWait
	for ctx.Err() == nil {
		began := time.Now()
		err := m.session(ctx, first)
		if ctx.Err() == nil {
			m.lost(err)
			first()
		}
		if time.Since(began) > goodLink {
			wait = firstWait
		}
		again := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-ctx.Done():
		case <-again.C:
		}
		again.Stop()
		wait = min(2*wait, longestWait)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.link, m.why = nil, fault.New(fault.Unavailable, "the node is closing")
}

// session is one link from its beginning to its end.
func (m *Manager) session(ctx context.Context, up func()) error {
	l, err := dial(ctx, m.cfg.Bus)
	if err != nil {
		return err
	}
	defer l.close()
	inner, cancel := context.WithTimeout(l.ctx, connectTime)
	defer cancel()
	if err := l.subscribe(inner, m.units); err != nil {
		return err
	}
	for _, name := range m.names {
		all, err := l.calls.GetAllPropertiesContext(inner, name)
		if err != nil && inner.Err() != nil {
			return err
		}
		m.units[name].begin(props(all))
	}
	m.mu.Lock()
	m.link, m.why = l, nil
	m.mu.Unlock()
	up()
	m.cfg.Log.Info("systemd is reached", "units", len(m.names))
	m.watchers.Tell(m.names...)
	return m.take(l)
}

// lost notes that there is no link. Only the first of several failures is worth a warning.
func (m *Manager) lost(err error) {
	why := unreachable(err, m.cfg.Bus)
	m.mu.Lock()
	had := m.link != nil || fault.Of(m.why).Public != why.Public
	m.link, m.why = nil, why
	m.mu.Unlock()
	if had {
		m.cfg.Log.Warn("systemd cannot be reached", "error", err)
		m.watchers.Tell(m.names...)
	}
}

// take handles signals until the link ends, and says why it did.
func (m *Manager) take(l *link) error {
	paths := map[dbus.ObjectPath]*unit{}
	for _, u := range m.units {
		paths[u.path] = u
	}
	for {
		select {
		case <-l.ctx.Done():
			return errEnded
		case s, ok := <-l.signals:
			if !ok {
				return errEnded
			}
			var name, old, owner string
			switch {
			case s.Sender == l.owner:
				m.told(l, paths, s)
			case s.Sender == busFace && s.Name == busFace+".NameOwnerChanged" && dbus.Store(s.Body, &name, &old, &owner) == nil &&
				name == destination && owner != l.owner:
				return errors.New("systemd has left the bus")
			}
		}
	}
}

func (m *Manager) told(l *link, paths map[dbus.ObjectPath]*unit, s *dbus.Signal) {
	switch s.Name {
	case managerFace + ".JobRemoved":
		var id uint32
		var job dbus.ObjectPath
		var name, result string
		if dbus.Store(s.Body, &id, &job, &name, &result) == nil {
			l.jobs.removed(id, name, result)
		}
	case managerFace + ".Reloading": // all definitions are read again
		var begins bool
		if dbus.Store(s.Body, &begins) == nil && !begins {
			m.watchers.Tell(m.names...)
		}
	case propsFace + ".PropertiesChanged":
		u := paths[s.Path]
		if u == nil || len(s.Body) < 2 {
			return
		}
		if changed, ok := s.Body[1].(map[string]dbus.Variant); ok && u.tell(changed) {
			m.watchers.Tell(u.name)
		}
	}
}

// reach returns the link there is, or why there is none. It waits a little for the first try.
func (m *Manager) reach(ctx context.Context) (*link, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-m.tried:
	case <-ctx.Done():
		return nil, fault.Wrap(ctx.Err(), fault.Cancelled, "cancelled before it began; nothing was done")
	case <-late.C:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.link == nil:
		return nil, m.why
	case m.link.ctx.Err() != nil: // its end is about to be noticed
		return nil, unreachable(errEnded, m.cfg.Bus)
	}
	return m.link, nil
}
