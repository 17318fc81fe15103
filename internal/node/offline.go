package node

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"io"
	"log/slog"

	"atoll/internal/account"
	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/confirm"
	"atoll/internal/secret"
	"atoll/internal/store"
)

// stopped is the data directory of a node that does not run.
type stopped struct {
	dir      *dataDir
	db       *store.DB
	key      ed25519.PrivateKey
	audit    *audit.Log
	accounts *account.Room
}

// openStopped opens what the offline commands need; a running node is a *HeldError. fresh allows a new account store
// beside other data: only for adding an owner with the directory in hand (G7).
func openStopped(ctx context.Context, path string, fresh bool) (s *stopped, err error) {
	s = &stopped{}
	defer func() {
		if err != nil {
			if s.audit != nil {
				err = s.dir.explain(err)
			}
			err = errors.Join(owned(path, err), s.close())
		}
	}()
	if s.dir, err = openDir(path); err != nil {
		return s, err
	}
	if s.db, err = s.dir.openStore(ctx, fresh); err != nil {
		return s, err
	}
	if s.key, err = s.dir.openKey(ctx, s.db); err != nil {
		return s, err
	}
	c := clock.Real()
	if s.audit, err = audit.New(audit.Config{DB: s.db, Key: s.key, Now: c.Now}); err != nil {
		return s, err
	}
	s.accounts, err = account.New(ctx, account.Config{DB: s.db, Now: c.Now, Log: slog.New(slog.DiscardHandler),
		Record: func(ctx context.Context, tx *sql.Tx, e audit.Entry) error { return s.audit.AppendTx(ctx, tx, e) },
		Altered: func(ctx context.Context, tx *sql.Tx, account int64) error {
			return confirm.EndPermissions(ctx, tx, s.audit, account)
		},
		OnEnded: func(account.Ended) {}})
	return s, err
}

func (s *stopped) close() error {
	var errs []error
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.dir != nil {
		errs = append(errs, s.dir.close())
	}
	return errors.Join(errs...)
}

func withStopped(ctx context.Context, path string, fresh bool, f func(*stopped) error) error {
	s, err := openStopped(ctx, path, fresh)
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.close())
}

// UserAdd adds an account on the data directory of a stopped node.
func UserAdd(ctx context.Context, dir, name, role string, password secret.String) error {
	r, err := caller.ParseRole(role)
	if err != nil {
		return err
	}
	return withStopped(ctx, dir, r == caller.Owner, func(s *stopped) error { return s.accounts.Add(ctx, name, r, password) })
}

// UserList lists the accounts of a stopped node.
func UserList(ctx context.Context, dir string) (users []account.User, err error) {
	err = withStopped(ctx, dir, false, func(s *stopped) error { users = s.accounts.Users(); return nil })
	return users, err
}

// UserPasswd sets a password on a stopped node.
func UserPasswd(ctx context.Context, dir, name string, password secret.String) error {
	return withStopped(ctx, dir, false, func(s *stopped) error { return s.accounts.SetPassword(ctx, name, password) })
}

// UserRemove removes an account of a stopped node.
func UserRemove(ctx context.Context, dir, name string) error {
	return withStopped(ctx, dir, false, func(s *stopped) error { return s.accounts.Remove(ctx, name) })
}

// UserSetRole changes a role on a stopped node.
func UserSetRole(ctx context.Context, dir, name, role string) error {
	r, err := caller.ParseRole(role)
	if err != nil {
		return err
	}
	return withStopped(ctx, dir, false, func(s *stopped) error { return s.accounts.SetRole(ctx, name, r) })
}

// AuditVerify checks the audit chain of a stopped node.
func AuditVerify(ctx context.Context, dir, head string) (rep audit.Report, err error) {
	err = withStopped(ctx, dir, false, func(s *stopped) (err error) {
		rep, err = s.audit.Verify(ctx, s.key.Public().(ed25519.PublicKey), head)
		return err
	})
	return rep, err
}

// AuditExport writes the audit record of a stopped node.
func AuditExport(ctx context.Context, dir string, w io.Writer) error {
	return withStopped(ctx, dir, false, func(s *stopped) error { return s.audit.Export(ctx, w) })
}
