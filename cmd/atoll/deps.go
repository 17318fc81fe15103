package main

import (
	"context"
	"io"
	"log/slog"
	"os"

	"atoll/internal/cli"
	"atoll/internal/confirm"
	"atoll/internal/node"
	"atoll/internal/secret"
)

// deps fills what the command line needs of the node.
func deps(log *slog.Logger) cli.Deps {
	return cli.Deps{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Getenv, Version: version, ChatTimeout: confirm.ClientTime,
		Serve: func(ctx context.Context, o cli.ServeOptions) error { return serve(ctx, o, log) },
		Try:   try, UserAdd: node.UserAdd, UserList: userList, UserPasswd: node.UserPasswd, UserRemove: node.UserRemove,
		UserSetRole: node.UserSetRole, AuditVerify: auditVerify, AuditExport: node.AuditExport, Doctor: doctor, Eval: eval,
	}
}

func serve(ctx context.Context, o cli.ServeOptions, log *slog.Logger) error {
	dir, err := node.DataDir(o.DataDir, os.Getenv)
	if err != nil {
		return err
	}
	return node.Serve(ctx, node.Options{DataDir: dir, Listen: o.Listen, Version: version, Environ: os.Environ(), Out: os.Stdout, Log: log})
}

func try(ctx context.Context, o cli.TryOptions) (*cli.Local, error) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	t, err := node.Try(ctx, node.Options{DataDir: o.DataDir, Version: version, Environ: os.Environ(), Out: io.Discard, Log: quiet})
	if err != nil {
		return nil, err
	}
	return &cli.Local{Address: t.Address, Session: t.Token, CSRF: secret.New(t.CSRF), Username: t.Username, DataDir: t.DataDir,
		Temporary: o.DataDir == "", Close: func(context.Context) error { return t.Close() }}, nil
}

func userList(ctx context.Context, dir string) ([]cli.User, error) {
	users, err := node.UserList(ctx, dir)
	out := make([]cli.User, len(users))
	for i, u := range users {
		out[i] = cli.User{Username: u.Username, Role: u.Role}
	}
	return out, err
}

func auditVerify(ctx context.Context, dir, head string) (cli.AuditReport, error) {
	rep, err := node.AuditVerify(ctx, dir, head)
	return cli.AuditReport(rep), err
}

func doctor(ctx context.Context, dir string, running bool) ([]cli.Check, error) {
	findings := node.Doctor(ctx, dir, running, os.Environ())
	out := make([]cli.Check, len(findings))
	for i, f := range findings {
		out[i] = cli.Check(f)
	}
	return out, nil
}
