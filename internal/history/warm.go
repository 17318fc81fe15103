package history

import (
	"atoll/internal/fence"
	"atoll/internal/model"
)

// window is what the next turn of a conversation starts from, as the file has it, so that the usual next turn reads
// nothing of it again. It counts only while the file still ends where the window does.
type window struct {
	ref     ref
	last    int // the last turn in it
	folded  int // the last turn in its summary
	summary fence.Text
	turns   []kept
}

// warm returns the window that ends at turn last, or nil.
func (r *Room) warm(f *file, is ref, last, folded int) *window {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := f.warm; w != nil && w.ref == is && w.last == last && w.folded == folded {
		return w
	}
	return nil
}

// cool forgets the window: before an undo or a deletion, after which a turn of the same number is another one.
func (r *Room) cool(f *file) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.warm = nil
}

// keepWarm leaves the window for the next turn. after is the summary if this turn's end extended it.
func (t *Turn) keepWarm(answer fence.Text, after digest) {
	current := t.current.asKept()
	current.ended = true
	if !blank(answer) {
		current.rounds = append(current.rounds, round{said: []model.Block{model.TextBlock(answer)}})
	}
	w := &window{ref: t.ref, last: current.number, folded: t.folded, summary: t.summary}
	if after.upto > 0 {
		w.folded, w.summary = after.upto, after.text()
	}
	size := 0
	for _, k := range append(t.earlier[:len(t.earlier):len(t.earlier)], current) {
		if k.number > w.folded && k.number > w.last-maxLoaded {
			w.turns = append(w.turns, k)
			size += k.size()
		}
	}
	if size > softLoad {
		w = nil // read anew, the older turns are shortened
	}
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.f.warm = w
}

// asKept is the turn as the disk has it: without what is private, and without what is another backend's to read.
func (k *kept) asKept() kept {
	out := *k
	out.rounds = nil
	for _, rd := range k.rounds {
		kept := round{answered: rd.answered}
		calls := 0
		for _, b := range rd.said {
			switch {
			case b.Opaque != nil:
				continue
			case b.Call != nil:
				s := rd.calls[calls].asKept()
				calls++
				b.Call = s.call
				kept.calls = append(kept.calls, s)
			}
			kept.said = append(kept.said, b)
		}
		out.rounds = append(out.rounds, kept)
	}
	return out
}

func (s *slot) asKept() *slot {
	out := *s
	if s.private {
		out.call = &model.Call{ID: s.call.ID, Name: s.call.Name}
	}
	if s.hidden && s.result != nil {
		out.result = &model.Result{Name: s.result.Name, Text: fence.Ours(notKept), IsError: s.result.IsError}
	}
	return &out
}
