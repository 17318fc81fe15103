// Package files lists the directories under the roots that the owner configured. It opens no file, changes nothing, and
// never shows the node's own data. Paths and names are private (H3): none goes to the log.
package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/folder"
	"atoll/internal/rpc"
)

// Config is what a Room needs.
type Config struct {
	Log *slog.Logger
	// Roots are the full paths of [files] roots in config.toml; empty means that no files are shown.
	Roots []string
	// DataDir is the node's own directory, which no root may hold or lie in.
	DataDir string
}

// Room answers files.list. It keeps no root open, so that a disk can be taken out.
type Room struct {
	roots []string // clean, full, the longest first
	data  string
}

// maxRoots bounds the list of roots.
const maxRoots = 100

// New checks the roots. One that is not there now (a disk that is not plugged in) is kept and checked when it is used.
func New(cfg Config) (*Room, error) {
	if cfg.Log == nil || !filepath.IsAbs(cfg.DataDir) {
		return nil, errors.New("files: a log and the full path of the data directory are needed")
	}
	if len(cfg.Roots) > maxRoots {
		return nil, fmt.Errorf("files.roots has more than %d entries", maxRoots)
	}
	r := &Room{data: cfg.DataDir}
	for i, root := range cfg.Roots {
		name := fmt.Sprintf("files.roots[%d]", i)
		if !filepath.IsAbs(root) || strings.ContainsRune(root, 0) || !utf8.ValidString(root) {
			return nil, fmt.Errorf("%s must be a full path, beginning with /", name)
		}
		overlap, err := folder.Overlap(root, cfg.DataDir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			cfg.Log.Warn("a directory of files.roots is not there; it is shown once it is", "entry", i)
		case err != nil:
			return nil, fmt.Errorf("%s cannot be used: %w", name, bare(err))
		case overlap:
			return nil, fmt.Errorf("%s holds the node's data directory, or lies in it; choose another directory", name)
		}
		r.roots = append(r.roots, filepath.Clean(root))
	}
	slices.SortFunc(r.roots, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	r.roots = slices.Compact(r.roots)
	return r, nil
}

// bare drops the path from an error of the file system.
func bare(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

type listParams struct {
	// Path is the full path of a directory under a root; empty or "/" asks for the roots.
	Path string `json:"path"`
}

// Listing is the result of files.list, sorted by name. Names are strangers' text.
type Listing struct {
	Path      string  `json:"path"`
	Entries   []Entry `json:"entries"`
	Truncated bool    `json:"truncated"`
}

// Entry is one name in a directory; in the list of roots it is a root's full path. A name that is no UTF-8 has its bad
// bytes replaced and cannot be asked for.
type Entry struct {
	Name     string      `json:"name"`
	Kind     folder.Kind `json:"kind"`
	Size     int64       `json:"size_bytes"`
	Modified time.Time   `json:"modified"`
}

// maxEntries bounds one listing.
const maxEntries = 1000

// maxPath is the longest path the system takes, in bytes.
const maxPath = 4096

// Methods are the room's rows.
func (r *Room) Methods() []rpc.Method {
	return []rpc.Method{
		rpc.Spec[listParams, Listing]{
			Row: rpc.Row{Name: "files.list", Summary: "Lists a directory under the configured roots, or the roots.", Effect: rpc.Read,
				Doors: rpc.People | rpc.Tools, Role: caller.Owner},
			Rule: func(_ context.Context, _ caller.Caller, p listParams) error { _, _, err := r.place(p.Path); return err },
			Handle: func(ctx context.Context, _ caller.Caller, p listParams) (Listing, error) {
				return r.list(ctx, p.Path)
			},
		}.Method(),
	}
}

// place finds the root that a path lies under, and the way from there. An empty root means the list of roots.
func (r *Room) place(path string) (root, rel string, err error) {
	if len(r.roots) == 0 {
		return "", "", fault.New(fault.NotConfigured, "no directories are configured; list them under [files] roots in config.toml")
	}
	switch {
	case path == "" || path == "/":
		return "", "", nil
	case len(path) > maxPath || strings.ContainsRune(path, 0) || !utf8.ValidString(path):
		return "", "", fault.New(fault.InvalidParams, "path must be a text of at most %d bytes without a zero byte", maxPath).At("path")
	case !filepath.IsAbs(path):
		return "", "", fault.New(fault.InvalidParams, "path must be a full path, beginning with /; an empty path lists where to begin").At("path")
	case slices.Contains(strings.Split(path, "/"), ".."):
		return "", "", fault.New(fault.InvalidParams, `path must not contain ".."`).At("path")
	}
	path = filepath.Clean(path)
	for _, root := range r.roots {
		if path == root {
			return root, ".", nil
		}
		if rel, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/")+"/"); ok {
			return root, rel, nil
		}
	}
	return "", "", fault.New(fault.Rule, "that path is under none of the configured directories; an empty path lists them").At("path")
}

func (r *Room) list(ctx context.Context, path string) (Listing, error) {
	root, rel, err := r.place(path)
	if err != nil {
		return Listing{}, err
	}
	if root == "" {
		return r.listRoots(), nil
	}
	f, err := r.open(root)
	if err != nil {
		return Listing{}, words(err)
	}
	defer f.Close()
	data, err := os.Stat(r.data)
	if err != nil {
		return Listing{}, words(err)
	}
	own, err := f.Passes(rel, data)
	if err != nil {
		return Listing{}, words(err)
	}
	if own {
		return Listing{}, words(folder.ErrOutside)
	}
	entries, more, err := f.List(ctx, rel, maxEntries)
	if err != nil {
		return Listing{}, words(err)
	}
	out := Listing{Path: filepath.Join(root, rel), Entries: make([]Entry, len(entries)), Truncated: more}
	for i, e := range entries {
		out.Entries[i] = Entry{Name: strings.ToValidUTF8(e.Name, "\uFFFD"), Kind: e.Kind, Size: e.Size, Modified: e.Modified.UTC()}
	}
	return out, nil
}

// open opens a root as it is now and checks that what was opened is none of the node's own.
func (r *Room) open(root string) (*folder.Folder, error) {
	f, err := folder.Open(root)
	if err != nil {
		return nil, err
	}
	overlap, err := f.Overlaps(r.data)
	if err == nil && overlap {
		err = folder.ErrOutside
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (r *Room) listRoots() Listing {
	out := Listing{Path: "/", Entries: []Entry{}}
	for _, root := range slices.Sorted(slices.Values(r.roots)) {
		e := Entry{Name: root, Kind: folder.Dir}
		info, err := os.Stat(root)
		if err != nil || !info.IsDir() {
			continue // not there now
		}
		e.Modified = info.ModTime().UTC()
		out.Entries = append(out.Entries, e)
	}
	return out
}

// words turns an error of the file system into one without a path (H3).
func words(err error) error {
	cause := bare(err)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, folder.ErrOutside):
		return fault.Wrap(cause, fault.Rule, "that path leads out of the configured directories").At("path")
	case errors.Is(err, fs.ErrNotExist):
		return fault.Wrap(cause, fault.NotFound, "there is no such directory").At("path")
	case errors.Is(err, fs.ErrPermission):
		return fault.Wrap(cause, fault.Unavailable, "the node may not read that directory; allow its user to").At("path")
	case errors.Is(err, syscall.ENOTDIR):
		return fault.Wrap(cause, fault.Rule, "that is not a directory").At("path")
	}
	return fault.Wrap(cause, fault.Unavailable, "that directory cannot be read now").At("path")
}
