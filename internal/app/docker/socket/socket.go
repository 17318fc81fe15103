// Package socket finds a container engine: it tries the sockets where one may listen and says what is wrong with each and
// what to do. It asks an engine for nothing but its version.
package socket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moby/moby/client"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
)

const (
	dialTime = 3 * time.Second

	// AnswerTime is how long an engine has to say what it is.
	AnswerTime = 5 * time.Second
)

// Paths lists the sockets to try, the preferred first. "auto" means the usual places, with those under the user's own
// runtime directory unless that is empty; "unix:///path" is one.
func Paths(where, runtimeDir string) (paths []string, auto bool, err error) {
	if where == "auto" {
		paths = []string{"/var/run/docker.sock", "/run/podman/podman.sock"}
		if runtimeDir != "" {
			paths = append(paths, filepath.Join(runtimeDir, "docker.sock"), filepath.Join(runtimeDir, "podman/podman.sock"))
		}
		return paths, true, nil
	}
	path, ok := strings.CutPrefix(where, "unix://")
	if !ok || !filepath.IsAbs(path) {
		return nil, false, fmt.Errorf("the engine's socket must be auto or unix:///path, not %q", where)
	}
	return []string{path}, false, nil
}

// Reach is what became of a try to reach the engine behind a socket.
type Reach uint8

// What can become of one.
const (
	Absent  Reach = iota + 1 // no such file
	Denied                   // not for this user
	Silent                   // nobody answers
	Answers                  // as an engine does
)

// Finding is one socket that was tried.
type Finding struct {
	Path    string
	Reach   Reach
	Why     string         // what the system or the other side says
	Client  *client.Client // of an engine that answers; for whoever asked to close
	Version client.ServerVersionResult
}

// Engine is "Docker" or "Podman".
func (f Finding) Engine() string {
	for _, c := range f.Version.Components {
		if strings.HasPrefix(c.Name, "Podman") {
			return "Podman"
		}
	}
	return "Docker"
}

// try reaches for the engine behind a socket. The client of one that answers is the caller's to close.
func try(ctx context.Context, path string) Finding {
	f := Finding{Path: path, Reach: Silent}
	dialer := net.Dialer{Timeout: dialTime}
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		f.Reach, f.Why = Absent, "there is no such file"
		return f
	case errors.Is(err, fs.ErrPermission):
		f.Reach, f.Why = Denied, "permission denied"
		return f
	case err != nil:
		f.Why = Reason(err)
		return f
	}
	_ = conn.Close()
	c, err := client.New(client.WithHost("unix://"+path), client.WithUserAgent("atoll"),
		client.WithDialContext(func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}),
		client.WithTraceOptions(otelhttp.WithFilter(func(*http.Request) bool { return false }))) // nobody reads its traces
	if err != nil {
		f.Why = Reason(err) // unreachable: the path is absolute
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, AnswerTime)
	defer cancel()
	if _, err = c.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err == nil {
		f.Version, err = c.ServerVersion(ctx, client.ServerVersionOptions{})
	}
	if err != nil {
		_ = c.Close()
		f.Why = Reason(err)
		return f
	}
	f.Reach, f.Client = Answers, c
	return f
}

// Reason is the reason in an error, without the words about sockets and addresses around it.
func Reason(err error) string {
	var number syscall.Errno
	switch {
	case errors.As(err, &number):
		return number.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer in %v", AnswerTime)
	}
	return fmt.Sprintf("%.300s", err)
}

// Problem says what is wrong with a socket and what to do. since is when it was last well.
func (f Finding) Problem(since time.Time) string {
	switch f.Reach {
	case Absent:
		return fmt.Sprintf("the container engine's socket %s is not there; start the engine, or correct docker under [apps] in config.toml", f.Path)
	case Denied:
		return fmt.Sprintf("the container engine's socket %s may not be opened by this user; %s", f.Path, access(f.Path))
	}
	return fmt.Sprintf("the container engine at %s does not answer since %s (%+.300q); its apps are here again once it does",
		f.Path, since.UTC().Format("2006-01-02 15:04:05 UTC"), f.Why)
}

// access says how to get at a socket with the least privilege that works.
func access(path string) string {
	const root = "; whoever may open this socket is as good as root on this machine"
	me := "the node's user"
	if u, err := user.Current(); err == nil {
		me = u.Username
	}
	st, err := os.Stat(path)
	sys, ok := (*syscall.Stat_t)(nil), false
	if err == nil {
		sys, ok = st.Sys().(*syscall.Stat_t)
	}
	if !ok {
		return "its folder is closed to " + me + "; open the folder and the socket to a group of its own and add " + me + " to that" + root
	}
	group := strconv.Itoa(int(sys.Gid))
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	if sys.Gid == 0 || st.Mode().Perm()&0o060 != 0o060 {
		return "it is open to its owner alone (" + st.Mode().Perm().String() + ", group " + group +
			"): give it a group of its own (for Podman: SocketGroup= and SocketMode=0660 in a drop-in of podman.socket) and add " + me + " to that" + root
	}
	return "add " + me + " to the group " + group + " (usermod -aG " + group + " " + me + ") and start the node again" + root
}

// Search tries the sockets in their order until an engine answers. Where none does, found is the first that is there.
// others are those before it that are there and not well.
func Search(ctx context.Context, sockets []string) (found Finding, others []Finding) {
	for _, path := range sockets {
		f := try(ctx, path)
		if f.Reach == Answers {
			return f, others
		}
		if f.Reach != Absent {
			others = append(others, f)
		}
		if found.Path == "" || found.Reach == Absent && f.Reach != Absent {
			found = f
		}
	}
	if len(others) > 0 {
		others = others[1:]
	}
	return found, others
}

// Said is the engine's own message in an error; empty where it gave none because it was not reached or fell silent.
func Said(err error) string {
	if client.IsErrConnectionFailed(err) || Taken(err) {
		return ""
	}
	return cmp.Or(strings.TrimPrefix(err.Error(), "Error response from daemon: "), "no reason given")
}

// Taken reports whether an engine that gave no answer may have taken the question.
func Taken(err error) bool {
	for _, one := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
