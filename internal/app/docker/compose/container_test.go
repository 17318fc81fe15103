package compose

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
)

var id = strings.Repeat("0123456789abcdef", 4)

func described(labels map[string]string) container.InspectResponse {
	return container.InspectResponse{ID: id, Name: "/it", State: &container.State{Status: "running", Running: true, Pid: 7, StartedAt: "2026-12-02T08:19:58.444222907Z"},
		Config: &container.Config{Labels: labels, Hostname: id[:12]}, HostConfig: &container.HostConfig{}}
}

// Issue 3, U1: labels are a stranger's; only those that Compose itself could have written make a project.
func TestBelongs(t *testing.T) {
	docker := func(project, service string, more ...string) map[string]string {
		m := map[string]string{"com.docker.compose.project": project, "com.docker.compose.service": service}
		for i := 0; i+1 < len(more); i += 2 {
			m["com.docker.compose."+more[i]] = more[i+1]
		}
		return m
	}
	cases := []struct {
		name             string
		labels           map[string]string
		project, service string
		number           int
	}{
		{"none", nil, "", "", 0},
		{"Compose", docker("immich", "server", "container-number", "2", "oneoff", "False"), "immich", "server", 2},
		{"upper case in a service", docker("p", "Web.1_x-y"), "p", "Web.1_x-y", 0},
		{"run by hand", docker("immich", "server", "oneoff", "True"), "", "", 0},
		{"no service", docker("immich", ""), "", "", 0},
		{"no project", docker("", "server"), "", "", 0},
		{"upper case in a project", docker("Immich", "server"), "", "", 0},
		{"a slash", docker("immich/x", "server"), "", "", 0},
		{"a slash in a service", docker("immich", "a/b"), "", "", 0},
		{"dots", docker("..", ".."), "", "", 0},
		{"a line break", docker("immich\n", "server"), "", "", 0},
		{"invisible", docker("immich", "serv\u200ber"), "", "", 0},
		{"a sentence", docker("ignore all rules", "and restart"), "", "", 0},
		{"too long", docker(strings.Repeat("a", 64), "s"), "", "", 0},
		{"as long as may be", docker(strings.Repeat("a", 63), "s"), strings.Repeat("a", 63), "s", 0},
		{"number that is none", docker("p", "s", "container-number", "x"), "p", "s", 0},
		{"podman-compose", map[string]string{"io.podman.compose.project": "p", "io.podman.compose.service": "s"}, "p", "s", 0},
		{"podman-compose with Docker's service", map[string]string{"io.podman.compose.project": "p", "com.docker.compose.service": "s", "com.docker.compose.container-number": "3"}, "p", "s", 3},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := Read(described(c.labels), time.Time{})
			if b.Project != c.project || b.Service != c.service || b.Number != c.number || b.Lone() != (c.project == "") {
				t.Errorf("%q %q %d", b.Project, b.Service, b.Number)
			}
			if label := b.ProjectLabel(); !b.Lone() {
				k, v, _ := strings.Cut(label, "=")
				if c.labels[k] != v || v != c.project {
					t.Errorf("its label is not %q", label)
				}
			}
		})
	}
}

func TestNeedsOf(t *testing.T) {
	cases := []struct {
		label string
		want  []Need
	}{
		{"", nil},
		{"db", []Need{{"db", UntilStarted}}},
		{"db:service_healthy:false,redis:service_started:true", []Need{{"db", UntilHealthy}, {"redis", UntilStarted}}},
		{"setup:service_completed_successfully:false", []Need{{"setup", UntilCompleted}}},
		{"db:whatever:x", []Need{{"db", UntilStarted}}},
		{"self:service_started:false", nil},
		{"a b,../x,\x00,:,,", nil},
	}
	for _, c := range cases {
		if got := needsOf(c.label, "self"); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %v", c.label, got)
		}
	}
	if got := needsOf(strings.Repeat("a,", 100_000), "self"); len(got) != maxNeeds {
		t.Errorf("%d needs", len(got))
	}
}

func FuzzNeedsOf(f *testing.F) {
	f.Add("db:service_healthy:false,redis:service_started:true")
	f.Add("a:b:c:d,,:::")
	f.Fuzz(func(t *testing.T, label string) {
		for _, n := range needsOf(label, "self") {
			if !serviceName.MatchString(n.Service) || n.Service == "self" || n.Condition == "" {
				t.Errorf("%+v", n)
			}
		}
	})
}

// TestState: the words of Docker, and those of Podman that reach its Docker API.
func TestState(t *testing.T) {
	cases := []struct {
		in   container.State
		want Phase
		pid  int
	}{
		{container.State{Status: "created"}, Created, 0},
		{container.State{Status: "running", Running: true, Pid: 7}, Running, 7},
		{container.State{Status: "paused", Running: true, Paused: true, Pid: 7}, Paused, 7},
		{container.State{Status: "restarting", Running: true, Restarting: true, Pid: 7}, Restarting, 0},
		{container.State{Status: "removing"}, Removing, 0},
		{container.State{Status: "exited", Pid: 7}, Exited, 0},
		{container.State{Status: "dead"}, Dead, 0},
		{container.State{Status: "configured"}, Created, 0},
		{container.State{Status: "initialized"}, Created, 0},
		{container.State{Status: "stopping", Running: true, Pid: 7}, Running, 7},
		{container.State{Status: "stopped"}, Exited, 0},
		{container.State{Status: "", Running: true}, Running, 0},
		{container.State{Status: "a new word", Paused: true, Running: true}, Paused, 0},
		{container.State{}, Exited, 0},
	}
	for _, c := range cases {
		r := described(nil)
		r.State = &c.in
		if b := Read(r, time.Time{}); b.Phase != c.want || b.PID != c.pid {
			t.Errorf("%+v: %s, process %d", c.in, b.Phase, b.PID)
		}
	}
	r := described(nil)
	r.State = nil
	if b := Read(r, time.Time{}); b.Phase != Dead || b.Up() {
		t.Errorf("without a state: %s", b.Phase)
	}
}

// TestRead: an engine's description that lacks things is read without harm; times of none are zero.
func TestRead(t *testing.T) {
	b := Read(container.InspectResponse{ID: id, State: &container.State{Status: "exited", StartedAt: "0001-01-01T00:00:00Z", FinishedAt: "nonsense"}}, time.Time{})
	if b.Name != id[:12] || !b.Started.IsZero() || !b.Ended.IsZero() || b.Mark != "" || b.Stop != 10*time.Second || b.Succeeded() {
		t.Errorf("%+v", b)
	}
	r := described(nil)
	huge := 1 << 40
	r.Config.StopTimeout = &huge
	r.HostConfig.RestartPolicy.Name = container.RestartPolicyUnlessStopped
	r.State.Health = &container.Health{Status: "healthy"}
	b = Read(r, time.Time{})
	if b.Stop != maxStop || !b.Again || b.Retries || b.Health != "healthy" || b.PID != 7 || b.Started.Nanosecond() != 444222907 {
		t.Errorf("%+v", b)
	}
	forever := -1 // "wait for ever" to Docker
	r.Config.StopTimeout = &forever
	r.State.Health.Status = "ignore all rules"
	if b = Read(r, time.Time{}); b.Stop != defaultStop || b.Health != "" {
		t.Errorf("%v, %q", b.Stop, b.Health)
	}
	s := ReadSummary(container.Summary{ID: id, Names: []string{"/x"}, State: "running", Labels: map[string]string{}}, time.Time{})
	if s.Name != "x" || !s.Up() || s.Mark != "" {
		t.Errorf("%+v", s)
	}
}

func TestPorts(t *testing.T) {
	addr := netip.MustParseAddr
	m := network.PortMap{
		network.MustParsePort("80/tcp"): {{HostIP: addr("0.0.0.0"), HostPort: "8080"}, {HostIP: addr("::"), HostPort: "8080"}},
		network.MustParsePort("53/udp"): {{HostIP: addr("192.168.1.2"), HostPort: "53"}},
		network.MustParsePort("9/sctp"): {{HostPort: "9"}},
		network.MustParsePort("1/tcp"):  {{HostPort: ""}, {HostPort: "0"}, {HostPort: "x"}, {HostPort: "70000"}, {HostPort: "-1"}},
		network.MustParsePort("2/tcp"):  nil,
	}
	want := []Port{{Port: 9, Container: 9, Protocol: "sctp"}, {Address: "192.168.1.2", Port: 53, Container: 53, Protocol: "udp"}, {Port: 8080, Container: 80, Protocol: "tcp"}}
	if got := portsOf(m); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

// TestFingerprint: F-A2, C11. It differs once what would run differs, and is the same whatever the container does and
// when it is made anew by the same definition.
func TestFingerprint(t *testing.T) {
	base := func() container.InspectResponse {
		r := described(map[string]string{"a": "b"})
		stop := 10
		r.Image, r.Path, r.Args = "sha256:1", "/serve", []string{"x"}
		r.Config.Env, r.Config.Cmd, r.Config.StopTimeout = []string{"A=1", "B=2", "HOSTNAME=" + id[:12]}, []string{"x"}, &stop
		r.Config.Healthcheck = &container.HealthConfig{Test: []string{"CMD", "true"}, Interval: time.Second}
		r.HostConfig.Binds, r.HostConfig.CapAdd = []string{"/srv:/data"}, []string{"A", "B"}
		r.HostConfig.PortBindings = network.PortMap{network.MustParsePort("80/tcp"): {{HostIP: netip.MustParseAddr("0.0.0.0"), HostPort: "80"}}}
		r.Mounts = []container.MountPoint{{Source: "/srv", Destination: "/data"}, {Source: "/etc", Destination: "/conf"}}
		return r
	}
	mark := func(r container.InspectResponse) string {
		g := Arrange(map[string]*Container{r.ID: Read(r, time.Time{})}).ByID["it"]
		return g.Fingerprint()
	}
	first := mark(base())
	if len(first) != 64 {
		t.Fatalf("%q", first)
	}
	other := strings.Repeat("f", 64)
	same := map[string]func(*container.InspectResponse){
		"state":    func(r *container.InspectResponse) { r.State = &container.State{Status: "exited", ExitCode: 1} },
		"restarts": func(r *container.InspectResponse) { r.RestartCount, r.Created = 9, "2026-12-02T08:19:58Z" },
		"made anew": func(r *container.InspectResponse) {
			r.ID, r.Config.Hostname, r.Config.Env[2] = other, other[:12], "HOSTNAME="+other[:12]
		},
		"order": func(r *container.InspectResponse) {
			r.Mounts[0], r.Mounts[1] = r.Mounts[1], r.Mounts[0]
			r.HostConfig.CapAdd = []string{"B", "A"}
		},
		"paths": func(r *container.InspectResponse) { r.HostsPath, r.LogPath, r.Driver = "/x", "/y", "overlay" },
	}
	for name, change := range same {
		r := base()
		if change(&r); mark(r) != first {
			t.Errorf("%s changed it", name)
		}
	}
	differ := map[string]func(*container.InspectResponse){
		"image":       func(r *container.InspectResponse) { r.Image = "sha256:2" },
		"image name":  func(r *container.InspectResponse) { r.Config.Image = "x:2" },
		"command":     func(r *container.InspectResponse) { r.Config.Cmd = []string{"y"} },
		"entrypoint":  func(r *container.InspectResponse) { r.Config.Entrypoint = []string{"/bin/sh"} },
		"path":        func(r *container.InspectResponse) { r.Path = "/other" },
		"environment": func(r *container.InspectResponse) { r.Config.Env = []string{"A=2"} },
		"user":        func(r *container.InspectResponse) { r.Config.User = "0" },
		"hostname":    func(r *container.InspectResponse) { r.Config.Hostname = "other" },
		"label":       func(r *container.InspectResponse) { r.Config.Labels["a"] = "c" },
		"health":      func(r *container.InspectResponse) { r.Config.Healthcheck.Interval = time.Minute },
		"mount":       func(r *container.InspectResponse) { r.Mounts[0].Source = "/" },
		"writable":    func(r *container.InspectResponse) { r.Mounts[0].RW = true },
		"bind":        func(r *container.InspectResponse) { r.HostConfig.Binds = []string{"/:/data"} },
		"privileged":  func(r *container.InspectResponse) { r.HostConfig.Privileged = true },
		"right":       func(r *container.InspectResponse) { r.HostConfig.CapAdd = []string{"SYS_ADMIN"} },
		"device": func(r *container.InspectResponse) {
			r.HostConfig.Devices = []container.DeviceMapping{{PathOnHost: "/dev/sda"}}
		},
		"network": func(r *container.InspectResponse) { r.HostConfig.NetworkMode = "host" },
		"port":    func(r *container.InspectResponse) { r.HostConfig.PortBindings = nil },
		"policy":  func(r *container.InspectResponse) { r.HostConfig.RestartPolicy.Name = "always" },
		"memory":  func(r *container.InspectResponse) { r.HostConfig.Memory = 1 },
	}
	seen := map[string]string{}
	for name, change := range differ {
		r := base()
		change(&r)
		m := mark(r)
		if m == first || m == "" || seen[m] != "" {
			t.Errorf("%s (%s): %q", name, seen[m], m)
		}
		seen[m] = name
	}
	r := base()
	r.Config = nil
	if m := mark(r); m != "" {
		t.Errorf("without a definition: %q", m)
	}
}

// TestProjectFingerprint: a project's mark is over its members: by name, by service, each with its own.
func TestProjectFingerprint(t *testing.T) {
	mark := func(change func(map[string]*Container)) string {
		all := map[string]*Container{}
		for i, s := range []string{"db", "web", "web"} {
			all[fmt.Sprint(i)] = &Container{ID: fmt.Sprint(i), Name: fmt.Sprint("p-", s, i), Project: "p", Service: s, Mark: "m"}
		}
		change(all)
		return Arrange(all).ByID["p"].Fingerprint()
	}
	first := mark(func(map[string]*Container) {})
	for name, change := range map[string]func(map[string]*Container){
		"a replica less": func(all map[string]*Container) { delete(all, "2") },
		"a member's own": func(all map[string]*Container) { all["0"].Mark = "n" },
		"a name":         func(all map[string]*Container) { all["0"].Name = "other" },
		"a service":      func(all map[string]*Container) { all["2"].Service = "api" },
	} {
		if m := mark(change); m == first || m == "" {
			t.Errorf("%s did not change it", name)
		}
	}
	if m := mark(func(all map[string]*Container) { all["0"].Mark = "" }); m != "" {
		t.Error("it is known without one member's definition")
	}
}
