// Package history keeps what was said: one SQLite file a caller, the words a model is sent next, and what people list,
// search, undo and delete. It runs no model and no tool, and it knows nothing of pendings: assistant does the turn, and
// tells it what to keep.
package history

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/fence"
)

// Limits of what is kept and of what a model is sent (H2).
const (
	maxResult      = 8000    // characters of one tool result; whoever fences it has capped it before
	verbatim       = 12      // turns that always stay word for word
	foldAt         = 16      // more unfolded turns than this fold the oldest
	foldBatch      = 4       // turns that fold at a time, so that the words sent change seldom
	foldAnyway     = 24      // the host folds past this, whatever became of the model's summary
	maxLoaded      = 24      // turns sent at most
	softLoad       = 150_000 // bytes sent word for word; what is older is shortened
	hardLoad       = 200_000 // bytes of earlier turns sent at most
	shortened      = 300     // characters that are left of a shortened text
	maxSummary     = 4096    // bytes of the running summary
	maxLine        = 160     // characters of the host's line on one turn
	maxTitle       = 60      // characters of the host's title
	maxRename      = 200     // characters of a person's title
	defaultOpen    = 32      // files held open
	summariseLimit = time.Minute
)

// Config is what a Room needs.
type Config struct {
	// Dir holds the files; it is made when the first one is.
	Dir string
	Now func() time.Time
	Log *slog.Logger
	// OnDamaged is told of a file that was set aside: whose it was (caller.Key), its new path and why. It may be nil.
	OnDamaged func(caller, aside string, cause error)
	// Summarise extends a summary by some turns, after the answer and never before it. Nil means that the host writes
	// a line a turn; so does an error or an empty text. What it returns is fenced if anything that went in was.
	// It is never asked about a peer's words: those are not the owner's to pay for, or to send away.
	Summarise func(ctx context.Context, c caller.Caller, earlier fence.Text, turns []TurnText) (fence.Text, error)
	// Open is how many files are held open; zero means 32.
	Open int
}

// TurnText is one turn as a summary sees it.
type TurnText struct {
	Asked    fence.Text
	Answered fence.Text
	Changes  []Change
}

// Room is all callers' histories. It is safe for concurrent use.
type Room struct {
	cfg  Config
	ctx  context.Context // ends in Close; for the summaries
	stop context.CancelFunc
	work sync.WaitGroup // the summaries being written

	mu     sync.Mutex // guards the rest
	closed bool
	files  map[string]*file
	clock  uint64 // rises with each use of a file
}

// New makes the room. It touches no file.
func New(cfg Config) (*Room, error) {
	switch {
	case cfg.Dir == "":
		return nil, errors.New("history: Config.Dir is empty")
	case cfg.Now == nil:
		return nil, errors.New("history: Config.Now is nil")
	case cfg.Log == nil:
		return nil, errors.New("history: Config.Log is nil")
	case cfg.Open < 0:
		return nil, errors.New("history: Config.Open is negative")
	}
	if cfg.Open == 0 {
		cfg.Open = defaultOpen
	}
	if cfg.OnDamaged == nil {
		cfg.OnDamaged = func(string, string, error) {}
	}
	r := &Room{cfg: cfg, files: map[string]*file{}}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r, nil
}

// Close ends the summaries being written and closes all files. Turns should have ended before; what they write after
// it is refused.
func (r *Room) Close() error {
	r.mu.Lock()
	r.closed = true
	var open []*file
	for _, f := range r.files {
		open = append(open, f)
	}
	r.mu.Unlock()
	r.stop()
	r.work.Wait()
	var errs []error
	for _, f := range open {
		f.mu.Lock()
		errs = append(errs, f.close())
		f.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Change is the host's own word on one thing done in a turn (T11).
type Change struct {
	Tool    string `json:"tool"`
	Summary string `json:"summary"`
	Outcome string `json:"outcome"`
	// Private says that the words must not reach the disk (H3); a placeholder does.
	Private bool `json:"private,omitzero"`
}

// Usage counts tokens (B4).
type Usage struct {
	In         int64 `json:"in"`
	Out        int64 `json:"out"`
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
}

// Outcome is how a turn ended. The zero Outcome counts as Failed.
type Outcome string

// The outcomes. Interrupted is a turn that nobody ended: the node stopped or the turn was abandoned.
const (
	Done        Outcome = "done"
	Cancelled   Outcome = "cancelled"
	Failed      Outcome = "failed"
	Interrupted Outcome = "interrupted"
)

// Ending is what is kept when a turn ends.
type Ending struct {
	// Answer is the last text of the turn, whole or as far as it came. A round that was given to Round is not in it.
	Answer  fence.Text
	Changes []Change
	Usage   Usage
	CostUSD float64
	Outcome Outcome
	// Code says why a turn did not end well.
	Code fault.Code
}
