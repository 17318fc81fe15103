package docker

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"atoll/internal/app"
	"atoll/internal/app/docker/compose"
)

// tryAgain is how long after the end of a Podman container its restart policy may still be at work: Podman has no word
// for that time.
const tryAgain = 10 * time.Second

// warning is what goes down with a container beside itself.
type warning uint8

const (
	itself warning = 1 << iota
	itsModel
)

func (w warning) words() string {
	var out []string
	if w&itself != 0 {
		out = append(out, "Atoll itself runs in it; stopping it ends this node.")
	}
	if w&itsModel != 0 {
		out = append(out, "It serves the assistant's model; without it the assistant does not answer.")
	}
	return strings.Join(out, " ")
}

// view is what the words for an app depend on beside its containers.
type view struct {
	now    time.Time
	podman bool
	warn   func(*compose.Container) warning
}

// app describes a group.
func (v view) app(g *compose.Group) app.App {
	a := app.App{Name: g.ID, Foreign: true}
	var w warning
	var ports []compose.Port
	for _, b := range g.Members {
		a.Restarts += b.Restarts
		ports = append(ports, b.Ports...)
		a.Health = worse(a.Health, app.Health(b.Health))
		w |= v.warn(b)
	}
	a.Warning = w.words()
	for _, p := range compose.TidyPorts(ports) {
		a.Ports = append(a.Ports, app.Port(p))
	}
	if g.Service != "" || g.Project == "" {
		a.Image = g.Members[0].Image
	}
	if len(g.Members) == 1 {
		v.one(&a, g.Members[0])
	} else {
		v.several(&a, g.Members)
	}
	for _, s := range g.Services {
		a.Services = append(a.Services, v.app(s))
	}
	return a
}

// one fills in the state of an app of a single container.
func (v view) one(a *app.App, b *compose.Container) {
	a.State, a.PID = v.state(b), b.PID
	switch a.State {
	case app.Running, app.Paused:
		a.Since = b.Started
		return
	case app.Failed:
		a.Reason = fmt.Sprintf(brief, b.Reason)
	}
	if a.Since = b.Ended; a.Since.IsZero() {
		a.Since = b.Created
		return
	}
	code := b.Code
	a.ExitCode = &code
	if b.Code > 128 && b.Code < 160 {
		a.Signal = unix.SignalName(syscall.Signal(b.Code - 128))
	}
	if b.OOM {
		a.Reason = "the kernel ended it for want of memory"
	}
}

// several fills in the state of an app of more than one container: that of those that should run.
func (v view) several(a *app.App, boxes []*compose.Container) {
	count := map[app.State]int{}
	var last *compose.Container // to begin or to end
	should := 0
	for _, b := range boxes {
		if b.Done() {
			continue
		}
		should++
		count[v.state(b)]++
	}
	a.State = together(count, should)
	for _, b := range boxes {
		one := v.state(b)
		if should > 0 && b.Done() || a.State == app.Partly && one == app.Running {
			continue // what is amiss says since when
		}
		if last == nil || v.since(b).After(v.since(last)) {
			last = b
		}
		if one == a.State && (one == app.Failed || one == app.Exited && b.Code != 0) && a.Reason == "" && a.ExitCode == nil {
			code := b.Code
			a.Reason, a.ExitCode = fmt.Sprintf(brief, b.Reason), &code
		}
	}
	a.Since = v.since(last)
	if a.State == app.Exited && a.ExitCode == nil {
		a.ExitCode = new(int)
	}
}

// together is the state of a whole by how many of its parts are in which.
func together(count map[app.State]int, should int) app.State {
	if should == 0 {
		return app.Exited
	}
	if count[app.Running] > 0 && count[app.Running] < should {
		return app.Partly
	}
	for _, s := range []app.State{app.Running, app.Paused, app.Stopping, app.Backoff, app.Failed, app.Stopped} {
		if count[s] > 0 {
			return s
		}
	}
	return app.Exited
}

// state is what one container does.
func (v view) state(b *compose.Container) app.State {
	switch b.Phase {
	case compose.Running:
		return app.Running
	case compose.Paused:
		return app.Paused
	case compose.Restarting:
		return app.Backoff
	case compose.Removing:
		return app.Stopping
	case compose.Dead:
		return app.Failed
	}
	switch {
	case b.Reason != "":
		return app.Failed
	case b.Phase == compose.Created, b.Asked:
		return app.Stopped
	case b.Watched:
		trying := b.Again || b.Retries && b.Code != 0
		if v.podman && trying && v.now.Sub(b.Ended) < tryAgain {
			return app.Backoff
		}
		return app.Exited
	case b.Again, !b.OOM && slices.Contains([]int{130, 137, 143}, b.Code): // INT, KILL, TERM
		return app.Stopped
	}
	return app.Exited
}

func (v view) since(b *compose.Container) time.Time {
	switch {
	case b == nil:
		return time.Time{}
	case b.Up():
		return b.Started
	case b.Ended.IsZero():
		return b.Created
	}
	return b.Ended
}

func worse(a, b app.Health) app.Health {
	order := []app.Health{"", app.Healthy, app.HealthStarting, app.Unhealthy}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// named is a container as it is called in an error's words.
func named(b *compose.Container) string {
	if b.Lone() {
		return quoted(b.Name)
	}
	return quoted(b.Project + "/" + b.Service)
}

const (
	quote = "%+.300q" // a stranger's text in an error's words: bounded, and everything invisible written out
	brief = "%.300s"
)

func quoted(s string) string { return fmt.Sprintf(quote, s) }
