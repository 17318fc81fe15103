package client

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"atoll/internal/fault"
	"atoll/internal/secret"
)

// Credentials is the file of open sessions, one an address. Only its owner may read it.
type Credentials struct{ path string }

// OpenCredentials names the file. It is read and written by the methods.
func OpenCredentials(path string) *Credentials { return &Credentials{path} }

// credentialsFile is the form on disk.
type credentialsFile struct {
	Current string                `json:"current,omitempty"` // the address of the last login
	Nodes   map[string]credential `json:"nodes"`
}

type credential struct {
	Session   string    `json:"session"`
	CSRF      string    `json:"csrf"`
	Username  string    `json:"username"`
	Role      string    `json:"role"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// Path is where the file is.
func (c *Credentials) Path() string { return c.path }

// Current is the address of the last login, or "".
func (c *Credentials) Current() (string, error) {
	f, err := c.read()
	return f.Current, err
}

// Get returns the session kept for an address; ok is false if there is none.
func (c *Credentials) Get(address string) (s Session, ok bool, err error) {
	f, err := c.read()
	if err != nil {
		return Session{}, false, err
	}
	n, ok := f.Nodes[address]
	return Session{Token: secret.New(n.Session), CSRF: secret.New(n.CSRF), Username: n.Username, Role: n.Role, ExpiresAt: n.ExpiresAt}, ok, nil
}

// Put keeps a session and makes its address the current one.
func (c *Credentials) Put(address string, s Session) error {
	return c.change(func(f *credentialsFile) {
		f.Current = address
		f.Nodes[address] = credential{Session: s.Token.Reveal(), CSRF: s.CSRF.Reveal(), Username: s.Username, Role: s.Role, ExpiresAt: s.ExpiresAt}
	})
}

// Remove forgets the session of an address.
func (c *Credentials) Remove(address string) error {
	return c.change(func(f *credentialsFile) {
		delete(f.Nodes, address)
		if f.Current == address {
			f.Current = ""
		}
	})
}

func (c *Credentials) read() (credentialsFile, error) {
	f := credentialsFile{Nodes: map[string]credential{}}
	info, err := os.Lstat(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		err = c.mine(info)
	}
	if err != nil {
		return f, c.fault(err)
	}
	raw, err := os.ReadFile(c.path)
	if err != nil {
		return f, c.fault(err)
	}
	if err := json.Unmarshal(raw, &f, json.RejectUnknownMembers(true)); err != nil {
		return f, fault.Wrap(err, fault.Failed, "%s is damaged — remove it and log in again", c.path)
	}
	if f.Nodes == nil {
		f.Nodes = map[string]credential{}
	}
	return f, nil
}

// mine refuses a file that somebody else may have read or written.
func (c *Credentials) mine(info fs.FileInfo) error {
	stat, _ := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return fault.New(fault.Forbidden, "%s is no regular file — remove it and log in again", c.path)
	case stat != nil && int(stat.Uid) != os.Getuid():
		return fault.New(fault.Forbidden, "%s belongs to another user — remove it and log in again", c.path)
	case info.Mode().Perm()&0o077 != 0:
		return fault.New(fault.Forbidden, "others can read %s (mode %04o) — run `chmod 600` on it, or remove it and log in again", c.path, info.Mode().Perm())
	}
	return nil
}

func (c *Credentials) fault(err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	return fault.Wrap(err, fault.Failed, "the sessions in %s cannot be used — %v", c.path, unwrapPath(err))
}

func unwrapPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// change rewrites the file under a lock, so that two logins at once are both kept.
func (c *Credentials) change(edit func(*credentialsFile)) (err error) {
	if err := os.MkdirAll(filepath.Dir(c.path), 0o700); err != nil {
		return c.fault(err)
	}
	lock, err := os.OpenFile(c.path+".lock", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return c.fault(err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return c.fault(fmt.Errorf("lock: %w", err))
	}
	f, err := c.read()
	if err != nil {
		return err
	}
	edit(&f)
	raw, err := json.Marshal(f, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(c.path, append(raw, '\n'), 0o600, renameio.IgnoreUmask()); err != nil {
		return c.fault(err)
	}
	return nil
}
