package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"atoll/internal/app"
)

// identity tells whether a file is still the one that was looked at.
type identity struct {
	dev, ino       uint64
	size           int64
	mtime, ctime   unix.Timespec
	mode, uid, gid uint32
}

func identityOf(st *unix.Stat_t) identity {
	return identity{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim, st.Mode, st.Uid, st.Gid}
}

// lookAt is the identity of what path names, itself; the zero identity where there is nothing.
func lookAt(path string) identity {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return identity{}
	}
	return identityOf(&st)
}

// file is what one apps/NAME.yaml came to.
type file struct {
	id  identity
	def *definition // nil with problems
}

// account is the user a node runs as and how it looks up others.
type account struct {
	uid    int
	lookup func(name string) (*user.User, error)
}

// scan reads the folder of definitions. It never fails as a whole: what is wrong is a problem.
func scan(dir string, who account) (map[string]file, []app.Problem) {
	files := map[string]file{}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return files, []app.Problem{{Problem: "the folder of app definitions cannot be read: " + err.Error()}}
	}
	if why := unsafe(&st, who.uid); why != "" {
		return files, []app.Problem{{Problem: "the folder of app definitions " + why + "; no app is run from it"}}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return files, []app.Problem{{Problem: "the folder of app definitions cannot be read: " + err.Error()}}
	}
	var problems []app.Problem
	for _, e := range entries {
		name, isYAML := strings.CutSuffix(e.Name(), ".yaml")
		switch {
		case strings.HasPrefix(e.Name(), "."):
			continue
		case strings.HasSuffix(e.Name(), ".yml"):
			problems = append(problems, app.Problem{File: clip(e.Name()), Problem: "the file's name must end in .yaml"})
			continue
		case !isYAML:
			continue
		case !appName.MatchString(name):
			problems = append(problems, app.Problem{File: clip(e.Name()),
				Problem: "the name must be at most 31 lower-case letters, digits, dots, dashes and underscores"})
			continue
		}
		f, wrong := read(filepath.Join(dir, e.Name()), who)
		if f.id == (identity{}) && len(wrong) == 0 {
			continue // gone since the folder was read
		}
		files[name] = f
		for _, w := range wrong {
			problems = append(problems, app.Problem{File: e.Name(), Problem: w})
		}
	}
	return files, problems
}

// read takes one definition from a file that nobody but the node's user can have written.
func read(path string, who account) (file, []string) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return file{}, nil
	case errors.Is(err, unix.ELOOP):
		return file{id: lookAt(path)}, []string{"it is a symbolic link; a definition must be a regular file"}
	case err != nil:
		return file{id: lookAt(path)}, []string{"it cannot be read: " + cause(err)}
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return file{}, []string{"it cannot be read: " + err.Error()}
	}
	out := file{id: identityOf(&st)}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return out, []string{"a definition must be a regular file"}
	}
	if why := unsafe(&st, who.uid); why != "" {
		return out, []string{"it " + why}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxDefinitionBytes+1))
	if err != nil {
		return out, []string{"it cannot be read: " + cause(err)}
	}
	def, problems := parse(data)
	if def != nil {
		if why := who.check(def.User); why != "" {
			return out, []string{why}
		}
	}
	out.def = def
	return out, problems
}

// unsafe says why a file or folder could hold somebody else's words.
func unsafe(st *unix.Stat_t, uid int) string {
	switch {
	case int(st.Uid) != uid:
		return "belongs to another user (" + strconv.Itoa(int(st.Uid)) + ", not " + strconv.Itoa(uid) + ")"
	case st.Mode&0o022 != 0:
		return fmt.Sprintf("can be written by others (mode %04o); chmod go-w it", st.Mode&0o7777)
	}
	return ""
}

// check says why an app may not run as that user.
func (a account) check(name string) string {
	if a.uid == 0 && name == "" {
		return "user is required because this node runs as root; write user: root if that is meant"
	}
	if name == "" {
		return ""
	}
	u, err := a.lookup(name)
	if err != nil {
		return "there is no user " + clip(name) + " on this machine"
	}
	if a.uid != 0 && u.Uid != strconv.Itoa(a.uid) {
		return "this node does not run as root, so it cannot run an app as " + name
	}
	return ""
}

// cause is the last words of a file error, without the path that its reader knows.
func cause(err error) string {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}
