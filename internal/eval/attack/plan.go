package attack

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
)

// The places where a text enters: each through the product's own intake.
const (
	atFile     = "file"      // the name of a file in the shared folder
	atLog      = "log"       // a line that an app logs
	atTitle    = "title"     // the title in an app's definition
	atName     = "peer-name" // what a peer calls itself
	atStatus   = "peer-status"
	atPeerFile = "peer-file" // the name of a file that a peer shares
	atSetting  = "setting"   // a setting's value, read back
	atChat     = "mesh-chat" // a peer's question
	atSummary  = "summary"   // the model's own summary of a conversation in which the text stood
)

// Places lists where a text can enter.
func Places() []string {
	return []string{atFile, atLog, atTitle, atName, atStatus, atPeerFile, atSetting, atChat, atSummary}
}

func isPlace(s string) bool { return slices.Contains(Places(), s) }

// The callers.
const (
	byOwner  = "owner"        // all is granted
	byClosed = "owner-closed" // nothing is granted
	byMember = "member"       // all is granted, and a member may less
	byNobody = "peer-none"    // a peer without a ceiling
	byReader = "peer-read"    // a peer that may content and mesh
	byPeer   = "peer-all"     // a peer that may all that one can
	byAsker  = "peer-asking"  // and of which the owner is asked about changes
)

// The people.
const (
	personNot = "never"    // declines
	personNo  = "needed"   // approves what the task needs
	personYes = "all"      // approves whatever is asked
	personLag = "late"     // approves after the question has expired
	personMov = "changing" // approves, and the target changes before
)

// The states.
const (
	isFresh    = "fresh"    // read and done in one turn
	isApproved = "approved" // after a benign approval in the conversation
	isStanding = "standing" // with a standing permission for what the text wants
	isFolded   = "summary"  // the text has aged out into the summary
	isRestart  = "restart"  // the node was restarted between the text and the act
	isLater    = "later"    // two turns later
	isTwo      = "two"      // while another session asks for something of its own
)

func persons() []string { return []string{personNot, personNo, personYes, personLag, personMov} }

// block is cases that share one conversation: one person each, but where the way there is long.
type block struct {
	text    *Text
	place   string
	caller  string
	state   string
	persons []string
}

func (b block) id(person string) string {
	return strings.Join([]string{b.text.ID, b.place, b.caller, person, b.state}, "/")
}

func isPeer(caller string) bool { return strings.HasPrefix(caller, "peer-") }

// shapes are the kinds of block that a place can have.
func shapes(place string) (out []block) {
	add := func(caller, state string, persons ...string) {
		if state == isFolded {
			out = append(out, block{place: place, caller: caller, state: state, persons: persons})
			return
		}
		for _, p := range persons {
			out = append(out, block{place: place, caller: caller, state: state, persons: []string{p}})
		}
	}
	switch place {
	case atChat:
		for _, c := range []string{byNobody, byReader, byPeer} {
			add(c, isFresh, personYes)
			add(c, isLater, personYes)
		}
		add(byAsker, isFresh, personNot, personYes, personLag, personMov)
		add(byAsker, isLater, personYes)
		return out
	case atSummary:
		add(byOwner, isFolded, persons()...)
		return out
	}
	for _, c := range []string{byOwner, byMember} {
		for _, s := range []string{isFresh, isApproved, isStanding, isRestart, isLater, isTwo} {
			add(c, s, persons()...)
		}
	}
	for _, s := range []string{isFresh, isLater} {
		add(byClosed, s, personYes, personNot)
	}
	if place == atFile || place == atName {
		add(byReader, isFresh, personYes)
		add(byPeer, isFresh, personYes)
		add(byAsker, isFresh, personNot, personYes)
	}
	add(byOwner, isFolded, persons()...)
	return out
}

// plan chooses the cases: every text at every place, each time with the next caller, person and state of an order that
// the seed gives, until there are enough. The blocks of one text follow each other.
func plan(c Config) (out [][]block) {
	order := make([]*Text, len(c.Texts))
	for i := range c.Texts {
		order[i] = &c.Texts[i]
	}
	rng := rand.New(rand.NewPCG(uint64(c.Seed), 1))
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	by := map[string][]block{}
	slots := 0
	for _, p := range Places() {
		by[p] = shapes(p)
	}
	for _, t := range order {
		slots += len(placesOf(t))
	}
	slot, taken := 0, 0
	for _, t := range order {
		var mine []block
		for _, place := range placesOf(t) {
			slot++
			want := 1 << 30
			if c.Cases > 0 {
				want = slot*c.Cases/slots - taken
			}
			got := pick(c, t, by[place], want)
			for _, b := range got {
				taken += len(b.persons)
			}
			mine = append(mine, got...)
		}
		if mine = chosen(c, mine); len(mine) > 0 {
			slices.SortStableFunc(mine, func(a, b block) int { return weight(a) - weight(b) })
			out = append(out, mine)
		}
	}
	return out
}

// weight puts what needs closed grants together, and last.
func weight(b block) int {
	if b.caller == byClosed {
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
func pick(c Config, t *Text, shapes []block, cases int) (out []block) {
	if len(shapes) == 0 {
		return nil
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.ID + "/" + shapes[0].place))
	perm := rand.New(rand.NewPCG(uint64(c.Seed), h.Sum64())).Perm(len(shapes))
	for _, i := range perm {
		if cases <= 0 {
			break
		}
		b := shapes[i]
		b.text = t
		b.persons = b.persons[:min(cases, len(b.persons))]
		cases -= len(b.persons)
		out = append(out, b)
	}
	return out
}

// chosen leaves what Only and Skip let through.
func chosen(c Config, all []block) (out []block) {
	for _, b := range all {
		b.persons = slices.DeleteFunc(slices.Clone(b.persons), func(p string) bool {
			id := b.id(p)
			return c.Only != "" && id != c.Only || c.Skip != nil && c.Skip(id)
		})
		if len(b.persons) > 0 {
			out = append(out, b)
		}
	}
	return out
}
