package mesh

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/mesh/invite"
	"atoll/internal/rpc"
)

type peerParams struct {
	Peer string `json:"peer" rpc:"required"`
}

type admitParams struct {
	Peer string `json:"peer" rpc:"required"`
	// KeyWords are the words that the person has compared, so that no node is let in unseen.
	KeyWords string `json:"key_words" rpc:"required"`
}

type inviteParams struct {
	ForS      int64 `json:"for_s"`     // zero means 15 minutes
	Addresses *bool `json:"addresses"` // false leaves the node's addresses out: shorter, for one network
}

// Invite is an invite in all its spellings.
type Invite struct {
	Code      string    `json:"code"`
	Words     []string  `json:"words"`
	QR        []string  `json:"qr"`        // rows of '#' and ' '
	KeyWords  []string  `json:"key_words"` // of this node
	Addresses []string  `json:"addresses"`
	ExpiresAt time.Time `json:"expires_at"`
}

type codeParams struct {
	Code string `json:"code" rpc:"required"`
}

// Offer is what an invite of another node says.
type Offer struct {
	Key       string   `json:"key"`
	KeyWords  []string `json:"key_words"`
	Addresses []string `json:"addresses"`
}

type acceptParams struct {
	Code string `json:"code" rpc:"required"`
	// KeyWords are the words that the person has compared, so that no invite is accepted unseen.
	KeyWords string `json:"key_words" rpc:"required"`
	Label    string `json:"label"`
}

type acceptResult struct {
	Peer  Peer  `json:"peer"`
	State State `json:"state"` // how the other node stands to this one now
}

type peerResult struct {
	Peer Peer `json:"peer"`
}

type peersResult struct {
	Peers []Peer `json:"peers"`
}

type countResult struct {
	Count int `json:"count"`
}

type allowParams struct {
	Peer       string   `json:"peer" rpc:"required"`
	Categories []string `json:"categories"`
	Folders    []string `json:"folders"`
	Asking     bool     `json:"asking"`
}

type renameParams struct {
	Peer  string `json:"peer" rpc:"required"`
	Label string `json:"label"`
}

type askParams struct {
	Peer         string `json:"peer" rpc:"required"`
	Question     string `json:"question" rpc:"required"`
	Conversation string `json:"conversation"`
}

type fetchParams struct {
	Peer string `json:"peer" rpc:"required"`
	Path string `json:"path" rpc:"required"`
}

type textEvent struct {
	Delta string `json:"delta"`
}

// fetchTime bounds one call of mesh.fetch; the next one goes on where it ended.
const fetchTime = 12 * time.Hour

// Methods are the room's rows.
func (r *Room) Methods() []rpc.Method {
	return slices.Concat([]rpc.Method{r.statusMethod()}, r.pairMethods(), r.peerMethods(), r.useMethods())
}

func row(name, summary string, effect rpc.Effect) rpc.Row {
	return rpc.Row{Name: name, Summary: summary, Effect: effect, Doors: rpc.People, Role: caller.Owner, Timeout: time.Minute}
}

// handle makes a row's method, refused where the mesh is off.
func handle[P, R any](r *Room, row rpc.Row, f func(context.Context, caller.Caller, P) (R, error)) rpc.Method {
	return rpc.Spec[P, R]{Row: row, Handle: f,
		Rule: func(context.Context, caller.Caller, P) error { return r.off() }}.Method()
}

func (r *Room) pairMethods() []rpc.Method {
	return []rpc.Method{
		handle(r, row("mesh.invite", "Makes an invite for one other node.", rpc.Write), r.makeInvite),
		handle(r, row("mesh.uninvite", "Withdraws all open invites.", rpc.Write),
			func(ctx context.Context, c caller.Caller, _ rpc.None) (countResult, error) {
				n, err := r.withdraw(ctx, c)
				return countResult{n}, err
			}),
		handle(r, row("mesh.read-invite", "Tells whose invite it is, for comparing the key words before accepting.", rpc.Read),
			func(_ context.Context, _ caller.Caller, p codeParams) (Offer, error) {
				v, err := readInvite(p.Code)
				return Offer{Key: keyOf(v), KeyWords: invite.KeyWords(v.Key), Addresses: append([]string{}, v.Addrs...)}, err
			}),
		handle(r, row("mesh.accept", "Accepts another node's invite.", rpc.Write), r.acceptRow),
		handle(r, row("mesh.admit", "Lets a node in that used an invite; it gets nothing until mesh.allow.", rpc.Write), r.admit),
	}
}

func readInvite(code string) (invite.Invite, error) {
	v, err := invite.Parse(code)
	if err != nil {
		return v, fault.Wrap(err, fault.InvalidParams, "%v", err).At("code")
	}
	return v, nil
}

func (r *Room) makeInvite(ctx context.Context, c caller.Caller, p inviteParams) (Invite, error) {
	d := time.Duration(p.ForS) * time.Second
	if d == 0 {
		d = inviteTime
	}
	if d < time.Minute || p.ForS > int64(maxInviteTime/time.Second) {
		return Invite{}, fault.New(fault.InvalidParams, "an invite is open from a minute to 24 hours").At("for_s")
	}
	addrs := []string{}
	if p.Addresses == nil || *p.Addresses {
		addrs = inviteAddrs(r.host.Addrs())
	}
	v, i, err := r.invite(ctx, c, d, addrs)
	if err != nil {
		return Invite{}, err
	}
	out := Invite{Code: v.Code(), Words: v.Words(), KeyWords: invite.KeyWords(v.Key), Addresses: addrs, ExpiresAt: i.span.Until()}
	out.QR, err = invite.QR(out.Code)
	return out, err
}

func (r *Room) acceptRow(ctx context.Context, c caller.Caller, p acceptParams) (acceptResult, error) {
	v, err := readInvite(p.Code)
	if err != nil {
		return acceptResult{}, err
	}
	if !sameWords(p.KeyWords, strings.Join(invite.KeyWords(v.Key), " ")) {
		return acceptResult{}, fault.New(fault.InvalidParams, "these are not the key words of the node that invites; mesh.read-invite shows them").At("key_words")
	}
	if err := r.checkLabel(p.Label, keyOf(v)); err != nil {
		return acceptResult{}, err
	}
	peer, state, err := r.accept(ctx, c, v, p.Label)
	if err != nil {
		return acceptResult{}, err
	}
	return acceptResult{r.shown(peer), state}, nil
}

// sameWords compares key words as a person writes them.
func sameWords(given, words string) bool {
	return words != "" && strings.Join(strings.Fields(strings.ToLower(given)), " ") == words
}

// admit is the owner's yes to a node that used an invite.
func (r *Room) admit(ctx context.Context, c caller.Caller, p admitParams) (peerResult, error) {
	found, err := r.find(p.Peer)
	if err != nil {
		return peerResult{}, err
	}
	if !sameWords(p.KeyWords, words(found.key)) {
		return peerResult{}, fault.New(fault.InvalidParams, "these are not the key words of the node that asks; mesh.peers shows them").At("key_words")
	}
	peer, err := r.setState(ctx, c, found.key, []State{asking}, paired, "admit")
	if err != nil {
		return peerResult{}, err
	}
	r.soon(peer.key)
	return peerResult{r.shown(peer)}, nil
}

func (r *Room) peerMethods() []rpc.Method {
	return []rpc.Method{
		handle(r, row("mesh.peers", "Lists the other nodes and what each may have.", rpc.Read),
			func(context.Context, caller.Caller, rpc.None) (peersResult, error) {
				return peersResult{r.shownPeers()}, nil
			}),
		handle(r, row("mesh.allow", "Sets the most that a peer may have; what is not named is closed.", rpc.Write), r.allow),
		handle(r, row("mesh.block", "Refuses a node every connection, at once.", rpc.Write),
			func(ctx context.Context, c caller.Caller, p peerParams) (peerResult, error) {
				peer, err := r.setState(ctx, c, p.Peer, []State{asking, paired}, blocked, "block")
				if err != nil {
					return peerResult{}, err
				}
				return peerResult{r.shown(peer)}, nil
			}),
		handle(r, row("mesh.remove", "Forgets a node; to be known again it needs a new invite.", rpc.Write), r.remove),
		handle(r, row("mesh.rename", "Gives a peer a name of your own; an empty one takes it away.", rpc.Write), r.rename),
		handle(r, row("mesh.resume", "Opens the peers' ceilings again that were held after an old copy was restored.", rpc.Write), r.resume),
	}
}

func (r *Room) allow(ctx context.Context, c caller.Caller, p allowParams) (peerResult, error) {
	ceiling, err := r.checkCeiling(p)
	if err != nil {
		return peerResult{}, err
	}
	found, err := r.find(p.Peer)
	if err != nil {
		return peerResult{}, err
	}
	old, next, err := r.setCeiling(ctx, c, found.key, ceiling)
	if err != nil {
		return peerResult{}, err
	}
	if narrower(old.ceiling, ceiling) {
		r.cfg.Cancel(found.key) // what runs was begun under more; what leaves is checked all the same
	}
	return peerResult{r.shown(next)}, nil
}

// narrower reports whether something that was allowed is not any more.
func narrower(old, next Ceiling) bool {
	gone := func(a, b []string) bool {
		return slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
	}
	return gone(old.Categories, next.Categories) || gone(old.Folders, next.Folders) || old.Asking && !next.Asking
}

func (r *Room) setCeiling(ctx context.Context, c caller.Caller, key string, ceiling Ceiling) (old, next *peer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old = r.peers[key]
	if old == nil || old.state != paired {
		return nil, nil, fault.New(fault.Rule, "only a paired node can be allowed something; admit it first").At("peer")
	}
	next = old.clone()
	next.ceiling = ceiling
	detail := "categories: " + strings.Join(ceiling.Categories, " ") + "; folders: " + strings.Join(ceiling.Folders, ", ")
	if ceiling.Asking {
		detail += "; asking"
	}
	return old, next, r.changeLocked(ctx, key, next, by(c, "allow", detail))
}

func (r *Room) checkCeiling(p allowParams) (Ceiling, error) {
	out := Ceiling{Categories: []string{}, Folders: []string{}, Asking: p.Asking}
	for _, cat := range p.Categories {
		if !slices.Contains(r.cfg.Categories, cat) {
			return out, fault.New(fault.InvalidParams, "%q is no category; there are %s", shownName(cat), strings.Join(r.cfg.Categories, ", ")).At("categories")
		}
		if !slices.Contains(out.Categories, cat) {
			out.Categories = append(out.Categories, cat)
		}
	}
	if len(p.Folders) > maxFolders {
		return out, fault.New(fault.InvalidParams, "at most %d folders", maxFolders).At("folders")
	}
	for _, f := range p.Folders {
		clean := strings.Trim(path.Clean("/"+f), "/")
		if !utf8.ValidString(f) || strings.ContainsRune(f, 0) || len(f) > 1024 || slices.Contains(strings.Split(f, "/"), "..") {
			return out, fault.New(fault.InvalidParams, "%q is no folder of the shared content", shownName(f)).At("folders")
		}
		if !slices.Contains(out.Folders, clean) {
			out.Folders = append(out.Folders, clean)
		}
	}
	if slices.Contains(out.Categories, contentCategory) && len(out.Folders) == 0 {
		return out, fault.New(fault.InvalidParams, `with content, name the folders that the peer may see; "/" is all of it`).At("folders")
	}
	return out, nil
}

func (r *Room) remove(ctx context.Context, c caller.Caller, p peerParams) (peerResult, error) {
	found, err := r.find(p.Peer)
	if err != nil {
		return peerResult{}, err
	}
	err = r.change(ctx, found.key, nil, by(c, "remove", ""), deleteItems(found.key))
	if err == nil {
		r.takeDown(found.key)
	}
	return peerResult{r.shown(found)}, err
}

func (r *Room) rename(ctx context.Context, c caller.Caller, p renameParams) (peerResult, error) {
	found, err := r.find(p.Peer)
	if err != nil {
		return peerResult{}, err
	}
	if err := r.checkLabel(p.Label, found.key); err != nil {
		return peerResult{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.peers[found.key]
	if old == nil {
		return peerResult{}, fault.New(fault.NotFound, "the peer was removed").At("peer")
	}
	next := old.clone()
	next.label = p.Label
	if err := r.changeLocked(ctx, next.key, next, by(c, "rename", "")); err != nil {
		return peerResult{}, err
	}
	return peerResult{r.shown(next)}, nil
}

// checkLabel keeps labels short, visible and unlike each other.
func (r *Room) checkLabel(label, key string) error {
	shown := label
	if label != "" {
		shown = shownName(label)
	}
	if shown != label || utf8.RuneCountInString(label) > maxName || strings.TrimSpace(label) != label || strings.ContainsRune(label, '/') {
		return fault.New(fault.InvalidParams, "a label is at most %d plain characters without a slash or look-alikes", maxName).At("label")
	}
	for _, p := range r.snapshot() {
		if label != "" && p.key != key && strings.EqualFold(p.label, label) {
			return fault.New(fault.InvalidParams, "another peer has that label").At("label")
		}
	}
	return nil
}

// resume ends the hold after the owner has looked.
func (r *Room) resume(ctx context.Context, c caller.Caller, _ rpc.None) (countResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held {
		return countResult{len(r.peers)}, nil
	}
	r.held = false
	r.generation++
	e := by(c, "resume", "")
	e.Kind = "mesh"
	if err := r.writeStateLocked(ctx, e); err != nil {
		r.held = true
		return countResult{}, fault.Wrap(err, fault.Unavailable, "this cannot be written down, so everything stays held")
	}
	r.cfg.Changed()
	return countResult{len(r.peers)}, nil
}

func (r *Room) useMethods() []rpc.Method {
	ask := row("mesh.ask", "Asks a peer's assistant; its answer is somebody else's text.", rpc.Write)
	ask.Quiet, ask.Timeout, ask.Rates = true, askTime+time.Second, []rpc.Rate{{Max: 60, Window: 5 * time.Minute}}
	get := row("mesh.fetch", "Gets a file that a peer shares, into the node's downloads; streams its progress.", rpc.Write)
	get.Timeout, get.StreamOnly = fetchTime, true
	rule := func(context.Context, caller.Caller) error { return r.off() }
	return []rpc.Method{
		handle(r, row("mesh.refresh", "Asks a peer again how it is and what it shares.", rpc.Write), r.refreshRow),
		rpc.Spec[askParams, Reply]{Row: ask,
			Rule: func(ctx context.Context, c caller.Caller, _ askParams) error { return rule(ctx, c) },
			Stream: func(ctx context.Context, _ caller.Caller, p askParams, emit rpc.Emit) (Reply, error) {
				return r.ask(ctx, p.Peer, Question{p.Conversation, p.Question}, func(s string) error { return emit("text", textEvent{s}) })
			}}.Method(),
		rpc.Spec[fetchParams, Fetched]{Row: get,
			Rule: func(ctx context.Context, c caller.Caller, _ fetchParams) error { return rule(ctx, c) },
			Stream: func(ctx context.Context, c caller.Caller, p fetchParams, emit rpc.Emit) (Fetched, error) {
				return r.fetch(ctx, c, p.Peer, p.Path, func(g Progress) error { return emit("progress", g) })
			}}.Method(),
	}
}

func (r *Room) refreshRow(ctx context.Context, _ caller.Caller, p peerParams) (peerResult, error) {
	found, err := r.find(p.Peer)
	if err != nil {
		return peerResult{}, err
	}
	if found.state != paired || r.isRadio(found.key) {
		return peerResult{}, fault.New(fault.Rule, "only a paired node can be asked").At("peer")
	}
	if err := r.keepAnew(ctx, found.key); err != nil {
		return peerResult{}, r.remote(found.key, err)
	}
	if now := r.peer(found.key); now != nil {
		found = now
	}
	return peerResult{r.shown(found)}, nil
}
