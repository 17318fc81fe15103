package compose

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Issue 3: the container that serves the configured model is marked.
func TestServedBy(t *testing.T) {
	box := &Container{Phase: Running, Ports: []Port{{Port: 11434, Container: 11434, Protocol: "tcp"}, {Port: 53, Protocol: "udp"}},
		Reach: Reach{Names: []string{"ollama", "llm-ollama-1"}, Addrs: []netip.Addr{netip.MustParseAddr("172.30.0.9")}, Exposed: []int{8000}}}
	local := func(host string) bool { return host == "localhost" || host == "127.0.0.1" || host == "::1" }
	cases := map[string]bool{
		"":                             false,
		"http://localhost:11434/v1":    true,
		"localhost:11434":              true,
		"127.0.0.1:11434":              true,
		"http://[::1]:11434/v1":        true,
		"http://localhost:11435/v1":    false,
		"http://localhost:53/v1":       false, // udp
		"http://localhost:8000":        true,  // on the machine's own network
		"http://ollama:11434/v1":       true,
		"http://LLM-ollama-1/v1":       true,
		"http://172.30.0.9:11434":      true,
		"http://172.30.0.10:11434":     false,
		"https://api.example.com/v1":   false,
		"http://other.example:11434":   false, // the port alone does not make it so
		"http://ollama.evil.example/":  false,
		"https://localhost/v1":         false, // 443
		"http://user:pw@ollama:1/v1?x": true,
	}
	for model, want := range cases {
		s, err := ServerOf(model, local)
		if err != nil {
			t.Fatal(model, err)
		}
		if s.ServedBy(box) != want {
			t.Errorf("%q: %v", model, !want)
		}
		stopped := *box
		stopped.Phase = Exited
		if s.ServedBy(&stopped) {
			t.Errorf("%q: one that does not run serves it", model)
		}
	}
	for _, bad := range []string{"http://[::1", "http://a b/", "http://localhost:99999999999999999999/", "http://x:y/"} {
		if s, err := ServerOf(bad, local); err == nil && s.ServedBy(box) {
			t.Errorf("%q: %+v", bad, s)
		}
	}
}

func TestThisMachine(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{"localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true, "0.0.0.0": true,
		"host.docker.internal": true, strings.ToUpper(name): true, "192.0.2.1": false, "example.com": false, "": false} {
		if ThisMachine(host) != want {
			t.Errorf("%q: %v", host, !want)
		}
	}
}

// Issue 3: Atoll's own container is marked. A machine that runs containers sees mounts of theirs and is in none of them.
func TestOwnID(t *testing.T) {
	long := strings.Repeat("0a", 32)
	cases := []struct{ name, mountinfo, cgroup, hostname, want string }{
		{"Docker, control groups v2", "600 590 254:1 /var/lib/docker/containers/" + long + "/resolv.conf /etc/resolv.conf rw - ext4 /dev/vda rw\n", "0::/\n", "x", long},
		{"Podman", "600 590 0:50 /containers/storage/overlay-containers/" + long + "/userdata/hostname /etc/hostname rw - tmpfs tmpfs rw\n", "0::/\n", "x", long},
		{"Docker, control groups v1", "", "12:memory:/docker/" + long + "\n0::/x\n", "x", long},
		{"systemd's groups", "", "0::/system.slice/docker-" + long + ".scope\n", "x", long},
		{"Podman's groups", "", "1:name=systemd:/machine.slice/libpod-" + long + ".scope/container\n", "x", long},
		{"by host name", "", "0::/\n", long[:12], long[:12]},
		{"the machine", "700 1 0:60 / /var/lib/docker/containers/" + long + "/mounts/shm rw - tmpfs shm rw\n" +
			"701 1 0:61 / /var/lib/docker/overlay2/" + long + "/merged rw - overlay overlay rw\n", "0::/system.slice/atoll.service\n", "homeserver", ""},
		{"a host name like an id", "", "0::/\n", "deadbeef", ""},
		{"nothing", "", "", "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"mountinfo": c.mountinfo, "cgroup": c.cgroup} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := OwnID(dir, c.hostname); got != c.want {
				t.Errorf("%q", got)
			}
		})
	}
	if got := OwnID(filepath.Join(t.TempDir(), "none"), ""); got != "" {
		t.Errorf("%q", got)
	}
}
