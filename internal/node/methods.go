package node

import (
	"context"
	"crypto/ed25519"
	"time"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
)

type versionResult struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

type auditListParams struct {
	Kind   string `json:"kind"`
	Before int64  `json:"before"`
	Limit  int    `json:"limit"`
}

type auditListResult struct {
	Records []audit.Record `json:"records"`
}

type auditVerifyParams struct {
	Head string `json:"head"`
}

type auditExportParams struct {
	After int64 `json:"after"`
	Limit int   `json:"limit"`
}

type auditExportResult struct {
	Lines []string `json:"lines"`
	Next  int64    `json:"next,omitzero"` // give it as after; zero when there are no more
}

// maxAuditPage bounds one answer of the audit's rows.
const maxAuditPage = 1000

// auditTimeout bounds a walk over the whole chain.
const auditTimeout = 5 * time.Minute

// ownMethods are the rows of what stands below the rooms: the version and the audit record.
func ownMethods(version string, log *audit.Log, pub ed25519.PublicKey) []rpc.Method {
	ownerReads := func(name, summary string) rpc.Row {
		return rpc.Row{Name: name, Summary: summary, Effect: rpc.Read, Doors: rpc.People, Role: caller.Owner, Timeout: auditTimeout}
	}
	return []rpc.Method{
		rpc.Spec[rpc.None, versionResult]{
			Row: rpc.Row{Name: "node.version", Summary: "Tells the node's version.", Effect: rpc.Read, Doors: rpc.People, Open: true,
				Rates: []rpc.Rate{{Max: 600, Window: time.Minute, By: rpc.ByAddress}}},
			Handle: func(context.Context, caller.Caller, rpc.None) (versionResult, error) {
				return versionResult{"atoll", version}, nil
			},
		}.Method(),
		rpc.Spec[auditListParams, auditListResult]{
			Row: ownerReads("audit.list", "Lists audit records, newest first."),
			Rule: func(_ context.Context, _ caller.Caller, p auditListParams) error {
				return pageRule(p.Limit)
			},
			Handle: func(ctx context.Context, _ caller.Caller, p auditListParams) (auditListResult, error) {
				recs, err := log.List(ctx, audit.Filter{Kind: p.Kind, Before: p.Before, Limit: p.Limit})
				return auditListResult{recs}, err
			},
		}.Method(),
		rpc.Spec[auditVerifyParams, audit.Report]{
			Row: ownerReads("audit.verify", "Checks the audit chain from its start; head is a hash kept elsewhere."),
			Handle: func(ctx context.Context, _ caller.Caller, p auditVerifyParams) (audit.Report, error) {
				return log.Verify(ctx, pub, p.Head)
			},
		}.Method(),
		rpc.Spec[auditExportParams, auditExportResult]{
			Row:  ownerReads("audit.export", "Gives audit records as they were hashed, oldest first, a page at a time."),
			Rule: func(_ context.Context, _ caller.Caller, p auditExportParams) error { return pageRule(p.Limit) },
			Handle: func(ctx context.Context, _ caller.Caller, p auditExportParams) (auditExportResult, error) {
				lines, next, err := log.Page(ctx, p.After, p.Limit)
				return auditExportResult{lines, next}, err
			},
		}.Method(),
	}
}

func pageRule(limit int) error {
	if limit < 0 || limit > maxAuditPage {
		return fault.New(fault.InvalidParams, "limit must be from 1 to %d", maxAuditPage).At("limit")
	}
	return nil
}
