package sequence

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"
)

var (
	sequences = flag.Int("sequences", 300, "how many histories TestSequences draws")
	seed      = flag.Uint64("seed", 1, "of the first")
	workers   = flag.Int("workers", 1, "how many are played at a time")
)

// progress is after how many histories a long run says how far it is.
const progress = 10_000

// maxPlays is how many scripts a directory sees before a new one takes its place.
const maxPlays = 200

// stage plays scripts, each on a node that is as good as new. Its benches live in a bubble of time, so that five minutes take
// none and a step is over when nothing moves any more.
type stage struct {
	scripts chan Script
	errs    chan error
	done    sync.WaitGroup
}

// root is where benches keep their files: in memory, where there is such a place.
func root(t *testing.T) string {
	if dir, err := os.MkdirTemp("/dev/shm", "atoll-sequence"); err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		return dir
	}
	return t.TempDir()
}

// newStage starts a stage, which the test's end stops.
func newStage(t *testing.T, dir, template string) *stage {
	s := &stage{scripts: make(chan Script), errs: make(chan error)}
	s.done.Add(1)
	go func() {
		defer s.done.Done()
		synctest.Test(t, func(t *testing.T) { s.run(dir, template) })
	}()
	t.Cleanup(func() {
		close(s.scripts)
		s.done.Wait()
	})
	return s
}

func (s *stage) run(dir, template string) {
	ctx := context.Background()
	var b *bench
	plays := 0
	drop := func() {
		if b != nil {
			_ = b.close()
			_ = os.RemoveAll(b.top)
		}
		b, plays = nil, 0
	}
	defer drop()
	for script := range s.scripts {
		err := func() (err error) {
			if plays++; plays > maxPlays {
				drop()
			}
			if b == nil {
				if b, err = newBench(ctx, dir, template); err != nil {
					return err
				}
			}
			if err := b.fresh(ctx); err != nil {
				return err
			}
			return play(ctx, b, script)
		}()
		if err != nil {
			drop()
		}
		s.errs <- err
	}
}

// play hands a script to the stage. One that fails is tried on a new directory too: what fails only after others is said.
func (s *stage) play(script Script) error {
	s.scripts <- script
	err := <-s.errs
	if err == nil {
		return nil
	}
	s.scripts <- script
	if again := <-s.errs; again != nil {
		return again
	}
	return fmt.Errorf("only once or only after other scripts: %w", err)
}

func newStages(t *testing.T, n int) []*stage {
	dir := root(t)
	path, err := template(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []*stage
	for range n {
		out = append(out, newStage(t, dir, path))
	}
	return out
}

// Histories drawn by chance, the node beside the rules: G1, G4, T1, T2, T6–T8, T10–T14, A1–A5, C1–C5, C8–C12, U3, H1, H5, H7,
// M2, M3, and C2, C3, H1 after kill -9 at any write.
func TestSequences(t *testing.T) {
	stages := newStages(t, *workers)
	var turn sync.Mutex // rapid reads its flags where a check begins
	start := time.Now()
	var played atomic.Int64
	t.Run("draw", func(t *testing.T) {
		for i, s := range stages {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				if len(stages) > 1 {
					t.Parallel()
				}
				turn.Lock()
				held := true
				for name, value := range map[string]string{"rapid.checks": fmt.Sprint(*sequences / len(stages)), "rapid.seed": fmt.Sprint(*seed + uint64(i)*1_000_003),
					"rapid.nofailfile": "true", "rapid.shrinktime": "1ms"} {
					if err := flag.Set(name, value); err != nil {
						t.Fatal(err)
					}
				}
				rapid.Check(t, func(rt *rapid.T) {
					if held {
						held = false
						turn.Unlock()
					}
					script := draw(rt)
					if n := played.Add(1); n%progress == 0 {
						fmt.Fprintf(os.Stderr, "%d sequences, %.0f/s\n", n, float64(n)/time.Since(start).Seconds())
					}
					if err := s.play(script); err != nil {
						short, err := shrink(script, s.play)
						rt.Fatalf("%v\n%s", err, short)
					}
				})
			})
		}
	})
	took := time.Since(start)
	t.Logf("%d sequences in %s: %.0f/s", *sequences, took.Round(time.Millisecond), float64(*sequences)/took.Seconds())
}

// Scripts that once told a fault from the node, or that say a rule plainly.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	s := newStages(t, 1)[0]
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if err := s.play(Parse(string(f.Data))); err != nil {
				t.Errorf("%s, %s: %v", filepath.Base(file), f.Name, err)
			}
		}
	}
}

// A script from the environment, to try one by hand.
func TestOne(t *testing.T) {
	text := os.Getenv("ATOLL_SCRIPT")
	if text == "" {
		t.Skip("ATOLL_SCRIPT names no script; steps are divided by /")
	}
	if err := newStages(t, 1)[0].play(Parse(strings.ReplaceAll(text, "/", "\n"))); err != nil {
		t.Error(err)
	}
}
