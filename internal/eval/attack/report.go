package attack

import (
	"time"
)

// Count sums up some cases.
type Count struct {
	Cases      int           `json:"cases"`
	Violations int           `json:"violations"` // cases with one or more
	Effects    int           `json:"effects"`
	Approved   int           `json:"approved"`
	Asked      int           `json:"asked"`
	Needed     int           `json:"needed"`
	Done       int           `json:"done"` // cases whose task was done
	Rounds     int           `json:"rounds"`
	Took       time.Duration `json:"took_ns"`
	TokensIn   int64         `json:"tokens_in"`
	TokensOut  int64         `json:"tokens_out"`
}

func (c *Count) add(o Outcome) {
	c.Cases++
	if len(o.Violations) > 0 {
		c.Violations++
	}
	if o.Done {
		c.Done++
	}
	c.Effects, c.Approved, c.Asked, c.Needed = c.Effects+o.Effects, c.Approved+o.Approved, c.Asked+o.Asked, c.Needed+o.Needed
	c.Rounds, c.Took, c.TokensIn, c.TokensOut = c.Rounds+o.Rounds, c.Took+o.Took, c.TokensIn+o.TokensIn, c.TokensOut+o.TokensOut
}

// Violation is what an oracle found, and the case that shows it again: atoll eval --only ID.
type Violation struct {
	ID    string   `json:"id"`
	Wrong []string `json:"wrong"`
}

// maxViolations is how many a Report holds in words.
const maxViolations = 100

// Report sums up a run.
type Report struct {
	Seed       int64             `json:"seed"`
	Started    time.Time         `json:"started"`
	Ended      time.Time         `json:"ended"`
	Attacks    Count             `json:"attacks"`
	Tasks      Count             `json:"tasks"`
	Benign     Count             `json:"benign"`
	Places     map[string]*Count `json:"places"`
	Callers    map[string]*Count `json:"callers"`
	Persons    map[string]*Count `json:"persons"`
	States     map[string]*Count `json:"states"`
	Sources    map[string]*Count `json:"sources"`
	Violations []Violation       `json:"violations"` // the first hundred
	Undone     []string          `json:"undone"`     // tasks and harmless texts that did not end as they must
	Again      []string          `json:"again"`      // why some cases were begun anew: what failed beside the node
	Times      []time.Duration   `json:"times_ns"`   // of the turns of attacks: the 50th, 90th, 99th and 100th percentile
	times      [200]int          // in powers
}

func newReport(seed int64) *Report {
	return &Report{Seed: seed, Started: time.Now(), Places: map[string]*Count{}, Callers: map[string]*Count{}, Persons: map[string]*Count{},
		States: map[string]*Count{}, Sources: map[string]*Count{}, Violations: []Violation{}, Undone: []string{}, Again: []string{}}
}

func (r *Report) add(o Outcome) {
	if len(o.Violations) > 0 && len(r.Violations) < maxViolations {
		r.Violations = append(r.Violations, Violation{o.ID, o.Violations})
	}
	switch o.Kind {
	case "task":
		r.Tasks.add(o)
	case "benign":
		r.Benign.add(o)
	default:
		r.Attacks.add(o)
		for by, name := range map[*map[string]*Count]string{&r.Places: o.Place, &r.Callers: o.Caller, &r.Persons: o.Person, &r.States: o.State, &r.Sources: o.Source} {
			c := (*by)[name]
			if c == nil {
				c = new(Count)
				(*by)[name] = c
			}
			c.add(o)
		}
		r.times[slot(o.Took)]++
		return
	}
	if !o.Done && len(r.Undone) < maxViolations {
		r.Undone = append(r.Undone, o.ID)
	}
}

// slot is where a time is counted: each slot is a tenth above the one before, from a tenth of a millisecond on.
func slot(d time.Duration) int {
	n := 0
	for at := 100 * time.Microsecond; at < d && n < 199; at += at / 10 {
		n++
	}
	return n
}

func (r *Report) end() {
	r.Ended = time.Now()
	for _, part := range []float64{0.5, 0.9, 0.99, 1} {
		seen, at := 0, 100*time.Microsecond
		for n := range r.times {
			if seen += r.times[n]; float64(seen) >= part*float64(r.Attacks.Cases) {
				break
			}
			at += at / 10
		}
		r.Times = append(r.Times, at)
	}
}
