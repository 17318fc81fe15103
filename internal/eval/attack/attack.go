// Package attack tries hostile texts on real nodes in this process: each text at each place where it can enter, for each
// caller, with each kind of person, in each state. A worst-case model obeys what the texts want, whether or not it can see
// them. Effects are counted in the handlers and at the sockets, and eleven oracles say what must not have happened.
package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"atoll/internal/model"
)

// Config is a run of the suite.
type Config struct {
	Texts   []Text
	Tasks   []Task
	Benign  []string
	Seed    int64                // of the order and the choice
	Cases   int                  // attacks at most; 0: all
	Only    string               // "text/place/caller/person/state": just this one
	Skip    func(id string) bool // what was done already; nil: nothing
	Workers int                  // worlds side by side; 0: 2
	Dir     string               // for the worlds; a file system in memory is faster. Empty: a temporary one
	Exe     string               // this program, which launches process apps; empty: this binary
	Done    func(Outcome)        // after each case, one at a time; may be nil
	Model   func() model.Client  // nil: the worst-case model, and an honest one for tasks
}

// Outcome is one case's.
type Outcome struct {
	ID         string        `json:"id"`
	Text       string        `json:"text"`
	Place      string        `json:"place"`
	Caller     string        `json:"caller"`
	Person     string        `json:"person"`
	State      string        `json:"state"`
	Source     string        `json:"source"`
	Kind       string        `json:"kind"` // attack, task or benign
	Violations []string      `json:"violations,omitempty"`
	Effects    int           `json:"effects"`
	Approved   int           `json:"approved"`
	Asked      int           `json:"asked"`
	Needed     int           `json:"needed"`
	Done       bool          `json:"done"` // the task was done
	Rounds     int           `json:"rounds"`
	Took       time.Duration `json:"took_ns"`
	TokensIn   int64         `json:"tokens_in"`
	TokensOut  int64         `json:"tokens_out"`
}

// maxWorld is after how many cases a world is left for a new one: histories and indexes grow.
const maxWorld = 5000

// peersEach is how many other nodes a world knows.
const peersEach = 48

// Run tries what the Config says and sums it up. The error is of what kept it from going on; violations are in the Report.
func Run(ctx context.Context, c Config) (Report, error) {
	if c.Only != "" {
		c.Cases = 0
	}
	if c.Workers <= 0 {
		c.Workers = 2
	}
	dir, err := os.MkdirTemp(c.Dir, "atoll-attack-")
	if err != nil {
		return Report{}, err
	}
	defer os.RemoveAll(dir)
	r := &runner{cfg: c, dir: dir, report: newReport(c.Seed)}
	jobs := r.jobs()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	errs := make([]error, c.Workers)
	for i := range c.Workers {
		group.Go(func() {
			if errs[i] = r.work(ctx, i, jobs); errs[i] != nil {
				cancel()
			}
		})
	}
	group.Wait()
	r.report.end()
	return *r.report, errors.Join(append(errs, ctx.Err())...)
}

// job is work for one world: a batch of texts, or some tasks.
type job struct {
	texts  [][]block
	tasks  []Task
	benign []string
	first  int // the number of the first harmless text
}

type runner struct {
	cfg Config
	dir string

	mu     sync.Mutex // guards report and Config.Done
	report *Report
}

func (r *runner) jobs() <-chan job {
	var list []job
	texts := plan(r.cfg)
	for len(texts) > 0 {
		n := min(batchSize, len(texts))
		list = append(list, job{texts: texts[:n]})
		texts = texts[n:]
	}
	if len(r.cfg.Tasks) > 0 {
		list = append(list, job{tasks: r.cfg.Tasks})
	}
	for i := 0; i < len(r.cfg.Benign); i += batchSize {
		list = append(list, job{benign: r.cfg.Benign[i:min(i+batchSize, len(r.cfg.Benign))], first: i})
	}
	out := make(chan job, len(list))
	for _, j := range list {
		out <- j
	}
	close(out)
	return out
}

// work takes jobs, in one world after the other.
func (r *runner) work(ctx context.Context, n int, jobs <-chan job) (err error) {
	var peers []*stranger
	defer func() {
		for _, p := range peers {
			err = errors.Join(err, p.host.Close())
		}
	}()
	var w *world
	leave := func() error {
		if w == nil {
			return nil
		}
		old := w
		w = nil
		return old.close()
	}
	defer func() { err = errors.Join(err, leave()) }()
	for made := 0; ; {
		var j job
		var ok bool
		select {
		case <-ctx.Done():
			return nil
		case j, ok = <-jobs:
		}
		if !ok {
			return nil
		}
		for len(peers) < peersEach {
			p, err := newStranger()
			if err != nil {
				return err
			}
			peers = append(peers, p)
		}
		if w != nil && (w.cases >= maxWorld || !w.peers.left()) {
			if err := leave(); err != nil {
				return err
			}
		}
		if w == nil {
			made++
			if w, err = newWorld(ctx, r.cfg, filepath.Join(r.dir, fmt.Sprintf("w%d-%d", n, made)), peers); err != nil {
				return err
			}
		}
		if err := r.do(w, j); err != nil {
			return err
		}
	}
}

// do plays a job. What keeps a world from going on comes back as an error.
func (r *runner) do(w *world, j job) (err error) {
	defer func() {
		if v := recover(); v != nil {
			s, ok := v.(stopped)
			if !ok {
				panic(v)
			}
			err = s.err
		}
	}()
	switch {
	case len(j.texts) > 0:
		w.batch(j.texts, r.done)
	case len(j.tasks) > 0:
		w.tasks(j.tasks, r.done)
	default:
		w.benign(j.benign, j.first, r.done)
	}
	return nil
}

func (r *runner) done(o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.add(o)
	if r.cfg.Done != nil {
		r.cfg.Done(o)
	}
}

// batch plays all blocks of some texts, and those that need a restart after one restart for all of them.
func (w *world) batch(texts [][]block, done func(Outcome)) {
	uses := map[string]bool{}
	var list []*Text
	for _, blocks := range texts {
		list = append(list, blocks[0].text)
		for _, b := range blocks {
			uses[b.text.ID+"/"+b.place] = true
		}
	}
	w.grant(true)
	down := w.plant(list, func(t *Text, place string) bool { return uses[t.ID+"/"+place] })
	var later []*play
	for i, blocks := range texts {
		before, paired := w.thorough(), w.peers.next
		var last Outcome
		for _, b := range blocks {
			y := w.run(b, down[i])
			if b.state == isRestart {
				later = append(later, y)
				continue
			}
			y.cases(func(o Outcome) { last = o; done(o) })
		}
		w.grant(true)
		after := w.thorough()
		if w.peers.next != paired { // who was paired for a case is no tool's doing
			before.Ceilings, after.Ceilings = "", ""
		}
		if wrong := nothingIsWidened(&seen{kept: before, now: after}); len(wrong) > 0 && last.ID != "" {
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
