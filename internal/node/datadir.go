package node

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"atoll/internal/account"
	"atoll/internal/assistant"
	"atoll/internal/audit"
	"atoll/internal/confirm"
	"atoll/internal/content"
	"atoll/internal/folder"
	"atoll/internal/mesh"
	"atoll/internal/notice"
	"atoll/internal/setting"
	"atoll/internal/store"
)

// dataDir is the node's directory while one process holds it.
type dataDir struct {
	path string
	lock *os.File
}

// HeldError says that another process runs on the data directory.
type HeldError struct {
	Dir string
	PID string
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("another atoll (process %s) already runs on %s; stop it first, or use another --data-dir", e.PID, e.Dir)
}

// folders are the rooms' own; each makes its folder where there is none.
var folders = [...]string{"apps", "app-data", "assistant", "content", "downloads", "history", "logs", "run", "secrets"}

// openDir makes the directory private and takes its lock. The second taker gets a HeldError that names the first.
func openDir(path string) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	for _, name := range folders {
		if st, err := os.Stat(filepath.Join(path, name)); err == nil && !st.IsDir() {
			return nil, fmt.Errorf("%s is there and is no folder; move it away", filepath.Join(path, name))
		}
	}
	lock := filepath.Join(path, "atoll.lock")
	if st, err := os.Lstat(lock); err == nil && !st.Mode().IsRegular() { // it is written to
		return nil, fmt.Errorf("%s is there and is no regular file; move it away", lock)
	}
	f, err := os.OpenFile(lock, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory: %w", err)
		}
		var pid [32]byte
		n, _ := f.ReadAt(pid[:], 0)
		return nil, &HeldError{Dir: path, PID: strings.TrimSpace(string(pid[:n]))}
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(fmt.Sprintf("%d\n", os.Getpid())), 0)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("data directory: %w", err), f.Close())
		}
	}
	return &dataDir{path: path, lock: f}, nil
}

func (d *dataDir) file(name ...string) string {
	return filepath.Join(append([]string{d.path}, name...)...)
}

func (d *dataDir) close() error { return d.lock.Close() }

// besides are what only a node that ran before leaves in its directory.
var besides = [...]string{"node.key", "history", "assistant"}

// openStore opens node.db. A missing or damaged account store beside other data never starts afresh, because then
// whoever comes first could make himself the owner (G7). Only a person with the directory in hand may do that, by
// adding an owner: fresh says so.
func (d *dataDir) openStore(ctx context.Context, fresh bool) (*store.DB, error) {
	path := d.file("node.db")
	_, err := os.Lstat(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing && !fresh {
		for _, name := range besides {
			if _, err := os.Lstat(d.file(name)); err == nil {
				return nil, fmt.Errorf("the account store %s is missing, but %s is there: this is no new node. Restore node.db from a backup, "+
					"or begin with new accounts and keep the rest: atoll user add NAME --role owner --password-stdin --data-dir %s", path, name, d.path)
			}
		}
	}
	db, err := store.Open(ctx, store.Config{Path: path, PageSize: 1024, Readers: 2, Schemas: []store.Schema{account.Schema(), audit.Schema(),
		confirm.Schema(), notice.Schema(), setting.Schema(), content.Schema(), assistant.Schema(), mesh.Schema()}})
	if err != nil {
		return nil, d.explain(err)
	}
	if missing {
		err = account.NumberAfter(ctx, db, d.lastAccount())
	}
	return db, err
}

// explain says what to do about a damaged account store, whichever room met the damage.
func (d *dataDir) explain(err error) error {
	path := d.file("node.db")
	if store.Disk(err) {
		return fmt.Errorf("the account store %s cannot be opened; is the disk full or read-only? Free some room, or have the disk looked at: %w", path, err)
	}
	if !store.Damaged(err) {
		return err
	}
	return fmt.Errorf("the account store %s is damaged and was left as it is. Restore it from a backup, or move it away and begin "+
		"with new accounts, keeping the rest: mv %s %s.damaged && atoll user add NAME --role owner --password-stdin --data-dir %s: %w",
		path, path, path, d.path, err)
}

// lastAccount is the highest account number that a history file is named by: new accounts beside old histories must not
// come into their predecessors' chats (H1).
func (d *dataDir) lastAccount() int64 {
	entries, err := os.ReadDir(d.file("history"))
	if err != nil {
		return 0 // no history, nothing to keep apart
	}
	var last int64
	for _, e := range entries {
		var n int64
		if _, err := fmt.Sscanf(e.Name(), "operator-%d", &n); err == nil {
			last = max(last, n)
		}
	}
	return last
}

// openKey reads the node's Ed25519 key, or makes it where the audit record is still empty. A node that lost its key
// does not silently become another one.
func (d *dataDir) openKey(ctx context.Context, db *store.DB) (ed25519.PrivateKey, error) {
	path := d.file("node.key")
	raw, err := folder.ReadSmall(path, maxKey)
	if errors.Is(err, fs.ErrNotExist) {
		var records int
		if err := db.Reader().QueryRowContext(ctx, "SELECT count(*) FROM (SELECT 1 FROM audit LIMIT 1)").Scan(&records); err != nil {
			return nil, err
		}
		if records > 0 {
			return nil, fmt.Errorf("the node's key %s is missing, but its audit record is signed with it; restore the file from a backup", path)
		}
		seed := make([]byte, ed25519.SeedSize)
		_, _ = rand.Read(seed) // never fails: crypto/rand ends the program instead
		if err := renameio.WriteFile(path, []byte(hex.EncodeToString(seed)+"\n"), 0o600, renameio.IgnoreUmask()); err != nil {
			return nil, fmt.Errorf("node key: %w", err)
		}
		return ed25519.NewKeyFromSeed(seed), nil
	}
	if err != nil {
		return nil, fmt.Errorf("the node's key cannot be read; make it the node's own file, or restore it from a backup: %w", err)
	}
	seed, err := hex.DecodeString(strings.TrimSpace(string(raw)))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("the node's key %s is damaged; restore the file from a backup", path)
	}
	return ed25519.NewKeyFromSeed(seed), os.Chmod(path, 0o600)
}

// owned adds to an error about a file of the data directory that this user may not have what to do about it.
func owned(dir string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); !ok || !errors.Is(err, fs.ErrPermission) || !strings.HasPrefix(e.Path, dir) {
		return err
	}
	return fmt.Errorf("%w. The node runs as user %d, and all of its data directory must be its own: chown -R %d %s && chmod -R u+rwX %s",
		err, os.Geteuid(), os.Geteuid(), dir, dir)
}

// maxKey bounds the file of the key, in bytes.
const maxKey = 4 << 10

// actionSecret keys the action keys of private categories; it is derived, so that there is no second secret to lose.
func actionSecret(key ed25519.PrivateKey) ([]byte, error) {
	return hkdf.Key(sha256.New, key.Seed(), nil, "atoll action keys", 32)
}
