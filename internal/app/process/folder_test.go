package process

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Definitions are regular files of the node's owner, not writable by others; anything else is a problem that is told.
func TestScan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "apps")
	who := account{os.Geteuid(), user.Lookup}
	if _, problems := scan(dir, who); len(problems) != 1 {
		t.Errorf("no folder: %+v", problems)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(dir, 0o700))
	good := "command: [a]\n"
	if who.uid == 0 {
		good += "user: root\n"
	}
	write := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		must(os.WriteFile(path, []byte(good), 0o600))
		must(os.Chmod(path, mode))
		return path
	}
	write("good.yaml", 0o644)
	write("group.yaml", 0o664)
	write("all.yaml", 0o646)
	write("old.yml", 0o600)
	write("Upper.yaml", 0o600)
	write("white space.yaml", 0o600)
	write(strings.Repeat("x", 32)+".yaml", 0o600)
	write(".hidden.yaml", 0o600)
	write("good.yaml~", 0o600)
	write("notes.txt", 0o600)
	outside := filepath.Join(filepath.Dir(dir), "outside")
	must(os.WriteFile(outside, []byte(good), 0o600))
	must(os.Symlink(outside, filepath.Join(dir, "link.yaml")))
	must(os.Mkdir(filepath.Join(dir, "folder.yaml"), 0o700))
	must(unix.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600))
	if who.uid == 0 {
		must(os.Chown(write("foreign.yaml", 0o600), 65534, 65534))
	}
	files, problems := scan(dir, who)
	for name, f := range files {
		if (f.def != nil) != (name == "good") {
			t.Errorf("%s: %+v", name, f.def)
		}
	}
	told := map[string]string{}
	for _, p := range problems {
		told[p.File] = p.Problem
	}
	want := map[string]string{"group.yaml": "written by others (mode 0664)", "all.yaml": "written by others", "old.yml": "must end in .yaml",
		"Upper.yaml": "lower-case", "white space.yaml": "lower-case", strings.Repeat("x", 32) + ".yaml": "at most 31",
		"link.yaml": "symbolic link", "folder.yaml": "regular file", "pipe.yaml": "regular file"}
	if who.uid == 0 {
		want["foreign.yaml"] = "belongs to another user"
	}
	for file, why := range want {
		if !strings.Contains(told[file], why) {
			t.Errorf("%s: %q, want %q", file, told[file], why)
		}
		delete(told, file)
	}
	if len(told) > 0 {
		t.Errorf("also told: %v", told)
	}
	must(os.Chmod(dir, 0o777)) //nolint:gosec // that is what is refused
	if files, problems := scan(dir, who); len(files) != 0 || len(problems) != 1 {
		t.Errorf("a folder that all can write: %v %v", files, problems)
	}
}

// user is required where the node runs as root, root must be written out; elsewhere only the node's own user will do.
func TestAccountCheck(t *testing.T) {
	lookup := func(name string) (*user.User, error) {
		if uid := map[string]string{"root": "0", "media": "1000", "other": "1001"}[name]; uid != "" {
			return &user.User{Username: name, Uid: uid}, nil
		}
		return nil, errors.New("no such user")
	}
	for _, c := range []struct {
		uid        int
		name, want string
	}{
		{0, "", "user is required"},
		{0, "root", ""},
		{0, "media", ""},
		{0, "ghost", "no user ghost"},
		{1000, "", ""},
		{1000, "media", ""},
		{1000, "other", "does not run as root"},
		{1000, "root", "does not run as root"},
		{1000, "ghost", "no user ghost"},
	} {
		got := account{c.uid, lookup}.check(c.name)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%d %q: %q, want %q", c.uid, c.name, got, c.want)
		}
	}
}
