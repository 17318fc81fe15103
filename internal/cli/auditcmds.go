package cli

import (
	"context"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"atoll/internal/cli/client"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
)

func (a *app) noticesCommand() *cobra.Command {
	cmd := a.leaf("notices", "What the node wants you to know", "atoll notices\natoll notices ack 3", noSuch, func(ctx context.Context, _ []string) error {
		return a.listing(ctx, "notices.list", nil, "notices", "No notices.", col("ID", "id"), col("KIND", "kind"), col("SEVERITY", "severity"),
			col("WHAT", "what", "message", "summary"), col("DO", "do", "advice", "action"), col("TIMES", "count"), col("LAST", "last_at", "at"))
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
			return a.AuditExport(ctx, dir, a.Stdout)
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

// exportPage is how many records are fetched at a time.
const exportPage = 200

// exportOnline fetches the records page by page. The node lists the newest first; their numbers have no gaps, so pages
// can be asked for from the beginning.
func (a *app) exportOnline(ctx context.Context, c *client.Client) error {
	last, err := auditPage(ctx, c, auditFilter{Limit: 1})
	if err != nil || len(last) == 0 {
		return err
	}
	newest := seqOf(last[0])
	for from := int64(1); from <= newest; from += exportPage {
		page, err := auditPage(ctx, c, auditFilter{Before: from + exportPage, Limit: exportPage})
		if err != nil {
			return err
		}
		slices.Reverse(page)
		for _, rec := range page {
			if seq := seqOf(rec); seq < from || seq > newest {
				continue
			}
			if _, err := a.Stdout.Write(append(escaped(rec), '\n')); err != nil {
				return fault.Wrap(err, fault.Failed, "standard output cannot be written")
			}
		}
	}
	return nil
}

func auditPage(ctx context.Context, c *client.Client, f auditFilter) ([]jsontext.Value, error) {
	var result struct {
		Records []jsontext.Value `json:"records"`
	}
	err := c.Call(ctx, "audit.list", f, &result)
	return result.Records, err
}

func seqOf(rec jsontext.Value) int64 {
	var r struct {
		Seq int64 `json:"seq"`
	}
	if json.Unmarshal(rec, &r) != nil {
		return 0
	}
	return r.Seq
}
