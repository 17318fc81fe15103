// Package content keeps the index of the one shared folder: which regular files are in it, and their SHA-256. It is what
// other nodes may see; files beyond it are another room's, and it never writes into the folder.
package content

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"atoll/internal/folder"
	"atoll/internal/store"
)

// Config is what a Room needs.
type Config struct {
	DB  *store.DB // has Schema
	Log *slog.Logger
	// Dir is the full path of [content] dir; empty means DataDir/content, which is made if it is not there.
	Dir string
	// DataDir is the node's own directory. But for DataDir/content itself, the shared folder may not hold or lie in it.
	DataDir string
	// Rescan is how often the folder is looked through even if nothing was noticed; zero means 5 minutes.
	Rescan time.Duration
	Now    func() time.Time // nil means time.Now
	// OnIndexed is told each time the index has caught up with the folder; it must not block. May be nil.
	OnIndexed func()
	// Shared lists the folders that a peer may see, as paths from the top of the shared folder; "" or "/" is all of it.
	// Nil, or an empty list, is nothing.
	Shared func(peerKey string) []string
	// Catalogue is what a peer last said it shares, of what begins with the prefix. It asks nobody (A3b). Nil: this node
	// knows no peer.
	Catalogue func(ctx context.Context, peer, prefix string) (Listing, error)
}

// Times of the worker.
const (
	defaultRescan = 5 * time.Minute
	// quiet is how long after a change the folder is looked through: a copy of many files is one change.
	quiet = 500 * time.Millisecond
	// settle is how old a file's last change must be before it is hashed: one that is being written changes again.
	settle = 2 * time.Second
)

// Room holds the index. It is safe for concurrent use.
type Room struct {
	cfg    Config
	own    string // DataDir/content
	quiet  time.Duration
	settle time.Duration
	work   chan struct{} // tells the hasher that there may be files without a hash
	look   chan struct{} // tells the scanner to look again

	mu      sync.RWMutex // guards the rest
	items   []item       // sorted by path; paths and stamps never change, hashes do
	away    []item       // what was there before the folder looked empty
	scanned bool         // the folder has been looked through since the start
	problem error        // why it could not be, the last time
	skipped int          // names that cannot be shared
	full    bool         // there are more files than the index holds
}

// New reads the index that was kept and checks the folder. Rows that are damaged are left out: those files are hashed
// again.
func New(ctx context.Context, cfg Config) (*Room, error) {
	if cfg.DB == nil || cfg.Log == nil || !filepath.IsAbs(cfg.DataDir) {
		return nil, errors.New("content: a database, a log and the full path of the data directory are needed")
	}
	r := &Room{cfg: cfg, own: filepath.Join(cfg.DataDir, "content"), quiet: quiet, settle: settle,
		work: make(chan struct{}, 1), look: make(chan struct{}, 1)}
	if r.cfg.Dir == "" {
		r.cfg.Dir = r.own
		if err := os.MkdirAll(r.own, 0o700); err != nil {
			return nil, fmt.Errorf("the shared folder cannot be made: %w", err)
		}
	}
	if !filepath.IsAbs(r.cfg.Dir) {
		return nil, errors.New("content.dir must be a full path, beginning with /")
	}
	if r.cfg.Rescan <= 0 {
		r.cfg.Rescan = defaultRescan
	}
	if r.cfg.Now == nil {
		r.cfg.Now = time.Now
	}
	f, err := r.open()
	switch {
	case errors.Is(err, errOverlap):
		return nil, errOverlap
	case errors.Is(err, fs.ErrNotExist):
		cfg.Log.Warn("the shared folder is not there; it is indexed once it is", "dir", r.cfg.Dir)
		r.problem = err
	case err != nil:
		return nil, fmt.Errorf("content.dir cannot be used: %w", err)
	default:
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("content.dir cannot be used: %w", err)
		}
	}
	if r.items, err = load(ctx, cfg.DB, cfg.Log); err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	return r, nil
}

var errOverlap = errors.New("content.dir holds the node's data directory, or lies in it; choose another directory, or leave it out for the one " +
	"that is made for it")

// open opens the folder as it is now and checks that what was opened is none of the node's own.
func (r *Room) open() (*folder.Folder, error) {
	f, err := folder.Open(r.cfg.Dir)
	if err != nil {
		return nil, err
	}
	if err := r.check(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (r *Room) check(f *folder.Folder) error {
	info, err := f.Info()
	if err != nil {
		return err
	}
	if own, err := os.Lstat(r.own); err == nil && own.IsDir() && os.SameFile(own, info) {
		return nil // the one place in the data directory that is for sharing
	}
	overlap, err := f.Overlaps(r.cfg.DataDir)
	if err == nil && overlap {
		err = errOverlap
	}
	return err
}
