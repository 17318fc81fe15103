package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"

	"modernc.org/sqlite"
)

// maxStatements is how many prepared statements a connection keeps. A room has a dozen or so; SQL made up on the fly
// beyond that is prepared each time.
const maxStatements = 48

// connector opens connections that keep the statements they have prepared: parsing costs more than running a small one.
type connector struct{ dsn string }

func (c connector) Driver() driver.Driver { return &sqlite.Driver{} }

func (c connector) Connect(context.Context) (driver.Conn, error) {
	inner, err := c.Driver().Open(c.dsn)
	if err != nil {
		return nil, err
	}
	full, ok := inner.(fullConn)
	if !ok {
		return nil, errors.Join(errors.New("store: the driver's connection is not the one expected"), inner.Close())
	}
	return &conn{fullConn: full, kept: map[string]*statement{}}, nil
}

// fullConn is what the driver's connections can do.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Pinger
}

// conn is used by one goroutine at a time, as database/sql promises.
type conn struct {
	fullConn
	kept map[string]*statement
}

// statement is a prepared statement that is kept. While rows of it are open it is busy.
type statement struct {
	driver.Stmt
	exec  driver.StmtExecContext
	query driver.StmtQueryContext
	busy  bool
}

// statement returns the kept statement for the SQL, or nil where it is not to be kept or is in use.
func (c *conn) statement(ctx context.Context, query string) (*statement, error) {
	if s, ok := c.kept[query]; ok {
		if s.busy {
			return nil, nil
		}
		return s, nil
	}
	if len(c.kept) >= maxStatements || strings.ContainsRune(query, ';') || strings.HasPrefix(query, "PRAGMA") {
		return nil, nil
	}
	prepared, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s := &statement{Stmt: prepared}
	var canExec, canQuery bool
	s.exec, canExec = prepared.(driver.StmtExecContext)
	s.query, canQuery = prepared.(driver.StmtQueryContext)
	if !canExec || !canQuery {
		return nil, prepared.Close()
	}
	c.kept[query] = s
	return s, nil
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return c.fullConn.ExecContext(ctx, query, args)
	}
	return s.exec.ExecContext(ctx, args)
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return c.fullConn.QueryContext(ctx, query, args)
	}
	rows, err := s.query.QueryContext(ctx, args)
	if err != nil {
		return nil, err
	}
	s.busy = true
	return &keptRows{rows, s}, nil
}

// BeginTx takes the lock for writing at once, unless the transaction is only to read.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if opts.Isolation != 0 {
		return nil, errors.New("store: a transaction has no isolation level to choose")
	}
	begin := "BEGIN IMMEDIATE"
	if opts.ReadOnly {
		begin = "BEGIN"
	}
	t := transaction{c}
	if _, err := c.ExecContext(ctx, begin, nil); err != nil {
		t.clear()
		return nil, err
	}
	return t, nil
}

// transaction ends by kept statements too: BEGIN and COMMIT would be parsed for each write. It is not ended by the
// context that it began with; database/sql rolls it back then.
type transaction struct{ c *conn }

func (t transaction) Commit() error {
	_, err := t.c.ExecContext(context.Background(), "COMMIT", nil)
	if err != nil {
		t.clear()
	}
	return err
}

// clear sees that the connection, which is used again, is in no transaction: one whose BEGIN ran just before its context
// ended, or whose COMMIT failed, can still be open. Where it is not, the rollback fails, as it may.
func (t transaction) clear() { _ = t.Rollback() }

func (t transaction) Rollback() error {
	_, err := t.c.ExecContext(context.Background(), "ROLLBACK", nil)
	return err
}

func (c *conn) Close() error {
	var errs []error
	for _, s := range c.kept {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.fullConn.Close())...)
}

// keptRows gives its statement back when it is closed.
type keptRows struct {
	driver.Rows
	of *statement
}

func (r *keptRows) Close() error {
	r.of.busy = false
	return r.Rows.Close()
}
