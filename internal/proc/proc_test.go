package proc

import (
	"os"
	"os/exec"
	"testing"
)

func TestParseStat(t *testing.T) {
	const rest = " S 1 7 7 0 -1 4194560 1 2 3 4 10 20 0 0 20 0 1 0 5000 1000 3 18446744073709551615"
	got, err := parseStat(9, []byte("9 (a) b) (c"+")"+rest))
	want := Stat{PID: 9, Parent: 1, Session: 7, State: 'S', Start: 5000, Ticks: 30, RSS: 3 * uint64(os.Getpagesize())}
	if err != nil || got != want {
		t.Errorf("%+v %v", got, err)
	}
	for _, bad := range []string{"", "9 (a", "9 (a) S 1", "9 (a) SS" + rest[2:], "9 (a) S x" + rest[4:]} {
		if s, err := parseStat(9, []byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, s)
		}
	}
	self, err := Read(os.Getpid())
	if err != nil || self.Parent != os.Getppid() || self.RSS == 0 {
		t.Errorf("%+v %v", self, err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1 (x) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 5 1 1"))
	f.Add([]byte("1 () ) R"))
	f.Add([]byte(")\x00 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseStat(1, b); (err == nil) != (s != Stat{}) {
			t.Fatalf("%q: %+v %v", b, s, err)
		}
	})
}

// The slow way of kernels without pidfd sees an end too, and a closed handle ends either way.
func TestHandle(t *testing.T) {
	for _, slow := range []bool{false, true} {
		cmd := exec.Command("/bin/sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		st, err := Read(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Follow(st.PID, st.Start+1); err == nil {
			t.Error("another start time is the same process")
		}
		open := func() *Handle {
			h, err := Follow(st.PID, st.Start)
			if err != nil {
				t.Fatal(err)
			}
			if slow {
				_ = h.pidfd.Close()
				h.pidfd = nil
			}
			return h
		}
		closed, ended := open(), open()
		results := make(chan bool, 1)
		go func() { results <- closed.Wait() }()
		closed.Close()
		if <-results {
			t.Error("a closed handle says that the process ended")
		}
		go func() { results <- ended.Wait() }()
		_ = cmd.Process.Kill()
		if !<-results {
			t.Error("the end was not seen")
		}
		ended.Close()
		_ = cmd.Wait()
	}
}

func TestFindProgram(t *testing.T) {
	for name, want := range map[string]string{"sh": "/bin/sh", "/x/y": "/x/y", "./x": "./x", "no-such-program": "", "passwd.": ""} {
		if got, err := FindProgram(name, "relative::/etc:/bin"); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}
