package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"atoll/internal/cli/client"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
)

func (a *app) noticesCommand() *cobra.Command {
	cmd := a.leaf("notices", "What the node wants you to know", "atoll notices\natoll notices ack 3", noSuch, func(ctx context.Context, _ []string) error {
		return a.listing(ctx, "notices.list", nil, "notices", "No notices.", col("ID", "id"), col("KIND", "kind"), col("SEVERITY", "severity"),
			col("WHAT", "what"), col("DO", "do"), col("TIMES", "count"), col("LAST", "last_at"))
	})
	cmd.AddCommand(a.leaf("ack ID", "Mark one as read", "atoll notices ack 3", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		if err := a.call(ctx, "notices.ack", map[string]any{"id": number(args[0])}); err != nil {
			return err
		}
		return a.done("Read.")
	}))
	return cmd
}

func (a *app) auditCommand() *cobra.Command {
	return group("audit", "The record of what was decided and done", a.auditList(), a.auditVerify(), a.auditExport())
}

// auditFilter is the parameter of audit.list.
type auditFilter struct {
	Kind   string `json:"kind,omitempty"`
	Before int64  `json:"before,omitzero"`
	Limit  int    `json:"limit,omitzero"`
}

func (a *app) auditList() *cobra.Command {
	var f auditFilter
	cmd := a.leaf("list", "Show the last records, newest first", "atoll audit list --limit 20\natoll audit list --kind grant", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		return a.listing(ctx, "audit.list", f, "records", "No records.", col("NO", "seq"), col("AT", "at"), col("WHO", "caller"), col("KIND", "kind"), col("EVENT", "event"),
			col("WHAT", "subject"), col("ARGUMENTS", "args"), col("CODE", "code"), col("OUTCOME", "outcome"), col("DETAIL", "detail"))
	})
	cmd.Flags().StringVar(&f.Kind, "kind", "", "only records of one kind: tool, confirm, grant, permission, account, session, rpc or node")
	cmd.Flags().Int64Var(&f.Before, "before", 0, "only records before this number")
	cmd.Flags().IntVar(&f.Limit, "limit", 0, "at most this many (default 100)")
	return cmd
}

func (a *app) auditVerify() *cobra.Command {
	var flag, head string
	cmd := a.leaf("verify", "Check that no record was changed or is missing", "atoll audit verify\natoll audit verify --head HASH --data-dir /var/lib/atoll", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			dir, offline, err := a.offline(ctx, flag)
			if err != nil {
				return err
			}
			var report AuditReport
			if offline {
				report, err = a.AuditVerify(ctx, dir, head)
			} else {
				report, err = a.verifyOnline(ctx, head)
			}
			if err != nil {
				return err
			}
			return a.showReport(report)
		})
	cmd.Flags().StringVar(&head, "head", "", "a hash noted earlier that must still be in the chain")
	dataDirFlag(cmd, &flag)
	return cmd
}

func (a *app) verifyOnline(ctx context.Context, head string) (r AuditReport, err error) {
	c, err := a.connect(ctx)
	if err != nil {
		return r, err
	}
	params := map[string]string{}
	if head != "" {
		params["head"] = head
	}
	err = c.Call(ctx, "audit.verify", params, &r)
	return r, err
}

func (a *app) showReport(r AuditReport) error {
	if a.json {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else if r.OK {
		a.printf("%d records, none changed, none missing.", r.Records)
		a.printf("Head: %s  (note it; --head checks it later)", term.Clean(r.Head))
	} else {
		a.printf("The record is broken at number %d: %s", r.Broken, term.Clean(r.Problem))
	}
	if !r.OK {
		return silent(ExitFailed)
	}
	return nil
}

func (a *app) auditExport() *cobra.Command {
	var flag string
	cmd := a.leaf("export", "Write all records as JSON lines, oldest first", "atoll audit export > audit.jsonl", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		dir, offline, err := a.offline(ctx, flag)
		if err != nil {
			return err
		}
		if offline {
			return a.AuditExport(ctx, dir, a.records())
		}
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		return a.exportOnline(ctx, c)
	})
	dataDirFlag(cmd, &flag)
	return cmd
}

// exportOnline fetches the records page by page, each exactly as it was hashed.
func (a *app) exportOnline(ctx context.Context, c *client.Client) error {
	var page struct {
		Lines []string `json:"lines"`
		Next  int64    `json:"next"` // zero when there are no more
	}
	out := a.records()
	for after := int64(0); ; after = page.Next {
		page.Lines, page.Next = nil, 0
		if err := c.Call(ctx, "audit.export", map[string]int64{"after": after}, &page); err != nil {
			return err
		}
		for _, line := range page.Lines {
			if _, err := io.WriteString(out, line+"\n"); err != nil {
				return fault.Wrap(err, fault.Failed, "standard output cannot be written")
			}
		}
		if page.Next <= after {
			return nil
		}
	}
}

// records is where exported records go: as they are, but for what a terminal would obey.
func (a *app) records() io.Writer {
	if term.File(a.Stdout) == nil {
		return a.Stdout
	}
	return escapingWriter{a.Stdout}
}

type escapingWriter struct{ out io.Writer }

// Write expects whole characters, as whole lines are.
func (w escapingWriter) Write(p []byte) (int, error) {
	if _, err := w.out.Write(term.EscapeJSON(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}
