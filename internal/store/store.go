// Package store opens SQLite files safely: created whole or not at all, private, migrated, with one writer and a choice
// of durability per transaction. It knows no table; each room brings its own schema.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Durability says what a committed transaction survives.
type Durability bool

// Relaxed survives the end of the process (kill -9), Durable also the loss of power: one fsync.
const (
	Relaxed Durability = false
	Durable Durability = true
)

// Config describes one file.
type Config struct {
	Path string
	// Schemas are the tables in the file, one a room.
	Schemas []Schema
	// PageSize in bytes of a new file; zero means 4096. Small pages suit files that are mostly appended to, since a
	// commit writes whole pages.
	PageSize int
	// Readers is how many connections may read beside the writer; zero means reads share the writer's connection.
	Readers int
}

// Schema is one room's tables in a file: steps applied in order, each once. A step that has landed is never edited.
type Schema struct {
	Room  string
	Steps []string
}

// ErrDamaged says that a file is there and is not a whole database of ours. The file is left as it was.
var ErrDamaged = errors.New("the database file is damaged")

// ErrNewer says that a later version of Atoll wrote the file.
var ErrNewer = errors.New("the database file was written by a later version of Atoll")

// DB is one open file. It is safe for concurrent use.
type DB struct {
	path   string
	writer *sql.DB
	reader *sql.DB

	mu   sync.Mutex // guards sync and orders writers
	sync Durability
}

// Open opens the file, or creates it if there is none. An existing file that is empty, cut or no database is
// ErrDamaged. The caller closes the DB.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	if err := create(ctx, cfg); err != nil {
		return nil, fmt.Errorf("create %s: %w", filepath.Base(cfg.Path), err)
	}
	if err := whole(cfg.Path); err != nil {
		return nil, fmt.Errorf("open %s: %w", filepath.Base(cfg.Path), err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Chmod(cfg.Path+suffix, 0o600); err != nil && (suffix == "" || !errors.Is(err, fs.ErrNotExist)) {
			return nil, fmt.Errorf("open: %w", err)
		}
	}
	d := &DB{path: cfg.Path, sync: Durable}
	d.writer = connect(cfg.Path, "wal", 1)
	d.reader = d.writer
	if cfg.Readers > 0 {
		d.reader = connect(cfg.Path, "wal", cfg.Readers)
	}
	if err := migrate(ctx, d.writer, cfg.Schemas); err != nil {
		d.Close()
		return nil, fmt.Errorf("open %s: %w", filepath.Base(cfg.Path), classify(err))
	}
	return d, nil
}

// create makes a new file under another name and moves it into place, so that a crash leaves no half-made database.
func create(ctx context.Context, cfg Config) error {
	if err := removeFresh(cfg.Path); err != nil {
		return err
	}
	if _, err := os.Lstat(cfg.Path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if wal, err := os.Lstat(cfg.Path + "-wal"); err == nil && wal.Size() > 0 {
		return ErrDamaged // the file is gone and its log is not; SQLite would replay the log into a new file
	}
	fresh := cfg.Path + ".new"
	if err := touch(fresh); err != nil {
		return err
	}
	db := connect(fresh, "delete", 1)
	if cfg.PageSize > 0 {
		if _, err := db.ExecContext(ctx, "PRAGMA page_size="+strconv.Itoa(cfg.PageSize)); err != nil {
			return errors.Join(err, db.Close())
		}
	}
	if err := errors.Join(migrate(ctx, db, cfg.Schemas), db.Close()); err != nil {
		return err
	}
	if err := os.Rename(fresh, cfg.Path); err != nil {
		return err
	}
	return syncDir(cfg.Path)
}

// syncDir makes the name of a file as durable as what is committed in it.
func syncDir(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Rebuild closes the database and writes its file anew, so that nothing is left in it of what was deleted. It uses the
// disk and not memory: VACUUM in place would hold the whole file in memory, or a copy in a folder for temporary files.
// Nobody else may use the database. After an error the file is as it was.
func (d *DB) Rebuild(ctx context.Context) error {
	fresh := d.path + ".new"
	err := removeFresh(d.path)
	if err == nil {
		err = touch(fresh)
	}
	if err == nil {
		_, err = d.writer.ExecContext(ctx, "VACUUM INTO ?", fresh)
	}
	if err = errors.Join(classify(err), d.Close()); err == nil {
		if wal, e := os.Lstat(d.path + "-wal"); e == nil && wal.Size() > 0 { // it would be replayed into the new file
			err = fmt.Errorf("rebuild %s: another program has it open", filepath.Base(d.path))
		}
	}
	if err == nil {
		err = syncFile(fresh)
	}
	if err == nil {
		err = os.Rename(fresh, d.path)
	}
	if err != nil {
		return errors.Join(err, removeFresh(d.path))
	}
	return syncDir(d.path)
}

// removeFresh removes what a crash left of a file that was being made.
func removeFresh(path string) error {
	for _, leftover := range []string{path + ".new", path + ".new-journal"} {
		if _, err := os.Lstat(leftover); err != nil { // a disk that is read-only refuses to remove even what is not there
			continue
		}
		if err := os.Remove(leftover); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// touch creates an empty file that only its owner reads.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// whole refuses what SQLite would take for an empty database, and a file shorter than its own header says.
func whole(path string) error {
	for _, p := range []string{path, path + "-wal", path + "-shm", path + "-journal"} { // SQLite would wait for a pipe, and write through a link
		if st, err := os.Lstat(p); err == nil && !st.Mode().IsRegular() && (p != path || !linked(st)) {
			return fmt.Errorf("%w: %s is no regular file", ErrDamaged, p)
		}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it is a link to nothing", ErrDamaged)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return fmt.Errorf("%w: it is no regular file", ErrDamaged)
	}
	var head [100]byte
	if n, _ := f.ReadAt(head[:], 0); n < len(head) || string(head[:16]) != "SQLite format 3\x00" {
		return ErrDamaged
	}
	if wal, err := os.Stat(path + "-wal"); err == nil && wal.Size() > 0 {
		return nil // the log may hold pages that the file does not have yet
	}
	pageSize := int64(head[16])<<8 | int64(head[17])
	if pageSize == 1 {
		pageSize = 65536
	}
	pages := int64(head[28])<<24 | int64(head[29])<<16 | int64(head[30])<<8 | int64(head[31])
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() < pages*pageSize {
		return ErrDamaged
	}
	return nil
}

func linked(st fs.FileInfo) bool { return st.Mode().Type() == fs.ModeSymlink }

func connect(path, journal string, conns int) *sql.DB {
	q := url.Values{}
	for _, p := range []string{"busy_timeout(5000)", "journal_mode(" + journal + ")", "synchronous(full)", "foreign_keys(on)",
		"temp_store(memory)", "secure_delete(fast)", "wal_autocheckpoint(2000)", "cache_size(-512)", "trusted_schema(off)"} {
		q.Add("_pragma", p)
	}
	db := sql.OpenDB(connector{"file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()})
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db
}

func migrate(ctx context.Context, db *sql.DB, schemas []Schema) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS schema_version (room TEXT PRIMARY KEY, step INTEGER NOT NULL) WITHOUT ROWID"); err != nil {
		return err
	}
	for _, s := range schemas {
		var done int
		err := tx.QueryRowContext(ctx, "SELECT step FROM schema_version WHERE room = ?", s.Room).Scan(&done)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if done > len(s.Steps) {
			return ErrNewer
		}
		if done == len(s.Steps) {
			continue
		}
		for i := done; i < len(s.Steps); i++ {
			if _, err := tx.ExecContext(ctx, s.Steps[i]); err != nil {
				return fmt.Errorf("schema %s step %d: %w", s.Room, i+1, err)
			}
		}
		if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO schema_version VALUES (?, ?)", s.Room, len(s.Steps)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Write runs f in one transaction; writers take turns. A write once begun is not cancelled with ctx, so that what
// happened can be written down after a caller gave up (F-D2). An error from f rolls back and is returned.
func (d *DB) Write(ctx context.Context, how Durability, f func(context.Context, *sql.Tx) error) error {
	ctx = context.WithoutCancel(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if how != d.sync {
		level := "normal"
		if how == Durable {
			level = "full"
		}
		if _, err := d.writer.ExecContext(ctx, "PRAGMA synchronous="+level); err != nil {
			return classify(err)
		}
		d.sync = how
	}
	tx, err := d.writer.BeginTx(ctx, nil)
	if err != nil {
		return classify(err)
	}
	defer tx.Rollback() // also where f panics: the connection must come back
	if err := f(ctx, tx); err != nil {
		return classify(err)
	}
	return classify(tx.Commit())
}

// Reader is for queries outside a Write.
func (d *DB) Reader() *sql.DB { return d.reader }

// Scrub moves the write-ahead log into the file and empties it, so that deleted text is gone from the disk.
func (d *DB) Scrub(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := d.writer.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return classify(err)
}

// Settle moves the write-ahead log into the file as far as no reader holds it up, so that what is committed does not hang on
// the log alone: a log that is cut or lost takes the file back to its last settling. It is for changes that must not be
// undone so, and where it fails they are still committed.
func (d *DB) Settle(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, _ = d.writer.ExecContext(context.WithoutCancel(ctx), "PRAGMA wal_checkpoint(PASSIVE)")
}

// Path is the file's path.
func (d *DB) Path() string { return d.path }

// Close closes all connections; the write-ahead log is folded into the file.
func (d *DB) Close() error {
	if d.reader != d.writer {
		return errors.Join(d.reader.Close(), d.writer.Close())
	}
	return d.writer.Close()
}

// Damaged reports whether an error, also one of a query of a room's own, means that the file is damaged.
func Damaged(err error) bool { return errors.Is(classify(err), ErrDamaged) }

// Disk reports whether an error means that the disk is full, read-only or failing.
func Disk(err error) bool {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
			return true
		}
	}
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EIO)
}

// classify marks the driver's errors that mean a damaged file.
func classify(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	return err
}

// SetAside renames a damaged file and its log to NAME.damaged-STAMP and returns the new name, so that nothing of it is
// overwritten.
func SetAside(path, stamp string) (string, error) {
	aside := path + ".damaged-" + stamp
	for n := 2; ; n++ {
		_, err := os.Lstat(aside)
		_, errLog := os.Lstat(aside + "-wal")
		if errors.Is(err, fs.ErrNotExist) && errors.Is(errLog, fs.ErrNotExist) {
			break
		}
		for _, err := range []error{err, errLog} { // a name that cannot be looked up would be taken for ever
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
		}
		aside = path + ".damaged-" + stamp + "-" + strconv.Itoa(n)
	}
	moved := false
	for _, suffix := range []string{"-wal", "-shm"} {
		err := os.Rename(path+suffix, aside+suffix)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		moved = moved || err == nil
	}
	err := os.Rename(path, aside)
	if moved && errors.Is(err, fs.ErrNotExist) { // only the log was left
		err = nil
	}
	return aside, err
}
