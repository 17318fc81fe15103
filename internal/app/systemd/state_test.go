package systemd

import (
	"math"
	"testing"

	"atoll/internal/app"
)

// The states that a real systemd shows too seldom to wait for; the others are in TestRealSystemd.
func TestStateOf(t *testing.T) {
	const never = uint64(math.MaxUint64)
	ran := func(more props) props { // up from 10 to 30, its main process from 9 to 20
		p := props{"ActiveState": "failed", "Result": "exit-code", "Type": "simple", "RuntimeMaxUSec": never,
			"InactiveExitTimestampMonotonic": uint64(10), "ActiveEnterTimestampMonotonic": uint64(10), "ActiveExitTimestampMonotonic": uint64(30),
			"ExecMainStartTimestampMonotonic": uint64(9), "ExecMainExitTimestampMonotonic": uint64(20), "ExecMainCode": int32(1), "ExecMainStatus": int32(1)}
		for k, v := range more {
			p[k] = v
		}
		return p
	}
	stoppedAt := uint64(15) // before the main process ended
	for name, tc := range map[string]struct {
		p       props
		stopped bool
		state   app.State
		reason  string
	}{
		"nothing known":               {props{}, false, app.Stopped, ""},
		"reloading":                   {props{"ActiveState": "reloading", "SubState": "reload"}, false, app.Running, ""},
		"refreshing":                  {props{"ActiveState": "refreshing"}, false, app.Running, ""},
		"maintenance":                 {props{"ActiveState": "maintenance"}, false, app.Stopped, ""},
		"deactivating":                {props{"ActiveState": "deactivating", "SubState": "stop-sigterm"}, false, app.Stopping, ""},
		"waits, as old systemd":       {props{"ActiveState": "activating", "SubState": "auto-restart"}, false, app.Backoff, ""},
		"waits, as new systemd":       {props{"ActiveState": "activating", "SubState": "auto-restart-queued"}, false, app.Backoff, ""},
		"between, as new systemd":     {props{"ActiveState": "failed", "SubState": "failed-before-auto-restart"}, false, app.Backoff, ""},
		"own end":                     {ran(nil), false, app.Exited, ""},
		"own end, stopped from here":  {ran(nil), true, app.Stopped, ""},
		"stopped":                     {ran(props{"ActiveExitTimestampMonotonic": stoppedAt}), false, app.Stopped, ""},
		"core dump":                   {ran(props{"Result": "core-dump", "ExecMainCode": int32(3), "ExecMainStatus": int32(11)}), false, app.Exited, ""},
		"out of memory, told to stop": {ran(props{"Result": "oom-kill", "ActiveExitTimestampMonotonic": stoppedAt}), false, app.Exited, "memory ran out"},
		"watchdog":                    {ran(props{"Result": "watchdog", "ActiveExitTimestampMonotonic": stoppedAt}), false, app.Exited, "it no longer answered its watchdog"},
		"killed while stopped":        {ran(props{"Result": "timeout", "ActiveExitTimestampMonotonic": stoppedAt}), false, app.Stopped, ""},
		"past its longest life": {ran(props{"Result": "timeout", "ActiveExitTimestampMonotonic": stoppedAt, "RuntimeMaxUSec": uint64(5)}), false,
			app.Exited, "it took longer than its time limit"},
		"stopped within its longest life": {ran(props{"Result": "timeout", "ActiveExitTimestampMonotonic": stoppedAt, "RuntimeMaxUSec": uint64(6)}), false, app.Stopped, ""},
		"exit code 203 after a long life": {ran(props{"ExecMainStatus": int32(203), "ExecMainExitTimestampMonotonic": uint64(9e6),
			"ActiveExitTimestampMonotonic": uint64(9e6)}), false, app.Exited, ""},
		"resources":       {ran(props{"Result": "resources"}), false, app.Failed, "systemd could not get what the unit needs to run"},
		"start limit":     {ran(props{"Result": "start-limit-hit"}), false, app.Failed, "it was started too often in a short time"},
		"a future result": {ran(props{"Result": "bored"}), false, app.Failed, "systemd says: bored"},
		"a socket":        {props{"ActiveState": "failed", "Result": "service-start-limit-hit"}, false, app.Failed, "systemd says: service-start-limit-hit"},
		"another's file":  {props{"ActiveState": "inactive", "LoadState": "error", "LoadError": []any{"x", "words"}}, false, app.Failed, "systemd cannot load the unit: words"},
		"masked and up":   {props{"ActiveState": "active", "LoadState": "masked"}, false, app.Running, ""},
	} {
		if state, reason := stateOf(tc.p, tc.stopped); state != tc.state || reason != tc.reason {
			t.Errorf("%s: got %s, %q", name, state, reason)
		}
	}
}

// What a unit holds that must not be lost unawares is said: Atoll itself, and the way to systemd.
func TestWarning(t *testing.T) {
	m := &Manager{self: []string{"/", "/system.slice/atoll.service/sub"}}
	for group, want := range map[string]string{
		"/system.slice/atoll.service": "Atoll runs in it.", "/system.slice/atoll.service/sub": "Atoll runs in it.",
		"/system.slice/atoll.serv": "", "/system.slice/nginx.service": "", "": "", "/": "",
	} {
		if got := m.warning(newUnit("a.service"), props{"ControlGroup": group}); got != want {
			t.Errorf("%q: %q", group, got)
		}
	}
	if got := m.warning(newUnit("dbus.service"), nil); got == "" {
		t.Error("nothing is said of the bus")
	}
	if ownGroups() == nil {
		t.Error("this process is in no group")
	}
}
