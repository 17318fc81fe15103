package systemd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"github.com/godbus/dbus/v5"

	"atoll/internal/fault"
)

// unreachable says why there is no link, as far as the error shows.
func unreachable(err error, address string) *fault.Error {
	switch e, _ := errors.AsType[dbus.Error](err); {
	case errors.Is(err, fs.ErrNotExist):
		return fault.Wrap(err, fault.Unavailable, "systemd cannot be reached: there is no D-Bus at %s; is this machine run by systemd, and dbus installed?", address)
	case errors.Is(err, fs.ErrPermission):
		return fault.Wrap(err, fault.Unavailable, "systemd cannot be reached: this node's user may not open %s", address)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fault.Wrap(err, fault.Unavailable, "systemd cannot be reached: nobody answers at %s; is dbus running?", address)
	case e.Name == "org.freedesktop.DBus.Error.NameHasNoOwner":
		return fault.Wrap(err, fault.Unavailable, "systemd cannot be reached: it is not on the bus at %s", address)
	}
	return fault.Wrap(err, fault.Unavailable, "systemd cannot be reached over D-Bus now; it is tried again")
}

// notRead is the error of a question that systemd did not answer.
func notRead(ctx context.Context, l *link, name string, err error) error {
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return fault.Wrap(ctx.Err(), fault.Cancelled, "cancelled")
	}
	if l.ctx.Err() != nil {
		return unreachable(err, "")
	}
	if e, ok := errors.AsType[dbus.Error](err); ok && denied(e.Name) {
		return fault.Wrap(err, fault.NotConfigured, "systemd does not let this node's user (%s) see %s", nodeUser(), name)
	}
	return fault.Wrap(err, fault.Unavailable, "systemd does not answer for %s", name)
}

func denied(name string) bool {
	switch name {
	case "org.freedesktop.DBus.Error.AccessDenied", "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired",
		"org.freedesktop.DBus.Error.AuthFailed", "org.freedesktop.PolicyKit1.Error.NotAuthorized":
		return true
	}
	return false
}

// notBegun is the error of an action that systemd did not take on. Where its answer was lost, it may have.
func notBegun(ctx context.Context, l *link, name string, v verb, err error) error {
	e, answered := errors.AsType[dbus.Error](err)
	if ctx.Err() != nil || !answered || l.ctx.Err() != nil {
		return notSeen(ctx, err, name, v)
	}
	short, _ := strings.CutPrefix(e.Name, "org.freedesktop.systemd1.")
	switch {
	case denied(e.Name):
		return fault.Wrap(err, fault.NotConfigured, "systemd does not let this node's user (%s) %s %s: a polkit rule must allow it; "+
			"`atoll doctor` prints the rule for exactly the listed units", nodeUser(), v, name)
	case short == "NoSuchUnit":
		return fault.Wrap(err, fault.NotFound, "systemd has no unit %s", name).At("app")
	case short == "UnitMasked":
		return masked(name)
	case short == "OnlyByDependency":
		return byHand(name, v)
	case short == "LoadFailed", short == "BadUnitSetting":
		return fault.Wrap(err, fault.Rule, "systemd cannot load %s; its unit file has a mistake", name).At("app")
	case short == "TransactionIsDestructive", short == "ShuttingDown":
		return fault.Wrap(err, fault.Rule, "systemd refuses to %s %s now: it would undo what is under way (is the machine shutting down?)", v, name).At("app")
	case short != e.Name:
		return fault.Wrap(err, fault.Rule, "systemd refuses to %s %s", v, name).At("app")
	}
	switch e.Name {
	case "org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.Timeout", "org.freedesktop.DBus.Error.TimedOut":
		return notSeen(ctx, err, name, v)
	}
	return fault.Wrap(err, fault.Unavailable, "systemd cannot be asked to %s %s now; nothing was done", v, name)
}

// notSeen is the error of an action that has begun, as far as is known, and whose end nobody saw.
func notSeen(ctx context.Context, err error, name string, v verb) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fault.Wrap(err, fault.OutcomeUnknown,
		"the connection to systemd was lost while it was asked to %s %s; look at its state before you try again", v, name)
}

func masked(name string) error {
	return fault.New(fault.Rule, "%s is masked: `systemctl unmask` must allow it first", name).At("app")
}

func byHand(name string, v verb) error {
	return fault.New(fault.Rule, "the unit file of %s does not allow to %s it by hand", name, v).At("app")
}

// nodeUser is the name of the user that the node runs as.
func nodeUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "uid " + strconv.Itoa(os.Getuid())
}

func isFault(err error) bool {
	_, ok := errors.AsType[*fault.Error](err)
	return ok
}
