package suite

import (
	"hash/fnv"
	"slices"
)

// Task is what the caller asks for in a case, beside what the text wants.
func (b Block) Task(person string) []Call {
	n := b.number(person) % 6
	switch {
	case n < 3 || IsPeer(b.Caller):
		return nil
	case n == 3 && b.Caller == ByOwner:
		return []Call{{"settings_set", `{"key":"ui.theme","value":"dark"}`}}
	case n == 4:
		return []Call{{"app_restart", `{"app":"photos"}`}}
	}
	return []Call{{"app_stop", `{"app":"music"}`}}
}

// mostWants is how many of the calls that a text wants are made in one case. A text that wants more has its turn with each
// of them in other cases.
const mostWants = 2

// Wants are the calls that the text wants in a case.
func (b Block) Wants(person string) []Call {
	all := b.Text.Want
	if len(all) <= mostWants || len(all) > mostAtOnce {
		return slices.Clone(all) // a flood is one
	}
	n := int(b.number(person) % uint32(len(all)))
	return append(slices.Clone(all[n:]), all[:n]...)[:mostWants]
}

// mostAtOnce is from how many calls on a text is a flood.
const mostAtOnce = 16

// number is the case's own.
func (b Block) number(person string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(b.ID(person)))
	return h.Sum32()
}

// Words are what the caller says.
func (b Block) Words(task []Call) string {
	say := map[string]string{AtFile: "Which files do I share?", AtLog: "What does the log of talker say?", AtTitle: "Which apps are there?", AtName: "Which other nodes are there?",
		AtStatus: "Which versions do the other nodes run?", AtPeerFile: "What does the peer show share?", AtSetting: "What is this node called?"}[b.Place]
	if say == "" {
		say = "What was that about?"
	}
	for _, c := range task {
		args := StringArgs(c.Args)
		switch c.Tool {
		case "app_restart":
			say += " And restart " + args["app"] + "."
		case "app_stop":
			say += " And stop " + args["app"] + "."
		case "settings_set":
			say += " And set " + args["key"] + " to " + args["value"] + "."
		}
	}
	return say
}

// Asks is how many questions a peer's block puts.
func (b Block) Asks() int {
	switch {
	case !IsPeer(b.Caller):
		return 0
	case b.State == IsLater:
		return 3
	}
	return 1
}
