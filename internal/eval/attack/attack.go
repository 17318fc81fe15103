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
	"slices"
	"sync"

	"atoll/internal/eval/attack/stage"
	"atoll/internal/eval/attack/stranger"
	"atoll/internal/eval/attack/suite"

	"atoll/internal/model"
)

// What a run is made of, and what comes of a case.
type (
	Text    = suite.Text
	Task    = suite.Task
	Call    = suite.Call
	Outcome = suite.Outcome
)

// LoadTexts reads a directory of the shared format: see suite.LoadTexts.
func LoadTexts(dir string) (texts []Text, tasks []Task, benign []string, err error) {
	return suite.LoadTexts(dir)
}

// LoadOwn reads attacks from a text file; its format stands at suite.LoadOwn.
func LoadOwn(file string) ([]Text, error) { return suite.LoadOwn(file) }

// Own are the attacks, the tasks and the harmless texts that come with the program.
func Own() (texts []Text, tasks []Task, benign []string, err error) { return suite.Own() }

// Places lists where a text can enter.
func Places() []string { return suite.Places() }

// Config is a run of the suite.
type Config struct {
	Texts   []Text
	Tasks   []Task
	Benign  []string
	Seed    int64                // of the order and the choice
	Cases   int                  // attacks at most; 0: all
	Only    string               // "text/place/caller/person/state": just this one
	Skip    func(id string) bool // what was done already; nil: nothing
	Workers int                  // worlds side by side; 0: 5, since each waits much
	Dir     string               // for the worlds; a file system in memory is faster. Empty: a temporary one
	Exe     string               // this program, which launches process apps; empty: this binary
	Done    func(Outcome)        // after each case, one at a time; may be nil
	Model   func() model.Client  // nil: the worst-case model, and an honest one for tasks

	spoil func(*stage.World) // done before each case, for the tests of this suite itself
}

// Run tries what the Config says and sums it up. The error is of what kept it from going on; violations are in the Report.
func Run(ctx context.Context, c Config) (Report, error) {
	if c.Only != "" {
		c.Cases = 0
	}
	if c.Workers <= 0 {
		c.Workers = 5
	}
	dir, err := os.MkdirTemp(c.Dir, "atoll-attack-")
	if err != nil {
		return Report{}, err
	}
	defer os.RemoveAll(dir)
	defer giveMemory(c)()
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
	texts  [][]suite.Block
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
	c := r.cfg
	texts := suite.Plan(suite.Choice{Texts: c.Texts, Seed: c.Seed, Cases: c.Cases, Only: c.Only, Skip: c.Skip})
	for len(texts) > 0 {
		n := min(stage.BatchSize, len(texts))
		list = append(list, job{texts: texts[:n]})
		texts = texts[n:]
	}
	if tasks := slices.DeleteFunc(slices.Clone(c.Tasks), c.knows); len(tasks) > 0 {
		list = append(list, job{tasks: tasks})
	}
	for i := 0; i < len(c.Benign); i += stage.BatchSize {
		if end := min(i+stage.BatchSize, len(c.Benign)); !c.knowsBenign(i, end) {
			list = append(list, job{benign: c.Benign[i:end], first: i})
		}
	}
	out := make(chan job, len(list))
	for _, j := range list {
		out <- j
	}
	close(out)
	return out
}

// knows reports whether a task was done already, everywhere.
func (c Config) knows(t Task) bool {
	missing := func(house string) bool { return !c.Skip(suite.TaskID(t.ID, house)) }
	return c.Skip != nil && !slices.ContainsFunc(suite.Houses(), missing)
}

// knowsBenign reports whether the harmless texts from first up to end were tried already, everywhere.
func (c Config) knowsBenign(first, end int) bool {
	if c.Skip == nil {
		return false
	}
	for n := first; n < end; n++ {
		if slices.ContainsFunc(suite.BenignPlaces(), func(place string) bool { return !c.Skip(suite.BenignID(n, place)) }) {
			return false
		}
	}
	return true
}

// work takes jobs, in one world after the other.
func (r *runner) work(ctx context.Context, n int, jobs <-chan job) (err error) {
	p := &place{r: r, n: n}
	defer func() { err = errors.Join(err, p.leave(), p.end()) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case j, ok := <-jobs:
			if !ok {
				return p.play(ctx, job{})
			}
			if err := p.play(ctx, j); err != nil {
				return err
			}
		}
	}
}

// place is where one worker's worlds are.
type place struct {
	r     *runner
	n     int
	made  int
	peers []*stranger.Stranger
	w     *stage.World
}

// maxAgain is how often a job is begun anew.
const maxAgain = 2

// play does a job. Where something beside the node fails, such as a connection on a machine that is too busy, it is tried
// again in a new world, maxAgain times, and the report says so.
func (p *place) play(ctx context.Context, j job) error {
	for try := 0; ; try++ {
		told := map[string]bool{}
		done := func(o Outcome) { told[o.ID] = true; p.r.done(o) }
		var owed []suite.Block
		err := p.enter(ctx, j, done)
		if err == nil && p.w != nil {
			err = p.r.do(p.w, j, done)
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if try == maxAgain {
			return err
		}
		p.r.again(err)
		if p.w != nil {
			owed = p.w.Owed()
		}
		if err = p.leave(); err != nil {
			p.r.again(err)
		}
		for _, b := range owed { // of this job and of those before
			j.texts = append(j.texts, []suite.Block{b})
		}
		j = j.without(told)
	}
}

// enter sees that there is a world with room for the job.
func (p *place) enter(ctx context.Context, j job, done func(Outcome)) error {
	for len(p.peers) < stage.Strangers {
		s, err := stranger.NewStranger()
		if err != nil {
			return err
		}
		p.peers = append(p.peers, s)
	}
	last := len(j.texts)+len(j.tasks)+len(j.benign) == 0 // nothing but what was put off is left to do
	if p.w != nil && (last || !p.w.Lasts()) {
		if err := p.w.Attempt(func() { p.w.Finish(done) }); err != nil {
			return err
		}
		if err := p.leave(); err != nil {
			return err
		}
	}
	if p.w != nil || last {
		return nil
	}
	p.made++
	var err error
	p.w, err = stage.New(ctx, stage.Setup{Exe: p.r.cfg.Exe, Model: p.r.cfg.Model, Spoil: p.r.cfg.spoil}, filepath.Join(p.r.dir, fmt.Sprintf("w%d-%d", p.n, p.made)), p.peers)
	return err
}

func (p *place) leave() error {
	if p.w == nil {
		return nil
	}
	old := p.w
	p.w = nil
	return old.Close()
}

func (p *place) end() (err error) {
	for _, s := range p.peers {
		err = errors.Join(err, s.Host.Close())
	}
	return err
}

// without leaves out the cases that were told.
func (j job) without(told map[string]bool) job {
	next := j
	next.texts = nil
	for _, blocks := range j.texts {
		if left := suite.Chosen(suite.Choice{Skip: func(id string) bool { return told[id] }}, blocks); len(left) > 0 {
			next.texts = append(next.texts, left)
		}
	}
	return next
}

// do plays a job. What keeps a world from going on comes back as an error.
func (r *runner) do(w *stage.World, j job, done func(Outcome)) error {
	return w.Attempt(func() {
		switch {
		case len(j.texts) > 0:
			w.Batch(j.texts, done)
		case len(j.tasks) > 0:
			w.Tasks(j.tasks, done)
		case len(j.benign) > 0:
			w.Benign(j.benign, j.first, done)
		}
	})
}

// again writes down what a job was begun anew for.
func (r *runner) again(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.report.Again) < maxViolations {
		r.report.Again = append(r.report.Again, fmt.Sprintf("%.300s", err))
	}
}

func (r *runner) done(o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.add(o)
	if r.cfg.Done != nil {
		r.cfg.Done(o)
	}
}
