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

// Overlap reports whether one of two existing directories is, or lies in, the other, after resolving links and by what
// they are on disk rather than what they are called.
func Overlap(a, b string) (bool, error) {
	a, aInfo, err := resolve(a)
	if err != nil {
		return false, err
	}
	b, bInfo, err := resolve(b)
	if err != nil {
		return false, err
	}
	inA, err := within(b, aInfo)
	if inA || err != nil {
		return inA, err
	}
	return within(a, bInfo)
}

func resolve(path string) (string, os.FileInfo, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", nil, err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", nil, err
	}
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	return path, info, err
}

func within(path string, dir os.FileInfo) (bool, error) {
	for at := path; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return false, err
		}
		if os.SameFile(info, dir) {
			return true, nil
		}
		if at == filepath.Dir(at) {
			return false, nil
		}
	}
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
