package stage

import (
	"atoll/internal/eval/attack/suite"
	"atoll/internal/eval/attack/suite/oracle"
)

// Batch plays all blocks of some texts, and those that need a restart after one restart for all of them.
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
	var later []*play
	for i, blocks := range texts {
		before, paired := w.thorough(), w.peers.next
		var last suite.Outcome
		for _, b := range blocks {
			y := w.run(b, down[i])
			if b.State == suite.IsRestart {
				later = append(later, y)
				continue
			}
			y.cases(func(o suite.Outcome) { last = o; done(o) })
		}
		w.grant(true)
		after := w.thorough()
		if w.peers.next != paired { // who was paired for a case is no tool's doing
			before.Ceilings, after.Ceilings = "", ""
		}
		if wrong := oracle.NothingIsWidened(&oracle.Seen{Kept: before, Now: after}); len(wrong) > 0 && last.ID != "" {
			last.Violations = []string{"7: of the cases of this text: " + wrong[0]}
			done(last)
		}
	}
	w.pull(down)
	if len(later) == 0 {
		return
	}
	w.restart()
	for _, y := range later {
		y.who = y.who.On(w.house)
		y.cases(done)
	}
}
