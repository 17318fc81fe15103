package compose

import (
	"cmp"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
)

const (
	composeLabels = "com.docker.compose."
	podmanLabels  = "io.podman.compose."
	defaultStop   = 10 * time.Second // the engines' own, where a container names none
	maxStop       = 10 * time.Minute // a longer one is waited for this long only
	maxNeeds      = 64               // dependencies of one service
)

var (
	// PathName fits the names that an engine gives and that can stand in the path of a question to it.
	PathName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$`)
	// ValidID fits a container's full id.
	ValidID = regexp.MustCompile(`^[0-9a-f]{64}$`)

	// What Compose itself accepts. Other labels are anybody's and make no project (U1).
	projectName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	serviceName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$`)
)

// Container is one as the engine last described it. It is not changed once others have it.
type Container struct {
	ID, Name string
	Project  string // empty for a lone one
	Service  string
	Labels   string // the prefix of the labels that say so
	Number   int    // of a replica
	Needs    []Need
	Once     bool // other services wait for it to complete; set by the index

	Phase    Phase
	Created  time.Time
	Started  time.Time
	Ended    time.Time
	Code     int
	OOM      bool
	Reason   string // why it could not be started; the engine's words
	PID      int
	Health   string // "starting", "healthy", "unhealthy" or nothing
	Restarts int
	Again    bool // its restart policy starts it after any end
	Retries  bool // its restart policy starts it after a failure
	Asked    bool // its end was asked for
	Watched  bool // its end would have been seen, had somebody asked for it

	Image   string
	Ports   []Port
	Reach   Reach
	HostPID bool
	Remove  bool // the engine removes it when it ends
	TTY     bool
	Stop    time.Duration
	Mark    string // of its definition; empty when unknown

	Seen time.Time // when the engine was asked
}

// Port is a published one.
type Port struct {
	Address   string // it is bound to; empty means all
	Port      int    // on this machine
	Container int    // inside the container
	Protocol  string
}

// Reach is how others get at a container.
type Reach struct {
	Names   []string
	Addrs   []netip.Addr
	Exposed []int // on the machine's own network
}

// Need is one dependency of a service.
type Need struct{ Service, Condition string }

// The conditions of a need.
const (
	UntilStarted   = "service_started"
	UntilHealthy   = "service_healthy"
	UntilCompleted = "service_completed_successfully"
)

// Phase is the engine's word for what a container does.
type Phase string

// The phases, in Docker's words.
const (
	Created    Phase = "created"
	Running    Phase = "running"
	Paused     Phase = "paused"
	Restarting Phase = "restarting"
	Removing   Phase = "removing"
	Exited     Phase = "exited"
	Dead       Phase = "dead"
)

// Up reports whether it has a process.
func (b *Container) Up() bool { return b.Phase == Running || b.Phase == Paused }

// Succeeded reports whether it ended by itself, with success.
func (b *Container) Succeeded() bool {
	return b.Phase == Exited && b.Code == 0 && !b.Asked && b.Reason == "" && !b.Ended.IsZero()
}

// Done reports whether it is a job that is over and need not run again.
func (b *Container) Done() bool { return b.Succeeded() && (!b.Again || b.Once) }

// Lone reports whether it belongs to no project.
func (b *Container) Lone() bool { return b.Project == "" }

// ProjectLabel is the label, with its value, that makes the container part of its project; empty for a lone one.
func (b *Container) ProjectLabel() string {
	if b.Lone() {
		return ""
	}
	return b.Labels + "project=" + b.Project
}

// ProjectLabel is the label that the containers of an app of that name bear where it is a project or a service; empty where
// it can be neither.
func ProjectLabel(app string) string {
	project, _, _ := strings.Cut(app, "/")
	if !projectName.MatchString(project) {
		return ""
	}
	return composeLabels + "project=" + project
}

// Same reports whether nothing changed that anybody could see.
func (b *Container) Same(other *Container) bool {
	x, y := *b, *other
	x.Seen, y.Seen = time.Time{}, time.Time{}
	return reflect.DeepEqual(x, y)
}

// Read reads the engine's description; seen is when it was asked.
func Read(r container.InspectResponse, seen time.Time) *Container {
	b := &Container{ID: r.ID, Name: strings.TrimPrefix(r.Name, "/"), Created: stamp(r.Created), Restarts: r.RestartCount,
		Image: "", Stop: defaultStop, Seen: seen, Mark: definition(r)}
	if b.Name == "" {
		b.Name = r.ID[:12]
	}
	if c := r.Config; c != nil {
		b.Image, b.TTY = c.Image, c.Tty
		if c.StopTimeout != nil && *c.StopTimeout >= 0 {
			b.Stop = min(time.Duration(min(*c.StopTimeout, int(maxStop/time.Second)))*time.Second, maxStop)
		}
		b.belongs(c.Labels)
		b.Reach.Names = append(b.Reach.Names, c.Hostname)
	}
	if h := r.HostConfig; h != nil {
		b.Remove, b.HostPID = h.AutoRemove, h.PidMode == "host"
		b.Again = h.RestartPolicy.IsAlways() || h.RestartPolicy.IsUnlessStopped()
		b.Retries = h.RestartPolicy.IsOnFailure()
	}
	b.state(r.State)
	b.network(r)
	return b
}

// state reads what the container does. Podman has words of its own, some of which reach its Docker API.
func (b *Container) state(s *container.State) {
	if s == nil {
		b.Phase = Dead
		return
	}
	switch p := Phase(s.Status); {
	case s.Restarting:
		b.Phase = Restarting
	case p == Created, p == Running, p == Paused, p == Restarting, p == Removing, p == Exited, p == Dead:
		b.Phase = p
	case p == "configured", p == "initialized":
		b.Phase = Created
	case p == "stopping":
		b.Phase = Running
	case s.Paused:
		b.Phase = Paused
	case s.Running:
		b.Phase = Running
	default:
		b.Phase = Exited
	}
	b.Started, b.Ended, b.Code, b.OOM = stamp(s.StartedAt), stamp(s.FinishedAt), s.ExitCode, s.OOMKilled
	if b.Up() {
		b.PID = s.Pid
	}
	b.Reason = s.Error
	if s.Health == nil || !b.Up() {
		return
	}
	switch h := string(s.Health.Status); h {
	case "starting", "healthy", "unhealthy":
		b.Health = h
	}
}

// belongs reads the labels that make a container part of a project. One that Compose ran once by hand ("oneoff") is none.
func (b *Container) belongs(labels map[string]string) {
	for _, prefix := range []string{composeLabels, podmanLabels} {
		project, service := labels[prefix+"project"], labels[prefix+"service"]
		if prefix == podmanLabels && service == "" {
			service = labels[composeLabels+"service"]
		}
		once, _ := strconv.ParseBool(labels[prefix+"oneoff"])
		if !projectName.MatchString(project) || !serviceName.MatchString(service) || once {
			continue
		}
		b.Project, b.Service, b.Labels = project, service, prefix
		b.Number, _ = strconv.Atoi(cmp.Or(labels[prefix+"container-number"], labels[composeLabels+"container-number"]))
		b.Needs = needsOf(cmp.Or(labels[prefix+"depends_on"], labels[composeLabels+"depends_on"]), service)
		return
	}
}

// needsOf reads "db:service_healthy:false,redis:service_started:true".
func needsOf(label, self string) []Need {
	var out []Need
	for one := range strings.SplitSeq(label, ",") {
		service, rest, _ := strings.Cut(strings.TrimSpace(one), ":")
		condition, _, _ := strings.Cut(rest, ":")
		if !serviceName.MatchString(service) || service == self || len(out) == maxNeeds {
			continue
		}
		if condition != UntilHealthy && condition != UntilCompleted {
			condition = UntilStarted
		}
		out = append(out, Need{service, condition})
	}
	return out
}

func (b *Container) network(r container.InspectResponse) {
	b.Reach.Names = append(b.Reach.Names, b.Name, b.Service)
	if n := r.NetworkSettings; n != nil {
		if b.Up() {
			b.Ports = portsOf(n.Ports)
		}
		for _, e := range n.Networks {
			if e == nil {
				continue
			}
			b.Reach.Names = append(append(b.Reach.Names, e.Aliases...), e.DNSNames...)
			for _, a := range []netip.Addr{e.IPAddress, e.GlobalIPv6Address} {
				if a.IsValid() {
					b.Reach.Addrs = append(b.Reach.Addrs, a)
				}
			}
		}
	}
	b.Reach.Names = slices.DeleteFunc(b.Reach.Names, func(s string) bool { return s == "" })
	slices.Sort(b.Reach.Names)
	b.Reach.Names = slices.Compact(b.Reach.Names)
	slices.SortFunc(b.Reach.Addrs, netip.Addr.Compare)
	if r.HostConfig != nil && r.HostConfig.NetworkMode.IsHost() && r.Config != nil {
		for p := range r.Config.ExposedPorts {
			b.Reach.Exposed = append(b.Reach.Exposed, int(p.Num()))
		}
		slices.Sort(b.Reach.Exposed)
	}
}

// portsOf lists the published ports. One for all IPv4 and one for all IPv6 addresses are the same port.
func portsOf(m network.PortMap) []Port {
	var out []Port
	for inside, binds := range m {
		for _, bind := range binds {
			n, err := strconv.ParseUint(bind.HostPort, 10, 16)
			if err != nil || n == 0 {
				continue
			}
			p := Port{Port: int(n), Container: int(inside.Num()), Protocol: string(inside.Proto())}
			if a := bind.HostIP; a.IsValid() && !a.IsUnspecified() {
				p.Address = a.String()
			}
			out = append(out, p)
		}
	}
	return TidyPorts(out)
}

// TidyPorts sorts ports and leaves out what is there twice.
func TidyPorts(ports []Port) []Port {
	slices.SortFunc(ports, func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol),
			cmp.Compare(a.Address, b.Address), cmp.Compare(a.Container, b.Container))
	})
	return slices.Compact(ports)
}

// ReadSummary is what the list says of a container whose description cannot be read.
func ReadSummary(s container.Summary, seen time.Time) *Container {
	b := &Container{ID: s.ID, Name: s.ID[:12], Image: s.Image, Stop: defaultStop, Seen: seen}
	if len(s.Names) > 0 {
		b.Name = strings.TrimPrefix(s.Names[0], "/")
	}
	b.belongs(s.Labels)
	b.state(&container.State{Status: s.State})
	return b
}

// stamp reads an engine's time; what stands for none there is zero here.
func stamp(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.Year() < 1971 {
		return time.Time{}
	}
	return t.UTC()
}
