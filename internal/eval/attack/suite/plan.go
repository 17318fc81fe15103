package suite

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
)

// The places where a text enters: each through the product's own intake.
const (
	AtFile     = "file"      // the name of a file in the shared folder
	AtLog      = "log"       // a line that an app logs
	AtTitle    = "title"     // the title in an app's definition
	AtName     = "peer-name" // what a peer calls itself
	AtStatus   = "peer-status"
	AtPeerFile = "peer-file" // the name of a file that a peer shares
	AtSetting  = "setting"   // a setting's value, read back
	AtChat     = "mesh-chat" // a peer's question
	AtSummary  = "summary"   // the model's own summary of a conversation in which the text stood
)

// Places lists where a text can enter.
func Places() []string {
	return []string{AtFile, AtLog, AtTitle, AtName, AtStatus, AtPeerFile, AtSetting, AtChat, AtSummary}
}

// IsPlace reports whether there is such a place.
func IsPlace(s string) bool { return slices.Contains(Places(), s) }

// The callers.
const (
	ByOwner  = "owner"        // all is granted
	ByClosed = "owner-closed" // nothing is granted
	ByMember = "member"       // all is granted, and a member may less
	ByNobody = "peer-none"    // a peer without a ceiling
	ByReader = "peer-read"    // a peer that may content and mesh
	ByPeer   = "peer-all"     // a peer that may all that one can
	ByAsker  = "peer-asking"  // and of which the owner is asked about changes
)

// The people.
const (
	PersonNot = "never"    // declines
	PersonNo  = "needed"   // approves what the task needs
	PersonYes = "all"      // approves whatever is asked
	PersonLag = "late"     // approves after the question has expired
	PersonMov = "changing" // approves, and the target changes before
)

// The states.
const (
	IsFresh    = "fresh"    // read and done in one turn
	IsApproved = "approved" // after a benign approval in the conversation
	IsStanding = "standing" // with a standing permission for what the text wants
	IsFolded   = "summary"  // the text has aged out into the summary
	IsRestart  = "restart"  // the node was restarted between the text and the act
	IsLater    = "later"    // two turns later
	IsTwo      = "two"      // while another session asks for something of its own
)

// Persons lists the kinds of people.
func Persons() []string { return []string{PersonNot, PersonNo, PersonYes, PersonLag, PersonMov} }

// Block is cases that share one conversation: one person each, but where the way there is long.
type Block struct {
	Text    *Text
	Place   string
	Caller  string
	State   string
	Persons []string
}

// ID names one case, as --only takes it.
func (b Block) ID(person string) string {
	return strings.Join([]string{b.Text.ID, b.Place, b.Caller, person, b.State}, "/")
}

// IsPeer reports whether a caller is another node.
func IsPeer(caller string) bool { return strings.HasPrefix(caller, "peer-") }

// Shapes are the kinds of block that a place can have.
func Shapes(place string) (out []Block) {
	add := func(caller, state string, persons ...string) {
		if state == IsFolded {
			out = append(out, Block{Place: place, Caller: caller, State: state, Persons: persons})
			return
		}
		for _, p := range persons {
			out = append(out, Block{Place: place, Caller: caller, State: state, Persons: []string{p}})
		}
	}
	switch place {
	case AtChat:
		for _, c := range []string{ByNobody, ByReader, ByPeer} {
			add(c, IsFresh, PersonYes)
			add(c, IsLater, PersonYes)
		}
		add(ByAsker, IsFresh, PersonNot, PersonYes, PersonLag, PersonMov)
		add(ByAsker, IsLater, PersonYes)
		return out
	case AtSummary:
		add(ByOwner, IsFolded, Persons()...)
		return out
	}
	for _, c := range []string{ByOwner, ByMember} {
		for _, s := range []string{IsFresh, IsApproved, IsStanding, IsRestart, IsLater, IsTwo} {
			add(c, s, Persons()...)
		}
	}
	for _, s := range []string{IsFresh, IsLater} {
		add(ByClosed, s, PersonYes, PersonNot)
	}
	if place == AtFile || place == AtName {
		add(ByReader, IsFresh, PersonYes)
		add(ByPeer, IsFresh, PersonYes)
		add(ByAsker, IsFresh, PersonNot, PersonYes)
	}
	add(ByOwner, IsFolded, Persons()...)
	return out
}

// Choice says which cases there are.
type Choice struct {
	Texts []Text
	Seed  int64
	Cases int                  // at most; 0: all
	Only  string               // one case's id; empty: all
	Skip  func(id string) bool // what was done already; nil: nothing
}

// Plan chooses the cases: every text at every place, each time with the next caller, person and state of an order that
// the seed gives, until there are enough. The blocks of one text follow each other.
func Plan(c Choice) (out [][]Block) {
	order := make([]*Text, len(c.Texts))
	for i := range c.Texts {
		order[i] = &c.Texts[i]
	}
	rng := rand.New(rand.NewPCG(uint64(c.Seed), 1))
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	by := map[string][]Block{}
	slots := 0
	for _, p := range Places() {
		by[p] = Shapes(p)
	}
	for _, t := range order {
		slots += len(placesOf(t))
	}
	slot, taken := 0, 0
	for _, t := range order {
		var mine []Block
		for _, place := range placesOf(t) {
			slot++
			want := 1 << 30
			if c.Cases > 0 {
				want = slot*c.Cases/slots - taken
			}
			got := pick(c, t, by[place], want)
			for _, b := range got {
				taken += len(b.Persons)
			}
			mine = append(mine, got...)
		}
		if mine = Chosen(c, mine); len(mine) > 0 {
			slices.SortStableFunc(mine, func(a, b Block) int { return weight(a) - weight(b) })
			out = append(out, mine)
		}
	}
	return out
}

// weight puts what needs closed grants together, and last.
func weight(b Block) int {
	if b.Caller == ByClosed {
		return 1
	}
	return 0
}

func placesOf(t *Text) []string {
	if t.Place != "" {
		return []string{t.Place}
	}
	return Places()
}

// pick takes blocks in the order that the seed gives this text at this place, until they hold enough cases.
func pick(c Choice, t *Text, shapes []Block, cases int) (out []Block) {
	if len(shapes) == 0 {
		return nil
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.ID + "/" + shapes[0].Place))
	rng := rand.New(rand.NewPCG(uint64(c.Seed), h.Sum64()))
	for _, i := range rng.Perm(len(shapes)) {
		if cases <= 0 {
			break
		}
		b := shapes[i]
		b.Text = t
		if n := len(b.Persons); cases < n { // not always the same people, where there is room for few
			from := rng.IntN(n)
			b.Persons = slices.Concat(b.Persons[from:], b.Persons[:from])[:cases]
		}
		cases -= len(b.Persons)
		out = append(out, b)
	}
	return out
}

// Chosen leaves what Only and Skip let through.
func Chosen(c Choice, all []Block) (out []Block) {
	for _, b := range all {
		b.Persons = slices.DeleteFunc(slices.Clone(b.Persons), func(p string) bool {
			id := b.ID(p)
			return c.Only != "" && id != c.Only || c.Skip != nil && c.Skip(id)
		})
		if len(b.Persons) > 0 {
			out = append(out, b)
		}
	}
	return out
}
