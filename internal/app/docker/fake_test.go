package docker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// fake is an engine on a socket that speaks as much of Docker's API as an honest client of this package may use. Anything
// else it is asked fails the test.
type fake struct {
	t    testing.TB
	path string

	mu       sync.Mutex // guards the fields below and the boxes
	srv      *http.Server
	boxes    map[string]*fakeBox
	made     int
	events   map[chan string]bool
	past     []pastEvent // for who asks since when, as the engines do
	requests []string
	hung     chan struct{} // open while nothing is answered
	podman   bool
	changed  chan struct{} // closed and made anew when a box changes
	wg       sync.WaitGroup
	quit     chan struct{}
}

type pastEvent struct {
	at   time.Time
	text string
}

// fakeBox is a container. What it is to do stands in the fields of the first part.
type fakeBox struct {
	name, image string
	labels      map[string]string
	env         []string
	policy      string // restart policy
	grace       int    // StopTimeout
	tty         bool
	remove      bool   // --rm
	brief       bool   // ends at once, with code
	stubborn    bool   // ignores SIGTERM
	code        int    // it ends with
	refusal     string // instead of a start
	healthy     []string
	ports       string // JSON of NetworkSettings.Ports
	hostNet     bool
	garbled     bool // its description is no JSON
	bigLog      func(w io.Writer)

	id       string
	state    string
	pid      int
	started  time.Time
	finished time.Time
	made     time.Time
	exit     int
	oom      bool
	problem  string
	health   string
	restarts int
	log      []fakeLine
	run      int // counts the starts
	stopping bool
	kept     bool // by a restart, though it is removed when it ends
}

type fakeLine struct {
	at     time.Time
	stream byte
	text   string // with its line break
}

func newFake(t testing.TB) *fake {
	t.Helper()
	dir, err := os.MkdirTemp("", "fake-engine-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &fake{t: t, path: filepath.Join(dir, "docker.sock"), boxes: map[string]*fakeBox{}, events: map[chan string]bool{},
		changed: make(chan struct{}), quit: make(chan struct{})}
	f.listen()
	t.Cleanup(func() {
		close(f.quit)
		f.unhang()
		f.die()
		f.wg.Wait()
	})
	return f
}

func (f *fake) listen() {
	f.t.Helper()
	l, err := net.Listen("unix", f.path)
	if err != nil {
		f.t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(f.serve), ErrorLog: nil}
	f.mu.Lock()
	f.srv = srv
	f.mu.Unlock()
	f.wg.Go(func() { _ = srv.Serve(l) })
}

// die is the engine's sudden end; the containers are as they were.
func (f *fake) die() {
	f.mu.Lock()
	srv := f.srv
	f.mu.Unlock()
	_ = srv.Close()
}

func (f *fake) hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hung = make(chan struct{})
}

func (f *fake) unhang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hung != nil {
		close(f.hung)
		f.hung = nil
	}
}

// add makes a container that was never started.
func (f *fake) add(b fakeBox) *fakeBox {
	f.mu.Lock()
	f.made++
	box := &b
	box.id = fmt.Sprintf("%012x%052x", 0xabc000+f.made, f.made)
	box.state = "created"
	box.made = time.Now()
	if box.image == "" {
		box.image = "registry.example/" + strings.ToLower(strings.Trim(box.name, "/")) + ":1"
	}
	f.boxes[box.id] = box
	f.mu.Unlock()
	f.emit("create", box, "")
	return box
}

// drop removes a container.
func (f *fake) drop(b *fakeBox) {
	f.mu.Lock()
	delete(f.boxes, b.id)
	f.mu.Unlock()
	f.emit("destroy", b, "")
	f.bump()
}

// set changes a container behind everybody's back, without an event.
func (f *fake) set(b *fakeBox, change func(*fakeBox)) {
	f.mu.Lock()
	change(b)
	f.mu.Unlock()
	f.bump()
}

func (f *fake) get(b *fakeBox) fakeBox {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *b
}

func (f *fake) bump() {
	f.mu.Lock()
	close(f.changed)
	f.changed = make(chan struct{})
	f.mu.Unlock()
}

// took returns the requests since the last call, without those that only look.
func (f *fake) took() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.DeleteFunc(slices.Clone(f.requests), func(s string) bool { return !strings.HasPrefix(s, "POST") })
	f.requests = nil
	for i, s := range out {
		for _, b := range f.boxes {
			s = strings.ReplaceAll(s, b.id, b.name)
		}
		out[i] = strings.TrimPrefix(s, "POST /containers/")
	}
	return out
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.requests)
}

// emit sends an event to everybody who listens.
func (f *fake) emit(action string, b *fakeBox, signal string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	attributes := map[string]string{"name": b.name, "image": b.image}
	if signal != "" {
		attributes["signal"] = signal
	}
	now := time.Now()
	e := encode(map[string]any{"Type": "container", "Action": action, "scope": "local", "time": now.Unix(), "timeNano": now.UnixNano(),
		"Actor": map[string]any{"ID": b.id, "Attributes": attributes}})
	f.past = append(f.past, pastEvent{now, e + "\n"})
	for c := range f.events {
		c <- e + "\n"
	}
}

func encode(v any) string {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return string(b)
}

// permitted is every request that this package may make. No other is answered (issue 3: Atoll never creates, removes or
// changes a container).
var permitted = regexp.MustCompile(`^(HEAD /_ping|GET /_ping|GET /version|GET /events|GET /containers/json|GET /containers/[a-zA-Z0-9_.-]+/(json|logs)|POST /containers/[0-9a-f]{64}/(start|stop|restart))$`)

var version = regexp.MustCompile(`^/v1\.[0-9]+/`)

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	path := version.ReplaceAllString(r.URL.Path, "/")
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+path)
	hung := f.hung
	f.mu.Unlock()
	if hung != nil {
		select {
		case <-hung:
		case <-r.Context().Done():
		case <-f.quit:
		}
		return
	}
	if !permitted.MatchString(r.Method + " " + path) {
		f.t.Errorf("the engine was asked for %s %s", r.Method, r.URL)
		http.Error(w, "page not found", http.StatusNotFound)
		return
	}
	w.Header().Set("Api-Version", "1.47")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case path == "/_ping":
	case path == "/version":
		name := "Engine"
		if f.podman {
			name = "Podman Engine"
		}
		say(w, http.StatusOK, map[string]any{"Version": "27.0.1", "ApiVersion": "1.47", "Components": []any{map[string]any{"Name": name, "Version": "27.0.1"}}})
	case path == "/events":
		f.stream(w, r)
	case path == "/containers/json":
		f.list(w, r)
	default:
		f.container(w, r, parts[1], parts[2])
	}
}

func say(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, encode(v))
}

func refuseWith(w http.ResponseWriter, status int, words string) {
	say(w, status, map[string]string{"message": words})
}

func (f *fake) stream(w http.ResponseWriter, r *http.Request) {
	c := make(chan string, 10_000)
	since, err := strconv.ParseFloat(r.URL.Query().Get("since"), 64)
	f.mu.Lock()
	for _, e := range f.past {
		if err == nil && float64(e.at.UnixNano()) >= since*1e9 {
			c <- e.text
		}
	}
	f.events[c] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.events, c)
		f.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case e := <-c:
			_, _ = io.WriteString(w, e)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		case <-f.quit:
			return
		}
	}
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	var filters map[string]map[string]bool
	if text := r.URL.Query().Get("filters"); text != "" {
		if err := json.Unmarshal([]byte(text), &filters); err != nil {
			refuseWith(w, http.StatusBadRequest, err.Error())
			return
		}
	}
	f.mu.Lock()
	out := []any{}
	for _, b := range f.boxes {
		fits := true
		for label := range filters["label"] {
			k, v, _ := strings.Cut(label, "=")
			fits = fits && b.labels[k] == v
		}
		if fits {
			out = append(out, map[string]any{"Id": b.id, "Names": []string{"/" + b.name}, "Image": b.image, "State": b.state, "Labels": b.labels,
				"Status": "whatever", "Created": b.made.Unix()})
		}
	}
	f.mu.Unlock()
	say(w, http.StatusOK, out)
}

func (f *fake) container(w http.ResponseWriter, r *http.Request, ref, what string) {
	f.mu.Lock()
	b := f.boxes[ref]
	for _, one := range f.boxes {
		if b == nil && one.name == ref {
			b = one
		}
	}
	f.mu.Unlock()
	if b == nil {
		refuseWith(w, http.StatusNotFound, "No such container: "+ref)
		return
	}
	grace, err := strconv.Atoi(r.URL.Query().Get("t"))
	if (what == "stop" || what == "restart") && err != nil {
		f.t.Errorf("%s without a time: Podman would kill at once", what)
	}
	switch what {
	case "json":
		f.describe(w, b)
	case "logs":
		f.logs(w, r, b)
	case "start":
		f.start(w, b)
	case "stop":
		f.stop(b, time.Duration(grace)*time.Second)
		f.emit("stop", b, "")
		w.WriteHeader(http.StatusNoContent)
	case "restart":
		f.set(b, func(b *fakeBox) { b.kept = true })
		defer f.set(b, func(b *fakeBox) { b.kept = false })
		f.stop(b, time.Duration(grace)*time.Second)
		f.start(w, b)
		f.emit("restart", b, "")
	}
}

func (f *fake) describe(w http.ResponseWriter, b *fakeBox) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.garbled {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"Id": ["not a description"]}`)
		return
	}
	state := map[string]any{"Status": b.state, "Running": b.state == "running" || b.state == "restarting" || b.state == "paused", "Paused": b.state == "paused",
		"Restarting": b.state == "restarting", "OOMKilled": b.oom, "Pid": b.pid, "ExitCode": b.exit, "Error": b.problem,
		"StartedAt": iso(b.started), "FinishedAt": iso(b.finished)}
	if b.health != "" {
		state["Health"] = map[string]any{"Status": b.health}
	}
	config := map[string]any{"Image": b.image, "Env": b.env, "Cmd": []string{"serve"}, "Tty": b.tty, "Labels": b.labels, "Hostname": b.id[:12],
		"Healthcheck": map[string]any{"Test": []string{"CMD", "true"}, "Interval": 30_000_000_000}, "ExposedPorts": map[string]any{"11434/tcp": map[string]any{}}}
	if b.grace > 0 {
		config["StopTimeout"] = b.grace
	}
	ports := "{}"
	if b.ports != "" {
		ports = b.ports
	}
	network := "bridge"
	if b.hostNet {
		network = "host"
	}
	v := map[string]any{"Id": b.id, "Name": "/" + b.name, "Created": iso(b.made), "Image": "sha256:" + b.image, "State": state, "Config": config,
		"RestartCount": b.restarts, "Path": "/serve", "Args": []string{}, "Mounts": []any{map[string]any{"Type": "bind", "Source": "/srv", "Destination": "/data", "RW": true}},
		"HostConfig": map[string]any{"NetworkMode": network, "RestartPolicy": map[string]any{"Name": b.policy}, "AutoRemove": b.remove}}
	w.Header().Set("Content-Type", "application/json")
	text := encode(v)
	_, _ = io.WriteString(w, text[:len(text)-1]+`,"NetworkSettings":{"Ports":`+ports+`,"Networks":{"net":{"Aliases":["`+"alias-of-"+b.id[:12]+`"],"IPAddress":"172.30.0.9"}}}}`)
}

func iso(t time.Time) string {
	if t.IsZero() {
		return "0001-01-01T00:00:00Z"
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func (f *fake) start(w http.ResponseWriter, b *fakeBox) {
	f.mu.Lock()
	if b.state == "running" || b.state == "restarting" {
		f.mu.Unlock()
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if b.refusal != "" {
		b.problem, b.exit = b.refusal, 128
		f.mu.Unlock()
		refuseWith(w, http.StatusInternalServerError, b.refusal)
		return
	}
	b.restarts = 0
	f.mu.Unlock()
	f.launch(b)
	w.WriteHeader(http.StatusNoContent)
}

// launch runs a container, again and again where its policy says so.
func (f *fake) launch(b *fakeBox) {
	f.mu.Lock()
	b.state, b.started, b.problem, b.stopping, b.oom = "running", time.Now(), "", false, false
	b.run++
	b.pid = 1_000_000 + f.made*1000 + b.run
	if len(b.healthy) > 0 {
		b.health = b.healthy[0]
	}
	b.log = append(b.log, fakeLine{time.Now(), 1, fmt.Sprintf("hello from %s, run %d\n", b.name, b.run)})
	run := b.run
	f.mu.Unlock()
	f.emit("start", b, "")
	f.bump()
	if b.brief {
		f.wg.Go(func() { f.end(b, run, b.code) })
	}
	for _, h := range b.healthy[min(1, len(b.healthy)):] {
		f.wg.Go(func() {
			if !f.pause(100 * time.Millisecond) {
				return
			}
			f.set(b, func(b *fakeBox) { b.health = h })
			f.emit("health_status: "+h, b, "")
		})
	}
}

func (f *fake) pause(d time.Duration) bool {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-f.quit:
		return false
	case <-wait.C:
		return true
	}
}

// end is the end of one run of a container.
func (f *fake) end(b *fakeBox, run, code int) {
	f.mu.Lock()
	if b.run != run || b.state != "running" {
		f.mu.Unlock()
		return
	}
	b.state, b.finished, b.exit, b.pid, b.health = "exited", time.Now(), code, 0, ""
	again := !b.stopping && (b.policy == "always" || b.policy == "unless-stopped" || b.policy == "on-failure" && code != 0)
	if again {
		b.state = "restarting"
		b.restarts++
	}
	f.mu.Unlock()
	f.emit("die", b, "")
	f.bump()
	if again {
		f.wg.Go(func() {
			if !f.pause(50 * time.Millisecond) {
				return
			}
			f.mu.Lock()
			still := b.state == "restarting"
			f.mu.Unlock()
			if still {
				f.launch(b)
			}
		})
	}
	if now := f.get(b); now.remove && !now.kept {
		f.drop(b)
	}
}

func (f *fake) stop(b *fakeBox, grace time.Duration) {
	f.mu.Lock()
	b.stopping = true
	run, up := b.run, b.state == "running"
	if b.state == "restarting" {
		b.state = "exited"
	}
	f.mu.Unlock()
	if !up {
		return
	}
	f.emit("kill", b, "15")
	code := b.code
	if b.stubborn {
		f.pause(grace)
		f.emit("kill", b, "9")
		code = 137
	}
	f.end(b, run, code)
}

func (f *fake) logs(w http.ResponseWriter, r *http.Request, b *fakeBox) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/vnd.docker.multiplexed-stream")
	if b.bigLog != nil {
		b.bigLog(w)
		return
	}
	var since time.Time
	if s := q.Get("since"); s != "" {
		sec, nano, _ := strings.Cut(s, ".")
		n, _ := strconv.ParseInt(sec, 10, 64)
		m, _ := strconv.ParseInt((nano + "000000000")[:9], 10, 64)
		since = time.Unix(n, m)
	}
	f.mu.Lock()
	run := b.run
	sent := 0
	if n, err := strconv.Atoi(q.Get("tail")); err == nil {
		sent = max(0, len(b.log)-n)
	}
	f.mu.Unlock()
	for {
		f.mu.Lock()
		var out bytes.Buffer
		for ; sent < len(b.log); sent++ {
			if l := b.log[sent]; !l.at.Before(since) {
				text := l.at.UTC().Format("2006-01-02T15:04:05.000000000Z") + " " + l.text
				if !b.tty {
					head := []byte{l.stream, 0, 0, 0, 0, 0, 0, 0}
					binary.BigEndian.PutUint32(head[4:], uint32(len(text)))
					out.Write(head)
				}
				out.WriteString(text)
			}
		}
		over := q.Get("follow") == "" || b.state != "running" || b.run != run || f.boxes[b.id] == nil
		changed := f.changed
		f.mu.Unlock()
		_, _ = w.Write(out.Bytes())
		_ = http.NewResponseController(w).Flush()
		if over {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-f.quit:
			return
		}
	}
}

// print adds a line to a container's log.
func (f *fake) print(b *fakeBox, stream byte, text string) {
	f.set(b, func(b *fakeBox) { b.log = append(b.log, fakeLine{time.Now(), stream, text + "\n"}) })
}
