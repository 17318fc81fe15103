package content

import (
	"cmp"
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"atoll/internal/folder"
	"atoll/internal/store"
)

// Schema is the table of hashes, so that a restart does not read every file again.
func Schema() store.Schema {
	return store.Schema{Room: "content", Steps: []string{`
CREATE TABLE content (
	path     TEXT PRIMARY KEY,
	inode    INTEGER NOT NULL,
	size     INTEGER NOT NULL,
	modified INTEGER NOT NULL, -- nanoseconds since 1970
	changed  INTEGER NOT NULL,
	sha256   BLOB NOT NULL
) WITHOUT ROWID`}}
}

// item is one file of the index. Its hash is of the version that the stamp describes.
type item struct {
	path   string
	stamp  folder.Stamp
	hash   [32]byte
	hashed bool // hash is known
	failed bool // this version cannot be read
}

// waits reports whether the file is still to be hashed.
func (i item) waits() bool { return !i.hashed && !i.failed }

func (i item) modified() time.Time { return time.Unix(0, i.stamp.Modified).UTC() }

func byPath(a, b item) int { return cmp.Compare(a.path, b.path) }

// find returns where path is in the sorted items.
func find(items []item, path string) (int, bool) {
	return slices.BinarySearchFunc(items, path, func(i item, p string) int { return cmp.Compare(i.path, p) })
}

// maxItems bounds the index: 100,000 files are about 15 MB.
const maxItems = 100_000

func load(ctx context.Context, db *store.DB, log *slog.Logger) ([]item, error) {
	rows, err := db.Reader().QueryContext(ctx, "SELECT path, inode, size, modified, changed, sha256 FROM content ORDER BY path LIMIT ?", maxItems)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var items []item
	damaged := 0
	for rows.Next() {
		var i item
		var inode int64
		var hash []byte
		err := rows.Scan(&i.path, &inode, &i.stamp.Size, &i.stamp.Modified, &i.stamp.Changed, &hash)
		if err != nil || len(hash) != len(i.hash) || !filepath.IsLocal(i.path) || !utf8.ValidString(i.path) || i.stamp.Size < 0 {
			damaged++
			continue
		}
		i.stamp.Inode, i.hashed = uint64(inode), true
		copy(i.hash[:], hash)
		items = append(items, i)
	}
	if damaged > 0 {
		log.Warn("rows of the content index are damaged; those files are hashed again", "rows", damaged)
	}
	slices.SortFunc(items, byPath)
	return items, rows.Err()
}

func save(ctx context.Context, db *store.DB, items []item) error {
	if len(items) == 0 {
		return nil
	}
	return db.Write(ctx, store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
		put, err := tx.PrepareContext(ctx, "INSERT OR REPLACE INTO content VALUES (?, ?, ?, ?, ?, ?)")
		if err != nil {
			return err
		}
		defer put.Close()
		for _, i := range items {
			if _, err := put.ExecContext(ctx, i.path, int64(i.stamp.Inode), i.stamp.Size, i.stamp.Modified, i.stamp.Changed, i.hash[:]); err != nil {
				return err
			}
		}
		return nil
	})
}

func forget(ctx context.Context, db *store.DB, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	return db.Write(ctx, store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
		drop, err := tx.PrepareContext(ctx, "DELETE FROM content WHERE path = ?")
		if err != nil {
			return err
		}
		defer drop.Close()
		for _, p := range paths {
			if _, err := drop.ExecContext(ctx, p); err != nil {
				return err
			}
		}
		return nil
	})
}
