package socket

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPaths(t *testing.T) {
	cases := []struct {
		where, runtime string
		want           []string
		auto, bad      bool
	}{
		{"auto", "", []string{"/var/run/docker.sock", "/run/podman/podman.sock"}, true, false},
		{"auto", "/run/user/1000", []string{"/var/run/docker.sock", "/run/podman/podman.sock", "/run/user/1000/docker.sock", "/run/user/1000/podman/podman.sock"}, true, false},
		{"unix:///x/y.sock", "/run/user/1000", []string{"/x/y.sock"}, false, false},
		{"unix://relative", "", nil, false, true},
		{"tcp://127.0.0.1:2375", "", nil, false, true},
		{"/x/y.sock", "", nil, false, true},
		{"off", "", nil, false, true},
		{"", "", nil, false, true},
	}
	for _, c := range cases {
		got, auto, err := Paths(c.where, c.runtime)
		if !slices.Equal(got, c.want) || auto != c.auto || (err != nil) != c.bad {
			t.Errorf("%q: %v, %v, %v", c.where, got, auto, err)
		}
	}
}

// listen makes an engine of few words.
func listen(t *testing.T, path string, handler http.HandlerFunc) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: handler}
	over := make(chan struct{})
	go func() { defer close(over); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-over })
}

func engine(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Api-Version", "1.41")
	if strings.HasSuffix(r.URL.Path, "/version") {
		_, _ = io.WriteString(w, `{"Version":"4.3.1","ApiVersion":"1.41","Components":[{"Name":"Podman Engine","Version":"4.3.1"}]}`)
	}
}

// TestSearch: every way in which an engine can not be there is told apart, and the first that answers is taken.
func TestSearch(t *testing.T) {
	dir, err := os.MkdirTemp("", "sockets-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := func(name string) string { return filepath.Join(dir, name) }
	listen(t, path("good"), engine)
	listen(t, path("html"), func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "<html>hello</html>", http.StatusBadGateway)
	})
	deaf, err := net.Listen("unix", path("deaf")) // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	if err := os.WriteFile(path("file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name   string
		try    []string
		path   string
		reach  Reach
		why    string
		others int
	}{
		{"the first", []string{"good"}, "good", Answers, "", 0},
		{"past one that is not there", []string{"none", "file/below", "good"}, "good", Answers, "", 0},
		{"past one that is not well", []string{"file", "good"}, "good", Answers, "", 1},
		{"none", []string{"none", "none2"}, "none", Absent, "no such file", 0},
		{"a file", []string{"none", "file"}, "file", Silent, "connection refused", 0},
		{"another server", []string{"html"}, "html", Silent, "<html>hello", 0},
		{"two that are not well", []string{"file", "html"}, "file", Silent, "refused", 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var paths []string
			for _, p := range c.try {
				paths = append(paths, path(p))
			}
			f, others := Search(t.Context(), paths)
			if f.Path != path(c.path) || f.Reach != c.reach || !strings.Contains(f.Why, c.why) || len(others) != c.others || (f.Client != nil) != (c.reach == Answers) {
				t.Errorf("%+v, %+v", f, others)
			}
			if f.Client != nil {
				if f.Engine() != "Podman" || f.Version.Version != "4.3.1" || f.Client.ClientVersion() != "1.41" {
					t.Errorf("%+v", f)
				}
				_ = f.Client.Close()
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if f, _ := Search(ctx, []string{path("deaf")}); f.Reach != Silent || f.Client != nil {
		t.Errorf("%+v", f)
	}
}

// Issue 3, point 7: what to do, with the least privilege that works, and what that amounts to.
func TestProblem(t *testing.T) {
	since := time.Date(2026, 12, 2, 8, 0, 0, 0, time.UTC)
	file := filepath.Join(t.TempDir(), "docker.sock")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mode := func(m os.FileMode, gid int) {
		if err := os.Chmod(file, m); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 {
			if err := os.Chown(file, 0, gid); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(f Finding, words ...string) {
		t.Helper()
		for _, w := range words {
			if got := f.Problem(since); !strings.Contains(got, w) {
				t.Errorf("%q lacks %q", got, w)
			}
		}
	}
	check(Finding{Path: file, Reach: Absent}, file, "is not there", "[apps]")
	check(Finding{Path: file, Reach: Silent, Why: "\x1b[31mbad"}, "does not answer since 2026-12-02 08:00:00 UTC", `"\x1b[31mbad"`)
	mode(0o600, 0)
	check(Finding{Path: file, Reach: Denied}, "may not be opened", "group of its own", "SocketMode=0660", "as good as root")
	check(Finding{Path: "/no/such/folder/x.sock", Reach: Denied}, "folder is closed", "as good as root")
	if os.Geteuid() == 0 {
		mode(0o660, 4242)
		check(Finding{Path: file, Reach: Denied}, "to the group 4242", "usermod -aG 4242", "as good as root")
	}
}

func TestSaid(t *testing.T) {
	for _, c := range []struct {
		err   error
		said  string
		taken bool
	}{
		{errors.New("Error response from daemon: port is taken"), "port is taken", false},
		{errors.New(""), "no reason given", false},
		{io.EOF, "", true},
		{context.DeadlineExceeded, "", true},
		{&net.OpError{Op: "read", Err: os.NewSyscallError("read", io.ErrUnexpectedEOF)}, "", true},
	} {
		if Said(c.err) != c.said || Taken(c.err) != c.taken {
			t.Errorf("%v: %q, %v", c.err, Said(c.err), Taken(c.err))
		}
	}
}
