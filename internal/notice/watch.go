package notice

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Bursts that raise a notice.
const (
	burst       = 3               // refusals for want of a grant (U4) …
	burstWindow = 5 * time.Minute // … in this time
	roundLimits = 3               // turns of one session that ended on the round limit (T7)
)

// Names of the counters that a Watch keeps.
const (
	NotGrantedPlain     = "assistant_not_granted_plain_total"     // without untrusted text in context
	NotGrantedUntrusted = "assistant_not_granted_untrusted_total" // with it
	RoundLimitTurns     = "assistant_round_limit_turns_total"
	SoftLimits          = "soft_limits_total"
)

// WatchConfig is what a Watch needs.
type WatchConfig struct {
	Raise    func(context.Context, Notice) error // Room.Raise
	Counters *Counters
	Now      func() time.Time // nil means time.Now
}

// Watch turns single events into notices once there are too many. It is safe for concurrent use.
type Watch struct {
	cfg WatchConfig

	mu        sync.Mutex // guards the rest
	plain     tally
	untrusted tally
	rounds    tally
}

// NewWatch makes a Watch.
func NewWatch(cfg WatchConfig) (*Watch, error) {
	if cfg.Raise == nil || cfg.Counters == nil {
		return nil, errors.New("notice: a way to raise and counters are needed")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Watch{cfg: cfg}, nil
}

// Refused counts one refusal of the assistant for want of a grant, for the caller named by key (U4). Raise's errors are
// Raise's to log.
func (w *Watch) Refused(ctx context.Context, key string, untrusted bool) {
	name, counts := NotGrantedPlain, &w.plain
	if untrusted {
		name, counts = NotGrantedUntrusted, &w.untrusted
	}
	w.cfg.Counters.Count(name)
	w.mu.Lock()
	full := counts.add(key, w.cfg.Now(), burstWindow) >= burst
	if full {
		counts.reset(key)
	}
	w.mu.Unlock()
	switch {
	case !full:
	case untrusted:
		_ = w.cfg.Raise(ctx, Notice{Kind: Security, Severity: Warning, Key: "refusals-untrusted " + key,
			What: fmt.Sprintf("With text from elsewhere in the conversation, the assistant asked %d times in %d minutes for what it is not allowed; "+
				"that text may be trying to steer it. Nothing was done.", burst, burstWindow/time.Minute),
			Do: "Look at what the assistant read in that conversation, and open no category that you did not mean to open."})
	default:
		_ = w.cfg.Raise(ctx, Notice{Kind: Configuration, Severity: Info, Key: "refusals-plain " + key,
			What: fmt.Sprintf("The assistant was asked %d times in %d minutes for what it is not allowed.", burst, burstWindow/time.Minute),
			Do:   "If it should be allowed, open the category; the chat offers it, and the grants list all of them."})
	}
}

// RoundLimit counts one turn of a session that ended on the round limit (T7).
func (w *Watch) RoundLimit(ctx context.Context, session string) {
	w.cfg.Counters.Count(RoundLimitTurns)
	w.mu.Lock()
	n := w.rounds.add(session, w.cfg.Now(), 0)
	w.mu.Unlock()
	if n < roundLimits {
		return
	}
	_ = w.cfg.Raise(ctx, Notice{Kind: Operation, Severity: Warning, Key: "round-limit " + session,
		What: fmt.Sprintf("In one session, %d or more turns of the assistant ended because they needed too many steps.", roundLimits),
		Do:   "Ask for less at a time, or try another model; if nobody asked for that much, look at what the assistant read."})
}

// SoftLimit says that a caller comes near a limit (G4); rpc.Config.OnSoft calls once a window. method is a method's name.
func (w *Watch) SoftLimit(ctx context.Context, key, method string, calls int, window time.Duration) {
	w.cfg.Counters.Count(SoftLimits)
	_ = w.cfg.Raise(ctx, Notice{Kind: Security, Severity: Warning, Key: "soft-limit " + method + " " + key,
		What: fmt.Sprintf("%s was called more than %d times in %s from one place; soon it will be refused there.", method, calls, strings.TrimSuffix(window.String(), "0s")),
		Do:   "If that was not you, look at the sessions and end those you do not know."})
}

// maxTallied bounds the keys of a tally; the one that came first gives way.
const maxTallied = 1000

// tally counts events per key. The zero tally is ready.
type tally struct {
	times map[string][]time.Time
	order []string // keys, the oldest first
}

// add counts an event and returns how many there were in the window; a zero window is for ever.
func (t *tally) add(key string, now time.Time, window time.Duration) int {
	if t.times == nil {
		t.times = map[string][]time.Time{}
	}
	old, known := t.times[key]
	if !known {
		if len(t.order) >= maxTallied {
			delete(t.times, t.order[0])
			t.order = append(t.order[:0], t.order[1:]...)
		}
		t.order = append(t.order, key)
	}
	kept := make([]time.Time, 0, len(old)+1)
	for _, at := range old {
		if window == 0 || now.Sub(at) < window {
			kept = append(kept, at)
		}
	}
	kept = append(kept, now)
	if len(kept) > max(burst, roundLimits) {
		kept = kept[1:]
	}
	t.times[key] = kept
	return len(kept)
}

func (t *tally) reset(key string) { t.times[key] = nil }
