package mesh

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/mesh/download"
	"atoll/internal/mesh/link"
)

// checkEvery is how much of a file leaves between two looks at the ceiling, in bytes.
const checkEvery = 1 << 20

// progressEvery is how often a fetch tells how far it is.
const progressEvery = 250 * time.Millisecond

type fetchAsk struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Offset int64  `json:"offset,omitzero"`
}

type fetchReply struct {
	Size int64 `json:"size"` // of the whole file; size - offset bytes follow
}

// serveFetch sends a file of the shared folder from an offset on, if it is still the one that was asked for. The ceiling
// is looked at again as it goes.
func (r *Room) serveFetch(_ context.Context, from string, s *link.Stream) error {
	var ask fetchAsk
	if err := s.Receive(&ask); err != nil {
		return err
	}
	c := r.caller(from)
	if !r.cfg.Open(c, contentCategory) {
		return notShared("its content")
	}
	f, item, err := r.cfg.OpenFile(c, ask.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	switch {
	case item.SHA256 != ask.SHA256:
		return fault.New(fault.Changed, "this file has changed; read the catalogue again")
	case ask.Offset < 0 || ask.Offset > item.Size:
		return fault.New(fault.InvalidParams, "the offset is not in the file").At("offset")
	}
	if _, err := f.Seek(ask.Offset, io.SeekStart); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the file cannot be read")
	}
	if err := s.Send(fetchReply{item.Size}); err != nil {
		return err
	}
	_, err = s.WriteFrom(&gated{r: f, open: func() bool { return r.cfg.Open(c, contentCategory) && r.shares(from, ask.Path) }}, item.Size-ask.Offset)
	return err
}

// gated reads as long as something is open.
type gated struct {
	r    io.Reader
	open func() bool
	left int
}

func (g *gated) Read(p []byte) (int, error) {
	if g.left <= 0 {
		if !g.open() {
			return 0, notShared("its content any more")
		}
		g.left = checkEvery
	}
	n, err := g.r.Read(p)
	g.left -= n
	return n, err
}

// Progress is how far a fetch is, in bytes.
type Progress struct {
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
}

// Fetched is a file that has arrived whole.
type Fetched struct {
	File    string `json:"file"` // the full path on this machine
	Size    int64  `json:"size_bytes"`
	SHA256  string `json:"sha256"`
	Resumed int64  `json:"resumed_bytes,omitzero"` // how much of it was here already
}

// fetch gets a file that a peer shares. What arrives before a break is kept, and the next call goes on from there.
func (r *Room) fetch(ctx context.Context, c caller.Caller, word, path string, tell func(Progress) error) (Fetched, error) {
	p, err := r.find(word)
	if err != nil {
		return Fetched{}, err
	}
	item, err := r.item(ctx, p, path)
	if err != nil {
		return Fetched{}, err
	}
	sum, _ := hex.DecodeString(item.SHA256) // goodItem has read it
	f, err := r.downloads.Begin(ctx, folderOf(p), item.Path, item.Size, [sha256.Size]byte(sum))
	if err != nil {
		return Fetched{}, err
	}
	defer f.Close()
	out := Fetched{Size: item.Size, SHA256: item.SHA256, Resumed: f.Offset()}
	if err := r.receive(ctx, p.key, item, f, tell); err != nil {
		return Fetched{}, err
	}
	out.File, err = f.Finish()
	if errors.Is(err, download.ErrHash) {
		r.flooded(ctx, p.key, "it sent a file that is not the one it announced; it was thrown away")
		return Fetched{}, fault.Wrap(err, fault.Failed, "what %s sent is not the file that it announced: the hash does not fit, and nothing was kept", p.called())
	}
	return out, err
}

// folderOf is where a peer's files go: the end of its key, which no peer can choose.
func folderOf(p *peer) string { return "peer-" + p.key[max(0, len(p.key)-12):] }

func (r *Room) receive(ctx context.Context, key string, item Item, f *download.File, tell func(Progress) error) error {
	if f.Offset() == item.Size {
		return nil
	}
	s, err := r.reach(ctx, key, "fetch")
	if err != nil {
		return r.remote(key, err)
	}
	defer s.Reset()
	var reply fetchReply
	if err := s.Send(fetchAsk{item.Path, item.SHA256, f.Offset()}); err != nil {
		return r.remote(key, err)
	}
	if err := s.Receive(&reply); err != nil {
		return r.remote(key, err)
	}
	if reply.Size != item.Size {
		return fault.New(fault.Changed, "the file has another size now; refresh the catalogue and ask again")
	}
	w := &telling{w: f, p: Progress{f.Offset(), item.Size}, tell: tell}
	if _, err := s.ReadInto(w, item.Size-f.Offset()); err != nil {
		if f := fault.Of(err); f.Code == fault.TooLarge || f.Code == fault.Unavailable && f.Cause != nil && !isLink(err) {
			return err
		}
		return fault.Wrap(err, fault.Unavailable, "the connection broke off after %d of %d bytes; what arrived is kept, ask again to go on", f.Offset(), item.Size)
	}
	return w.tell(w.p)
}

func isLink(err error) bool { return errors.Is(err, link.ErrClosed) || errors.Is(err, link.ErrReset) }

// telling reports what passes through, now and then.
type telling struct {
	w    io.Writer
	p    Progress
	tell func(Progress) error
	last time.Time
}

func (t *telling) Write(b []byte) (int, error) {
	n, err := t.w.Write(b)
	t.p.Done += int64(n)
	if now := time.Now(); err == nil && now.Sub(t.last) >= progressEvery {
		t.last, err = now, t.tell(t.p)
	}
	return n, err
}

// reach opens a stream to a peer, calling it first where it is not connected.
func (r *Room) reach(ctx context.Context, key, protocol string) (*link.Stream, error) {
	p := r.peer(key)
	if p == nil || p.state != paired {
		return nil, fault.New(fault.Rule, "this node and that one are not paired").At("peer")
	}
	dial, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err := r.host.Connect(dial, key, p.addrs)
	if err != nil && dial.Err() == nil { // two nodes that call each other in the same moment can spoil both calls
		err = r.host.Connect(dial, key, p.addrs)
	}
	if err != nil {
		return nil, err
	}
	return r.host.Open(ctx, key, protocol)
}
