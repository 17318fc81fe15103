package systemd

import (
	"encoding/hex"
	"maps"
	"math"
	"reflect"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// blankTime is how long a unit that systemd has just forgotten is still taken to be in the state last told, while the
// signal of its end is on its way.
const blankTime = time.Second

// props are a unit's D-Bus properties. A missing one, or one of another type, is its zero.
type props map[string]any

func (p props) text(key string) string { s, _ := p[key].(string); return s }

func (p props) flag(key string) bool { b, _ := p[key].(bool); return b }

func (p props) texts(key string) []string { s, _ := p[key].([]string); return s }

func (p props) number(key string) int {
	switch n := p[key].(type) {
	case int32:
		return int(n)
	case uint32:
		return int(n)
	}
	return 0
}

// wide is a 64-bit value; systemd writes "not set" and "infinity" as the highest one.
func (p props) wide(key string) (n uint64, ok bool) {
	n, ok = p[key].(uint64)
	return n, ok && n != math.MaxUint64
}

// mono is a time on the clock that is never set, in microseconds; zero means never.
func (p props) mono(key string) uint64 { n, _ := p.wide(key + "Monotonic"); return n }

func (p props) clock(key string) time.Time {
	us, ok := p.wide(key)
	if !ok || us == 0 || us > math.MaxInt64 {
		return time.Time{}
	}
	return time.UnixMicro(int64(us))
}

// invocation names one run of the unit.
func (p props) invocation() string {
	b, _ := p["InvocationID"].([]byte)
	return hex.EncodeToString(b)
}

// blank reports whether systemd knows nothing of the unit's past: it forgets a unit that has ended well and that nothing
// refers to, and loads it afresh when asked.
func (p props) blank() bool {
	return p.text("ActiveState") == "inactive" && p.mono("StateChangeTimestamp") == 0
}

func down(p props) bool {
	s := p.text("ActiveState")
	return s == "inactive" || s == "failed"
}

// unit is a listed unit with what was told of it last.
type unit struct {
	name string
	path dbus.ObjectPath

	mu      sync.Mutex // guards the fields below
	told    props      // by signals, over what was read when the link began; nil before the first
	blankAt time.Time  // when systemd was first seen to have forgotten it, though told that it is up
	stopped string     // the invocation that was stopped from here
}

func newUnit(name string) *unit {
	return &unit{name: name, path: dbus.ObjectPath("/org/freedesktop/systemd1/unit/" + sd.PathBusEscape(name))}
}

// begin takes what was read at the beginning of a link. How the unit ended is remembered beyond it.
func (u *unit) begin(p props) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.told != nil && p.blank() && down(u.told) {
		return
	}
	u.told, u.blankAt = maps.Clone(p), time.Time{}
}

// tell takes changed properties from a signal and reports whether they change what a person sees.
func (u *unit) tell(changed map[string]dbus.Variant) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	news := u.told == nil
	if news {
		u.told = props{}
	}
	for key, v := range changed {
		value := v.Value()
		news = news || shown(key) && !reflect.DeepEqual(u.told[key], value)
		u.told[key] = value
	}
	return news
}

// shown reports whether a property is part of what a person sees.
func shown(key string) bool {
	switch key {
	case "ActiveState", "SubState", "LoadState", "MainPID", "NRestarts", "Result", "NeedDaemonReload", "ActiveEnterTimestamp":
		return true
	}
	return false
}

// latest is what was read, or where systemd has forgotten the unit's past, how it ended as told by the signals.
func (u *unit) latest(p props, now time.Time) props {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.told == nil || !p.blank() {
		u.blankAt = time.Time{}
		return p
	}
	if !down(u.told) {
		if u.blankAt.IsZero() {
			u.blankAt = now
		}
		if now.Sub(u.blankAt) > blankTime { // its end was never told
			u.told = maps.Clone(p)
			return p
		}
	}
	merged := maps.Clone(p)
	for _, key := range remembered() {
		if v, ok := u.told[key]; ok {
			merged[key] = v
		}
	}
	return merged
}

// remembered are the properties that say how a unit came to its state.
func remembered() []string {
	return []string{"ActiveState", "SubState", "Result", "MainPID", "NRestarts", "StateChangeTimestamp",
		"StateChangeTimestampMonotonic", "ActiveEnterTimestamp", "ActiveEnterTimestampMonotonic", "ActiveExitTimestampMonotonic",
		"InactiveExitTimestampMonotonic", "ExecMainStartTimestampMonotonic", "ExecMainExitTimestampMonotonic",
		"ExecMainCode", "ExecMainStatus", "ConditionResult", "ConditionTimestampMonotonic"}
}

// stopping notes that the present run is stopped from here, or after all is not.
func (u *unit) stopping(invocation string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped = invocation
}

func (u *unit) wasStopped(invocation string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.stopped != "" && u.stopped == invocation
}
