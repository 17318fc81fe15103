// Package engine is a container engine for trials: a server on a real socket that speaks as much of Docker's API as Atoll
// may use, and writes down what it was told to do. It counts effects where they happen, below every check.
package engine

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// Box is a container as it is wanted. One that is started ends at once, as a job does: nobody waits for it to settle.
type Box struct {
	Name    string
	Project string // of Compose; empty for a lone container
	Up      bool
	Log     []string
}

// Engine is the server. It is safe for concurrent use; Close ends it.
type Engine struct {
	path string
	srv  *http.Server
	done chan struct{}
	quit chan struct{}

	mu     sync.Mutex // guards the rest
	boxes  map[string]*box
	events map[chan string]bool
	acts   []string
	odd    []string // requests that Atoll may not make
}

type box struct {
	Box
	id, image string
	up        bool
	pid       int
	from, to  time.Time
	said      []byte // its description; nil once that has changed
}

// New listens on DIR/engine.sock; the path of a socket must be short.
func New(dir string, boxes ...Box) (*Engine, error) {
	e := &Engine{path: filepath.Join(dir, "engine.sock"), boxes: map[string]*box{}, events: map[chan string]bool{},
		done: make(chan struct{}), quit: make(chan struct{})}
	for i, b := range boxes {
		id := fmt.Sprintf("%012x%052x", 0xabc000+i, i+1)
		e.boxes[id] = &box{Box: b, id: id, image: "registry.example/app:1", up: b.Up, pid: 1_000_000 + i, from: time.Now(), to: time.Now()}
	}
	l, err := net.Listen("unix", e.path)
	if err != nil {
		return nil, err
	}
	e.srv = &http.Server{Handler: http.HandlerFunc(e.serve), ReadHeaderTimeout: time.Minute}
	go func() { // Close waits for it
		defer close(e.done)
		_ = e.srv.Serve(l)
	}()
	return e, nil
}

// Socket is the address for [apps] docker.
func (e *Engine) Socket() string { return "unix://" + e.path }

// Close ends the server and every stream.
func (e *Engine) Close() error {
	close(e.quit)
	err := e.srv.Close()
	<-e.done
	return err
}

// Took returns what was done since the last call, oldest first, as "stop photos".
func (e *Engine) Took() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.acts
	e.acts = nil
	return out
}

// Odd lists requests that Atoll may never make of an engine.
func (e *Engine) Odd() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string{}, e.odd...)
}

// Has reports whether there is such a container.
func (e *Engine) Has(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.named(name) != nil
}

// State says that a container is "running" or "down"; "" for none.
func (e *Engine) State(name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch b := e.named(name); {
	case b == nil:
		return ""
	case b.up:
		return "running"
	}
	return "down"
}

// Arm puts a container into a state behind everybody's back, without an event. It reports whether it was in another.
func (e *Engine) Arm(name string, up bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.named(name)
	if b == nil || b.up == up {
		return false
	}
	b.set(up)
	return true
}

// Change puts another image under a name: what was asked about is not what is there any more.
func (e *Engine) Change(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b := e.named(name); b != nil {
		b.pid++
		b.said = nil
		b.image = fmt.Sprintf("registry.example/app:%d", b.pid)
	}
}

// named finds a container; e.mu is held.
func (e *Engine) named(name string) *box {
	for _, b := range e.boxes {
		if b.Name == name || b.Project != "" && b.Project == name {
			return b
		}
	}
	return nil
}

func (b *box) set(up bool) {
	b.up, b.said = up, nil
	if up {
		b.from = time.Now()
		b.pid++
		return
	}
	b.to = time.Now()
}

var (
	permitted = regexp.MustCompile(`^(HEAD /_ping|GET /_ping|GET /version|GET /events|GET /containers/json|GET /containers/[a-zA-Z0-9_.-]+/(json|logs)|POST /containers/[0-9a-f]{64}/(start|stop|restart))$`)
	version   = regexp.MustCompile(`^/v1\.[0-9]+/`)
)

func (e *Engine) serve(w http.ResponseWriter, r *http.Request) {
	path := version.ReplaceAllString(r.URL.Path, "/")
	if !permitted.MatchString(r.Method + " " + path) {
		e.mu.Lock()
		e.odd = append(e.odd, r.Method+" "+path)
		e.mu.Unlock()
		http.Error(w, "page not found", http.StatusNotFound)
		return
	}
	w.Header().Set("Api-Version", "1.47")
	switch path {
	case "/_ping":
	case "/version":
		say(w, http.StatusOK, map[string]any{"Version": "27.0.1", "ApiVersion": "1.47", "Components": []any{map[string]any{"Name": "Engine", "Version": "27.0.1"}}})
	case "/events":
		e.stream(w, r)
	case "/containers/json":
		e.list(w, r)
	default:
		parts := strings.Split(strings.Trim(path, "/"), "/")
		e.container(w, r, parts[1], parts[2])
	}
}

func say(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.MarshalWrite(w, v)
}

func (e *Engine) stream(w http.ResponseWriter, r *http.Request) {
	c := make(chan string, 1000)
	e.mu.Lock()
	e.events[c] = true
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.events, c)
		e.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case text := <-c:
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		case <-e.quit:
			return
		}
	}
}

// emit tells who listens; e.mu is held. Who does not keep up misses it, as with a real engine.
func (e *Engine) emit(action string, b *box) {
	now := time.Now()
	raw, err := json.Marshal(map[string]any{"Type": "container", "Action": action, "scope": "local", "time": now.Unix(), "timeNano": now.UnixNano(),
		"Actor": map[string]any{"ID": b.id, "Attributes": map[string]string{"name": b.Name, "image": b.image}}})
	if err != nil {
		return // unreachable unless a map of texts cannot be JSON
	}
	for c := range e.events {
		select {
		case c <- string(raw) + "\n":
		default:
		}
	}
}

func (e *Engine) list(w http.ResponseWriter, r *http.Request) {
	var filters map[string]map[string]bool
	_ = json.Unmarshal([]byte(r.URL.Query().Get("filters")), &filters) // none is all
	e.mu.Lock()
	out := []any{}
	for _, b := range e.boxes {
		fits := true
		for label := range filters["label"] {
			k, v, _ := strings.Cut(label, "=")
			fits = fits && b.labels()[k] == v
		}
		if fits {
			out = append(out, map[string]any{"Id": b.id, "Names": []string{"/" + b.Name}, "Image": b.image, "State": b.state(), "Labels": b.labels(),
				"Status": "whatever", "Created": b.from.Unix()})
		}
	}
	e.mu.Unlock()
	say(w, http.StatusOK, out)
}

func (b *box) labels() map[string]string {
	if b.Project == "" {
		return map[string]string{}
	}
	return map[string]string{"com.docker.compose.project": b.Project, "com.docker.compose.service": "main"}
}

func (b *box) state() string {
	if b.up {
		return "running"
	}
	return "exited"
}

func (e *Engine) container(w http.ResponseWriter, r *http.Request, ref, what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.boxes[ref]
	if b == nil {
		b = e.named(ref)
	}
	if b == nil {
		say(w, http.StatusNotFound, map[string]string{"message": "No such container: " + ref})
		return
	}
	switch what {
	case "json":
		if b.said == nil {
			b.said, _ = json.Marshal(b.describe())
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(b.said)
		return
	case "logs":
		b.logs(w, r)
		return
	}
	e.acts = append(e.acts, what+" "+b.called())
	if what != "stop" {
		b.set(true)
	}
	b.set(false)
	e.emit("die", b)
	w.WriteHeader(http.StatusNoContent)
}

// called is the name by which people know the app.
func (b *box) called() string {
	if b.Project != "" {
		return b.Project
	}
	return b.Name
}

func (b *box) describe() map[string]any {
	pid := 0
	if b.up {
		pid = b.pid
	}
	return map[string]any{"Id": b.id, "Name": "/" + b.Name, "Created": iso(b.from), "Image": "sha256:" + b.image,
		"State":  map[string]any{"Status": b.state(), "Running": b.up, "Pid": pid, "ExitCode": 0, "StartedAt": iso(b.from), "FinishedAt": iso(b.to)},
		"Config": map[string]any{"Image": b.image, "Env": []string{}, "Cmd": []string{"serve"}, "Labels": b.labels(), "Hostname": b.id[:12]},
		"Path":   "/serve", "Args": []string{}, "Mounts": []any{},
		"HostConfig":      map[string]any{"NetworkMode": "bridge", "RestartPolicy": map[string]any{"Name": "no"}},
		"NetworkSettings": map[string]any{"Ports": map[string]any{}, "Networks": map[string]any{}}}
}

func iso(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func (b *box) logs(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/vnd.docker.multiplexed-stream")
	lines := b.Log
	if n, err := strconv.Atoi(r.URL.Query().Get("tail")); err == nil {
		lines = lines[max(0, len(lines)-n):]
	}
	for _, l := range lines {
		text := iso(b.from) + " " + l + "\n"
		head := []byte{1, 0, 0, 0, 0, 0, 0, 0}
		binary.BigEndian.PutUint32(head[4:], uint32(len(text)))
		_, _ = w.Write(append(head, text...))
	}
}
