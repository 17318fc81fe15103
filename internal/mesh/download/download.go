// Package download keeps files that come in from other nodes: in one directory with no way out, under a quota, resumed
// where they broke off, and shown under their name only once their hash fits. It fetches nothing itself.
package download

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"atoll/internal/fault"
)

// Bounds of names that another node may give a file here. A name in the system takes 255 bytes, and the partial file's
// is longer than the file's.
const (
	maxPath  = 1024     // bytes
	maxName  = 255 - 24 // bytes; partName adds 24
	maxDepth = 32       // directories
)

// partial ends the name of a file that is not whole yet.
const partial = ".atoll-part"

// keepParts is how long a part waits for the rest of its file. Then it makes room for others.
const keepParts = 7 * 24 * time.Hour

// spare is what is left free on the disk whatever the quota says, in bytes.
const spare = 512 << 20

// Config is what a Store needs.
type Config struct {
	Dir   string // made if it is not there, mode 0700
	Quota int64  // bytes that all files together may take; above zero
	// Now tells how old a part of a file is; nil is the machine's clock.
	Now func() time.Time
}

// Store is one directory of downloads. It is safe for concurrent use.
type Store struct {
	cfg  Config
	root *os.Root

	mu       sync.Mutex // guards the rest
	open     map[string]bool
	reserved int64 // bytes that open downloads may still write
}

// New opens the directory. The caller closes the Store.
func New(cfg Config) (*Store, error) {
	if cfg.Quota <= 0 || !filepath.IsAbs(cfg.Dir) {
		return nil, errors.New("download: a full path and a quota above zero are needed")
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("the folder for downloads cannot be made: %w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	root, err := os.OpenRoot(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("the folder for downloads cannot be opened: %w", err)
	}
	return &Store{cfg: cfg, root: root, open: map[string]bool{}}, nil
}

// Close ends the use of the directory.
func (s *Store) Close() error { return s.root.Close() }

// CheckPath says why a path that another node names cannot be a file's path here, or nil.
func CheckPath(p string) error {
	bad := func(why string) error {
		return fault.New(fault.InvalidParams, "the file cannot be kept under that path: %s", why).At("path")
	}
	switch {
	case len(p) > maxPath:
		return bad("it is too long")
	case !utf8.ValidString(p) || !fs.ValidPath(p) || p == ".":
		return bad("it is no plain path below a folder")
	case strings.Count(p, "/") >= maxDepth:
		return bad("it lies too deep")
	case strings.ContainsFunc(p, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\\' }):
		return bad("it holds characters that cannot be seen")
	}
	for name := range strings.SplitSeq(p, "/") {
		if len(name) > maxName || strings.HasSuffix(name, partial) || strings.TrimSpace(name) != name || strings.HasPrefix(name, ".") {
			return bad("a name in it is too long, hidden, or begins or ends with a space")
		}
	}
	return nil
}

// File is a download under way. It belongs to one goroutine; Close ends it and keeps what has arrived.
type File struct {
	s      *Store
	f      *os.File
	key    string // of Store.open
	path   string // below the root, when it is whole
	size   int64
	sum    [sha256.Size]byte
	hash   hash.Hash
	at     int64
	whole  bool
	closed bool
}

// Begin opens the download of a file of that size and SHA-256 into folder/path. What has arrived of it earlier is hashed
// again and counts: Offset is where to go on. Errors: InvalidParams, TooLarge (quota, disk), Busy, Unavailable.
func (s *Store) Begin(ctx context.Context, folder, p string, size int64, sum [sha256.Size]byte) (*File, error) {
	if err := CheckPath(p); err != nil {
		return nil, err
	}
	if err := CheckPath(folder); err != nil || strings.Contains(folder, "/") {
		return nil, fault.New(fault.InvalidParams, "the folder for the file is not one plain name").At("folder")
	}
	if size < 0 {
		return nil, fault.New(fault.InvalidParams, "the file's size is below zero").At("size")
	}
	f := &File{s: s, path: path.Join(folder, p), size: size, sum: sum, hash: sha256.New()}
	f.key = f.path
	s.mu.Lock()
	busy := s.open[f.key]
	s.open[f.key] = true
	s.mu.Unlock()
	if busy {
		return nil, fault.New(fault.Busy, "this file is being fetched already")
	}
	err := f.start(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		if err = s.room(ctx, size-f.at); err != nil {
			err = errors.Join(err, f.f.Close())
		}
	}
	if err != nil {
		delete(s.open, f.key)
		return nil, err
	}
	s.reserved += size - f.at
	return f, nil
}

// start opens the partial file and reads what is in it. That can take minutes, so that others go on meanwhile.
func (f *File) start(ctx context.Context) (err error) {
	s := f.s
	if err := s.root.MkdirAll(path.Dir(f.path), 0o700); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the folder for the file cannot be made")
	}
	// The hash in the name keeps two versions of a file apart.
	name := f.partName()
	if f.f, err = s.root.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the file cannot be written")
	}
	fail := func(err error) error { return errors.Join(err, f.f.Close()) }
	info, err := f.f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return fail(fault.Wrap(err, fault.Unavailable, "something that is no file is in the way of the download"))
	}
	if info.Size() <= f.size {
		f.at, err = io.Copy(f.hash, &stopping{ctx, f.f})
	} else {
		err = f.f.Truncate(0)
	}
	if err != nil {
		return fail(fault.Wrap(err, fault.Unavailable, "what has arrived of the file cannot be read"))
	}
	return nil
}

// partDigits of a file's hash stand in the name of its parts.
const partDigits = 12

func (f *File) partName() string {
	return f.path + "." + hex.EncodeToString(f.sum[:])[:partDigits] + partial
}

// room checks the quota and the disk for that many more bytes; mu is held.
func (s *Store) room(ctx context.Context, more int64) error {
	used, err := s.used(ctx)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the folder for downloads cannot be read")
	}
	if more > s.cfg.Quota-used-s.reserved {
		return fault.New(fault.TooLarge, "this would go over the quota for downloads; remove some of them, or raise mesh.quota_gb")
	}
	var st unix.Statfs_t
	if err := unix.Statfs(s.cfg.Dir, &st); err == nil && more+s.reserved > int64(st.Bavail)*st.Bsize-spare {
		return fault.New(fault.TooLarge, "there is not enough room on the disk for this file")
	}
	return nil
}

// used is how many bytes lie in the directory, once the parts are gone that nobody went on with; mu is held.
func (s *Store) used(ctx context.Context) (n int64, err error) {
	err = fs.WalkDir(s.root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return errors.Join(err, ctx.Err())
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if file, ok := partOf(p); ok && !s.open[file] && s.cfg.Now().Sub(info.ModTime()) > keepParts && s.root.Remove(p) == nil {
			return nil
		}
		n += info.Size()
		return nil
	})
	return n, err
}

// partOf is the file that a partial file's name stands for.
func partOf(p string) (file string, ok bool) {
	if p, ok = strings.CutSuffix(p, partial); !ok || len(p) < partDigits+1 {
		return "", false
	}
	return p[:len(p)-partDigits-1], true
}

// stopping reads until ctx ends.
type stopping struct {
	ctx context.Context
	r   io.Reader
}

func (s *stopping) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}

// Offset is how many bytes have arrived.
func (f *File) Offset() int64 { return f.at }

// Write takes the next bytes. More than the file's size is an error and is not kept.
func (f *File) Write(p []byte) (int, error) {
	if int64(len(p)) > f.size-f.at {
		return 0, fault.New(fault.TooLarge, "the other node sent more than the file's size")
	}
	n, err := f.f.Write(p)
	f.hash.Write(p[:n])
	f.at += int64(n)
	f.s.mu.Lock()
	f.s.reserved -= int64(n)
	f.s.mu.Unlock()
	if err != nil {
		return n, fault.Wrap(err, fault.Unavailable, "the file cannot be written; is the disk full?")
	}
	return n, nil
}

// ErrHash says that all bytes arrived and are not the file that was announced. They are gone.
var ErrHash = errors.New("download: the hash does not fit")

// Finish puts the file in its place, over an earlier version, and returns its full path. A hash that does not fit is
// ErrHash, and nothing is left of the file.
func (f *File) Finish() (string, error) {
	if f.at != f.size {
		return "", fault.New(fault.Unavailable, "only %d of %d bytes arrived; ask again to go on", f.at, f.size)
	}
	if [sha256.Size]byte(f.hash.Sum(nil)) != f.sum {
		return "", errors.Join(ErrHash, f.s.root.Remove(f.partName()))
	}
	err := f.f.Sync()
	if err == nil {
		err = f.s.root.Rename(f.partName(), f.path)
	}
	if err != nil {
		return "", fault.Wrap(err, fault.Unavailable, "the file is whole and cannot be put in its place; is a folder of that name there?")
	}
	f.whole = true
	return filepath.Join(f.s.cfg.Dir, filepath.FromSlash(f.path)), nil
}

// Close lets go of the file; what has arrived is kept for another Begin. It may be called twice.
func (f *File) Close() error {
	if f.closed {
		return nil
	}
	f.closed = true
	f.s.mu.Lock()
	delete(f.s.open, f.key)
	f.s.reserved -= f.size - f.at
	f.s.mu.Unlock()
	return f.f.Close()
}
