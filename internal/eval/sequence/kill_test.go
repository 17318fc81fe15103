package sequence

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"atoll/internal/eval/rules"
)

// killer waits for the write after which the node dies. A write shows in the size of a write-ahead log, which is looked at
// wherever the node calls out: the clock, a stream, a handler, the model. SQLite's commits are whole or not there, so those
// are all the states of the disk that kill -9 can leave. bench.mu guards it.
type killer struct {
	armed int // writes to go; zero is none
	size  int64
	dead  bool
	dir   string // what the disk holds then
	err   error
	ran   map[string]int
	apps  map[string]rules.App
	theme string
}

// arm lets the node die after n more writes.
func (b *bench) arm(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kill.armed, b.kill.size = n, b.size()
}

// size is what the write-ahead logs and the grants file hold, a number that changes with each write.
func (b *bench) size() (n int64) {
	_ = b.files(func(name string) error {
		if strings.HasSuffix(name, "-wal") || strings.HasSuffix(name, ".json") {
			if st, err := os.Stat(b.path(name)); err == nil {
				n += st.Size() + 1
				if strings.HasSuffix(name, ".json") {
					n += st.ModTime().UnixNano() % 1000003
				}
			}
		}
		return nil
	})
	return n
}

// files calls f with each file that a node reads at its start.
func (b *bench) files(f func(name string) error) error {
	names := []string{"grants.json"}
	for _, pattern := range []string{"node.db*", "history/*.db*"} { // a file before its log
		found, err := filepath.Glob(b.path(pattern))
		if err != nil {
			return err
		}
		for _, path := range found {
			if name, err := filepath.Rel(b.dir, path); err == nil && !strings.HasSuffix(name, "-shm") && !strings.HasSuffix(name, ".new") {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		if err := f(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// point is called wherever the node calls out.
func (b *bench) point() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kill.armed == 0 || b.kill.dead {
		return
	}
	now := b.size()
	if now == b.kill.size {
		return
	}
	b.kill.size = now
	if b.kill.armed--; b.kill.armed == 0 {
		b.dieLocked()
	}
}

// die kills the node now.
func (b *bench) die() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.kill.dead {
		b.dieLocked()
	}
}

// dieLocked keeps the disk and the world as they are; what the rest of the process still does reaches neither.
func (b *bench) dieLocked() {
	if b.diary != nil {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // unreachable for long
	}
	b.out.mu.Lock()
	defer b.out.mu.Unlock()
	b.out.dead = true
	b.n++
	k := &b.kill
	k.dead, k.armed, k.dir = true, 0, filepath.Join(b.top, strconv.Itoa(b.n))
	k.ran, k.apps, k.theme = maps.Clone(b.out.ran), maps.Clone(b.out.apps), b.out.theme
	k.err = errors.Join(os.MkdirAll(filepath.Join(k.dir, "history"), 0o700), b.files(func(name string) error {
		raw, err := os.ReadFile(b.path(name))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(k.dir, name), raw, 0o600)
	}))
}

func (b *bench) isDead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kill.dead
}
