// Package folder opens one directory and lists or reads what is under it, with no way out: not by "..", not by a
// symbolic link, not by a race. It knows no path of the product and decides nothing about who may look.
package folder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrOutside says that a path or a link on it leads out of the folder.
var ErrOutside = errors.New("the path leads out of the folder")

// ErrNotRegular says that a name is no regular file.
var ErrNotRegular = errors.New("not a regular file")

// Kind is what a name stands for, without following it.
type Kind string

// The kinds. Other is a device, a pipe or a socket.
const (
	File  Kind = "file"
	Dir   Kind = "dir"
	Link  Kind = "link"
	Other Kind = "other"
)

// Entry is one name in a directory. The name is a stranger's bytes and may not be UTF-8.
type Entry struct {
	Name     string
	Kind     Kind
	Size     int64 // bytes, zero for what is no file
	Modified time.Time
	Stamp    Stamp
}

// Stamp tells two versions of a file apart without reading it. The change time is part of it, since anyone can set the
// modification time back.
type Stamp struct {
	Inode    uint64
	Size     int64
	Modified int64 // nanoseconds since 1970
	Changed  int64
}

// Folder is an open directory. It is safe for concurrent use; the caller closes it.
type Folder struct{ root *os.Root }

// Open opens a directory.
func Open(path string) (*Folder, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, bare(err)
	}
	return &Folder{root}, nil
}

// Close ends the use of the folder.
func (f *Folder) Close() error { return f.root.Close() }

// Info describes the folder itself.
func (f *Folder) Info() (os.FileInfo, error) {
	info, err := f.root.Stat(".")
	return info, bare(err)
}

// scanMax bounds the names read of one directory, and with it the memory of a listing: 50,000 names are about 10 MB.
const scanMax = 50_000

// List returns the names in the directory rel (slashes, "." is the folder itself), sorted, at most limit of them, and
// whether there are more.
func (f *Folder) List(ctx context.Context, rel string, limit int) (entries []Entry, more bool, err error) {
	// Without O_NONBLOCK, opening a pipe that took the directory's place would wait for a writer.
	dir, err := f.root.OpenFile(local(rel), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, false, bare(err)
	}
	defer dir.Close()
	var names []string
	for len(names) < scanMax {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		some, err := dir.Readdirnames(1024)
		names = append(names, some...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, false, bare(err)
		}
	}
	slices.Sort(names)
	if more = len(names) > limit || len(names) >= scanMax; len(names) > limit {
		names = names[:limit]
	}
	for _, name := range names {
		e, err := entryAt(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since it was listed
		}
		if err != nil {
			return nil, false, err
		}
		entries = append(entries, e)
	}
	return entries, more, nil
}

func entryAt(dir *os.File, name string) (Entry, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	runtime.KeepAlive(dir)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Name: name, Kind: kindOf(st.Mode), Modified: time.Unix(st.Mtim.Unix()), Stamp: stampOf(st)}
	if e.Kind == File {
		e.Size = st.Size
	}
	return e, nil
}

func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Dir
	case unix.S_IFLNK:
		return Link
	}
	return Other
}

func stampOf(st unix.Stat_t) Stamp {
	return Stamp{Inode: st.Ino, Size: st.Size, Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano()}
}

// Read opens the regular file rel for reading. The caller closes it.
func (f *Folder) Read(rel string) (*os.File, Stamp, error) {
	file, err := f.root.OpenFile(local(rel), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, Stamp{}, bare(err)
	}
	stamp, err := StampOf(file)
	if err != nil {
		return nil, Stamp{}, errors.Join(err, file.Close())
	}
	return file, stamp, nil
}

// StampOf is the stamp of an open regular file as it is now.
func StampOf(file *os.File) (Stamp, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(file.Fd()), &st)
	runtime.KeepAlive(file)
	if err != nil {
		return Stamp{}, err
	}
	if kindOf(st.Mode) != File {
		return Stamp{}, ErrNotRegular
	}
	return stampOf(st), nil
}

// Passes reports whether the way to rel goes through, or ends in, the directory that target describes, whatever name it
// has there: a bind mount gives a directory a second one.
func (f *Folder) Passes(rel string, target os.FileInfo) (bool, error) {
	for at := filepath.Clean(local(rel)); ; at = filepath.Dir(at) {
		info, err := f.root.Stat(at)
		if err != nil {
			return false, bare(err)
		}
		if os.SameFile(info, target) {
			return true, nil
		}
		if at == "." {
			return false, nil
		}
	}
}

// Overlaps reports whether the open folder is, holds, or lies in the directory other, which exists. It goes by what they
// are on disk, not by what they are called, so that no link or rename can change the answer for the folder in hand.
func (f *Folder) Overlaps(other string) (bool, error) {
	here, err := f.root.OpenFile(".", os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return false, bare(err)
	}
	defer here.Close()
	there, err := os.Open(other)
	if err != nil {
		return false, bare(err)
	}
	defer there.Close()
	if lies, err := liesIn(there, here); lies || err != nil {
		return lies, err
	}
	return liesIn(here, there)
}

// liesIn climbs from one directory to the top and reports whether it meets the other.
func liesIn(dir, other *os.File) (bool, error) {
	target, err := identify(int(other.Fd()))
	if err != nil {
		return false, err
	}
	defer runtime.KeepAlive(dir)
	at, last := int(dir.Fd()), identity{}
	for {
		id, err := identify(at)
		if err == nil && id != target && id != last {
			var up int
			if up, err = unix.Openat(at, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
				closeUnless(at, dir)
				at, last = up, id
				continue
			}
		}
		closeUnless(at, dir)
		return err == nil && id == target, err
	}
}

func closeUnless(fd int, dir *os.File) {
	if fd != int(dir.Fd()) {
		_ = unix.Close(fd)
	}
}

type identity struct{ dev, ino uint64 }

func identify(fd int) (identity, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return identity{uint64(st.Dev), st.Ino}, err
}

// Overlap is Overlaps for two existing directories by their paths.
func Overlap(a, b string) (bool, error) {
	f, err := Open(a)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return f.Overlaps(b)
}

// local keeps an absolute or empty path from meaning something to the system.
func local(rel string) string {
	if rel == "" {
		return "."
	}
	return rel
}

// bare drops the path from an error, since names of files must not reach the log (H3), and names the way out.
func bare(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		if _, isErrno := pe.Err.(syscall.Errno); !isErrno && pe.Err.Error() == "path escapes from parent" {
			return ErrOutside
		}
		return fmt.Errorf("%s: %w", cmp.Or(pe.Op, "file"), pe.Err)
	}
	return err
}
