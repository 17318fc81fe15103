package systemd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"atoll/internal/app"
)

// How a main process ended: ExecMainCode, as waitid(2) has it.
const (
	exited = 1
	killed = 2
	dumped = 3
)

// launchTime bounds the life of a process that systemd could not turn into the unit's program.
const launchTime = 5 * time.Second

// view is the unit as an app, without figures of use.
func (m *Manager) view(u *unit, p props) app.App {
	a := app.App{Name: u.name, PID: p.number("MainPID"), Restarts: p.number("NRestarts"), DefinitionChanged: p.flag("NeedDaemonReload"),
		Warning: m.warning(u, p)}
	a.State, a.Reason = stateOf(p, u.wasStopped(p.invocation()))
	a.Since = p.clock("StateChangeTimestamp")
	if t := p.clock("ActiveEnterTimestamp"); a.State == app.Running && !t.IsZero() {
		a.Since = t // a reload does not begin a new life
	}
	if !a.State.Up() {
		a.PID = 0
		a.ExitCode, a.Signal = ending(p)
	}
	return a
}

// ending is how the unit's main process ended last.
func ending(p props) (code *int, signal string) {
	switch status := p.number("ExecMainStatus"); p.number("ExecMainCode") {
	case exited:
		return &status, ""
	case killed, dumped:
		if signal = unix.SignalName(unix.Signal(status)); signal == "" {
			signal = fmt.Sprintf("signal %d", status)
		}
		return nil, signal
	}
	return nil, ""
}

// stateOf reads the state, with the reason where it could not be started or stopped. stopped says that this run was
// stopped from here.
func stateOf(p props, stopped bool) (app.State, string) {
	active, sub := p.text("ActiveState"), p.text("SubState")
	switch {
	case strings.HasSuffix(sub, "-before-auto-restart"), active == "activating" && strings.HasPrefix(sub, "auto-restart"):
		return app.Backoff, ""
	case active == "active", active == "reloading", active == "refreshing":
		return app.Running, ""
	case active == "activating":
		return app.Starting, ""
	case active == "deactivating":
		return app.Stopping, ""
	}
	switch p.text("LoadState") {
	case "masked":
		return app.Stopped, "the unit is masked"
	case "bad-setting", "error":
		return app.Failed, "systemd cannot load the unit" + loadError(p)
	}
	state, why := downState(p)
	if stopped && state != app.Stopped {
		return app.Stopped, "" // a stop from here, whatever the unit made of it
	}
	return state, why
}

// downState tells a unit that was stopped from one that ended by itself and one that could not be started. systemd has
// one word for the first two, so the order of times decides: a unit that is stopped leaves its active state before its
// main process ends, one that ends by itself after.
func downState(p props) (app.State, string) {
	result, code := p.text("Result"), p.number("ExecMainCode")
	why, isFailed := reason(result), p.text("ActiveState") == "failed"
	ran := code != 0 && p.mono("ExecMainExitTimestamp") != 0
	if !isFailed {
		switch {
		case result != "" && result != "success", !ran, stoppedFirst(p): // the first: while it waited for its next try
			return app.Stopped, ""
		case wasUp(p) && !p.flag("RemainAfterExit"), p.text("Type") == "oneshot" && code == exited && !wasUp(p):
			return app.Exited, ""
		}
		return app.Stopped, ""
	}
	switch result {
	case "exit-code", "signal", "core-dump", "watchdog", "oom-kill", "timeout":
	default:
		return app.Failed, why
	}
	before := !ran || p.mono("ExecMainExitTimestamp") < p.mono("InactiveExitTimestamp")
	switch {
	case before && p.number("NRestarts") > 0:
		return app.Failed, "it ended again and again, and systemd has given up to restart it"
	case before:
		return app.Failed, why // a command before the main one failed
	case p.text("Type") == "oneshot" && !wasUp(p) && result == "signal" && p.number("ExecMainStatus") == int(unix.SIGTERM):
		return app.Stopped, "" // what a stop does to it
	case p.text("Type") == "oneshot" && !wasUp(p) && result != "timeout":
		return app.Exited, endReason(result)
	case !wasUp(p), notLaunched(p):
		return app.Failed, why
	case stoppedFirst(p), p.flag("RemainAfterExit") && code == exited && p.number("ExecMainStatus") == 0:
		return app.Stopped, ""
	}
	return app.Exited, endReason(result)
}

// wasUp reports whether the unit became active in its last run.
func wasUp(p props) bool {
	up := p.mono("ActiveEnterTimestamp")
	return up != 0 && up >= p.mono("InactiveExitTimestamp")
}

// stoppedFirst reports whether the unit was told to stop before its main process ended, by somebody and not by systemd
// for a fault of its own.
func stoppedFirst(p props) bool {
	end, left := p.mono("ExecMainExitTimestamp"), p.mono("ActiveExitTimestamp")
	if !wasUp(p) || left == 0 || left >= end {
		return false
	}
	switch p.text("Result") {
	case "watchdog", "oom-kill":
		return false
	case "timeout":
		longest, limited := p.wide("RuntimeMaxUSec")
		return !limited || longest == 0 || left-p.mono("ActiveEnterTimestamp") < longest
	}
	return true
}

// notLaunched reports whether systemd itself ended the process that it had made for the main program: exit codes from 200
// on are its own.
func notLaunched(p props) bool {
	life := p.mono("ExecMainExitTimestamp") - p.mono("ExecMainStartTimestamp")
	status := p.number("ExecMainStatus")
	return p.number("ExecMainCode") == exited && status >= 200 && status <= 245 && life < uint64(launchTime.Microseconds())
}

// reason puts a result into words.
func reason(result string) string {
	switch result {
	case "", "success":
		return ""
	case "resources":
		return "systemd could not get what the unit needs to run"
	case "protocol":
		return "it did not report as its type of unit must"
	case "timeout":
		return "it took longer than its time limit"
	case "exit-code":
		return "it ended with an error before it was ready"
	case "signal", "core-dump":
		return "it was ended by a signal before it was ready"
	case "start-limit-hit":
		return "it was started too often in a short time"
	case "watchdog":
		return "it no longer answered its watchdog"
	case "oom-kill":
		return "memory ran out"
	}
	return "systemd says: " + clip(result)
}

// endReason is what a result says of an end beyond its exit code.
func endReason(result string) string {
	switch result {
	case "watchdog", "oom-kill", "timeout":
		return reason(result)
	}
	return ""
}

func loadError(p props) string {
	if e, _ := p["LoadError"].([]any); len(e) == 2 {
		if words, _ := e[1].(string); words != "" {
			return ": " + clip(words)
		}
	}
	return ""
}

// clip bounds what systemd said.
func clip(s string) string {
	const most = 200
	return strings.ToValidUTF8(s[:min(len(s), most)], "\uFFFD")
}

// warning says what stopping the unit takes down beside it.
func (m *Manager) warning(u *unit, p props) string {
	group := p.text("ControlGroup")
	if group != "" && group != "/" && slices.ContainsFunc(m.self, func(own string) bool { return own == group || strings.HasPrefix(own, group+"/") }) {
		return "Atoll runs in it."
	}
	switch u.name {
	case "dbus.service", "dbus.socket", "dbus-broker.service":
		return "Atoll reaches systemd through it."
	}
	return ""
}
