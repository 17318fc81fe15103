package systemd

import (
	"fmt"
	"slices"
	"strings"
)

const (
	maxName  = 255 // bytes of a unit's name, systemd's own bound
	maxUnits = 200 // listed; each one costs a match rule of the bus, which gives a connection 512
)

// kinds are the types of unit that can be listed: those whose start and stop is what a person means by it. The others
// that there are follow.
const (
	kinds      = " service socket timer path mount target "
	otherKinds = " device swap automount slice scope snapshot "
)

// unitName checks a name from the configuration and completes it: nginx is nginx.service.
func unitName(listed string) (string, error) {
	name := listed
	no := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("systemd unit %+q: %s", listed[:min(len(listed), maxName)], fmt.Sprintf(format, args...))
	}
	switch {
	case name == "":
		return no("a name is needed")
	case strings.Contains(name, "/"):
		return no("a path is no unit's name; write the name of the unit, as in nginx.service")
	case strings.ContainsAny(name, "*?[]"):
		return no("patterns are not taken; list each unit by its name")
	}
	kind := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case kind == name || !strings.Contains(kinds+otherKinds, " "+kind+" "):
		name, kind = name+".service", "service"
	case strings.Contains(otherKinds, " "+kind+" "):
		return no("units of type %s are not taken; these are:%s", kind, strings.TrimRight(kinds, " "))
	}
	stem := strings.TrimSuffix(name, "."+kind)
	prefix, instance, templated := strings.Cut(stem, "@")
	switch {
	case len(name) > maxName:
		return no("a name has at most %d characters", maxName)
	case prefix == "":
		return no("a name is needed before %s", strings.TrimPrefix(name, prefix)[:1])
	case templated && instance == "":
		return no("this is a template; list its instances, as in %s@one.%s", prefix, kind)
	}
	if bad := strayByte(stem); bad != "" {
		return no("%s cannot be in a unit's name", bad)
	}
	return name, nil
}

// strayByte names the first thing that systemd would not take literally. A backslash must be its own escape, \x and two
// lower-case digits.
func strayByte(s string) string {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte(":-_.@", c) >= 0:
		case c == '\\' && i+3 < len(s) && s[i+1] == 'x' && isHex(s[i+2]) && isHex(s[i+3]):
			i += 3
		case c == '\\':
			return `a backslash that is no \xNN`
		default:
			return fmt.Sprintf("%+q", string(rune(c)))
		}
	}
	return ""
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

// unitNames checks the whole list; a unit that is listed twice counts once.
func unitNames(listed []string) ([]string, error) {
	if len(listed) > maxUnits {
		return nil, fmt.Errorf("%d systemd units are listed; at most %d are taken", len(listed), maxUnits)
	}
	var names []string
	for _, l := range listed {
		name, err := unitName(l)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}
