package compose

import (
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Server is the place of the assistant's model. The zero value is nowhere.
type Server struct {
	host  string
	port  int
	local bool // the host is this machine
}

// ServerOf reads "host:port" or an address like "http://host:port/v1".
func ServerOf(s string, isLocal func(host string) bool) (Server, error) {
	if s == "" {
		return Server{}, nil
	}
	if !strings.Contains(s, "://") {
		s = "//" + s
	}
	u, err := url.Parse(s)
	if err != nil {
		return Server{}, err
	}
	at := Server{host: strings.ToLower(u.Hostname())}
	switch port := u.Port(); {
	case port != "":
		if at.port, err = strconv.Atoi(port); err != nil {
			return Server{}, err // unreachable: url.Parse has checked it
		}
	case u.Scheme == "https":
		at.port = 443
	default:
		at.port = 80
	}
	at.local = at.host != "" && isLocal(at.host)
	return at, nil
}

// ThisMachine reports whether a host is the machine on which the node runs, by the names that everybody has for it and
// by its addresses.
func ThisMachine(host string) bool {
	switch host {
	case "localhost", "host.docker.internal", "host.containers.internal":
		return true
	}
	if name, err := os.Hostname(); err == nil && strings.EqualFold(name, host) {
		return true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if addr.IsLoopback() || addr.IsUnspecified() {
		return true
	}
	all, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(all, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr() == addr.Unmap()
	})
}

// ServedBy reports whether the model is behind the container, by a published port or by a name or address of its own.
func (s Server) ServedBy(b *Container) bool {
	if s.host == "" || !b.Up() {
		return false
	}
	if slices.ContainsFunc(b.Reach.Names, func(name string) bool { return strings.EqualFold(name, s.host) }) {
		return true
	}
	addr, err := netip.ParseAddr(s.host)
	if err == nil && slices.Contains(b.Reach.Addrs, addr) {
		return true
	}
	if !s.local {
		return false
	}
	for _, p := range b.Ports {
		if p.Port == s.port && p.Protocol == "tcp" {
			return true
		}
	}
	return slices.Contains(b.Reach.Exposed, s.port)
}

const idPattern = `([0-9a-f]{64})`

var (
	// A container's own /etc/hostname, /etc/hosts and /etc/resolv.conf come from its folder at the engine; on the machine
	// itself other mounts of containers are to be seen, never these.
	mountedID = regexp.MustCompile(`/(?:containers|overlay-containers|vfs-containers)/` + idPattern + `/\S* /etc/(?:hostname|hosts|resolv\.conf) `)
	cgroupID  = regexp.MustCompile(`(?m)^\d+:[^:]*:/.*(?:/|docker-|libpod-|cri-containerd-)` + idPattern + `(?:\.scope)?(?:/.*)?$`)
	shortID   = regexp.MustCompile(`^[0-9a-f]{12}$`)
)

// OwnID finds the container that this program runs in, by its processes' folder (/proc/self) and its host name. It is
// empty where there is none, and can be the beginning of an id.
func OwnID(proc, hostname string) string {
	for _, look := range []struct {
		file    string
		pattern *regexp.Regexp
	}{{"mountinfo", mountedID}, {"cgroup", cgroupID}} {
		text, err := os.ReadFile(filepath.Join(proc, look.file))
		if err != nil {
			continue
		}
		if m := look.pattern.FindSubmatch(text); m != nil {
			return string(m[1])
		}
	}
	if shortID.MatchString(hostname) {
		return hostname
	}
	return ""
}
