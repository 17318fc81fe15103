package stage

import (
	"atoll/internal/eval/attack/suite"
	"atoll/internal/eval/attack/suite/oracle"
)

// Batch plays all blocks of some texts. Those that need a restart are put off until there are many, or Finish.
func (w *World) Batch(texts [][]suite.Block, done func(suite.Outcome)) {
	uses := map[string]bool{}
	var list []*suite.Text
	for _, blocks := range texts {
		list = append(list, blocks[0].Text)
		for _, b := range blocks {
			uses[b.Text.ID+"/"+b.Place] = true
		}
	}
	w.grant(true)
	down := w.plant(list, func(t *suite.Text, place string) bool { return uses[t.ID+"/"+place] })
	before := w.thorough()
	for i, blocks := range texts {
		paired := w.peers.next
		var last suite.Outcome
		for _, b := range blocks {
			y := w.run(b, down[i])
			if b.State == suite.IsRestart {
				w.later = append(w.later, y)
				continue
			}
			y.cases(func(o suite.Outcome) { last = o; done(o) })
		}
		w.grant(true)
		after := w.thorough()
		next := after
		if w.peers.next != paired { // who was paired for a case is no tool's doing
			before.Ceilings, after.Ceilings = "", ""
		}
		if wrong := oracle.NothingIsWidened(&oracle.Seen{Kept: before, Now: after}); len(wrong) > 0 && last.ID != "" {
			last.Violations = []string{"7: of the cases of this text: " + wrong[0]}
			done(last)
		}
		before = next
	}
	w.pull(down)
	if len(w.later) >= manyLater {
		w.Finish(done)
	}
}

// manyLater is for how many cases a node is restarted.
const manyLater = 96

// Finish restarts the node and plays what was put off for that.
func (w *World) Finish(done func(suite.Outcome)) {
	if len(w.later) == 0 {
		return
	}
	w.restart()
	for len(w.later) > 0 {
		y := w.later[0]
		y.who = y.who.On(w.house)
		w.grant(true)
		y.cases(done)
		w.later = w.later[1:]
	}
}

// Owed are the blocks that were put off and not played.
func (w *World) Owed() (out []suite.Block) {
	for _, y := range w.later {
		out = append(out, y.b)
	}
	return out
}
