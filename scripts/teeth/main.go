// Command teeth seeds faults into the real code, one at a time and never in the tree, and runs the tests that must find
// them. It prints which test found which fault, and fails where one was not found: then a test is missing.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	root := flag.String("root", ".", "the module's directory")
	list := flag.String("faults", filepath.Join("scripts", "teeth", "faults"), "the directory of the faults' lists, from the root")
	only := flag.String("only", "", "only the faults whose name matches this expression whole")
	asJSON := flag.Bool("json", false, "print the outcome as JSON")
	parallel := flag.Int("p", 2, "faults tried at once")
	limit := flag.Duration("timeout", 2*time.Minute, "of the tests of one fault, building apart")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	held, err := teeth(ctx, setup{root: *root, list: *list, only: *only, json: *asJSON, parallel: *parallel, limit: *limit})
	if err != nil {
		fmt.Fprintln(os.Stderr, "teeth:", err)
		os.Exit(2)
	}
	if !held {
		os.Exit(1)
	}
}

type setup struct {
	root, list, only string
	json             bool
	parallel         int
	limit            time.Duration
}

// teeth tries the faults and prints what came of them; held is whether every one was found.
func teeth(ctx context.Context, s setup) (held bool, err error) {
	faults, err := readAll(filepath.Join(s.root, s.list))
	if err != nil {
		return false, err
	}
	if s.only != "" {
		if faults, err = pick(faults, s.only); err != nil {
			return false, err
		}
	}
	r := runner{root: s.root, limit: s.limit, parallel: s.parallel, progress: os.Stderr}
	begin := time.Now()
	outcomes, err := r.all(ctx, faults)
	if err != nil {
		return false, err
	}
	if s.json {
		return allFound(outcomes), writeJSON(os.Stdout, outcomes)
	}
	return allFound(outcomes), writeTable(os.Stdout, outcomes, time.Since(begin))
}

func pick(faults []fault, only string) ([]fault, error) {
	want, err := regexp.Compile("^(" + only + ")$")
	if err != nil {
		return nil, err
	}
	var out []fault
	for _, f := range faults {
		if want.MatchString(f.Name) {
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no fault is called %q", only)
	}
	return out, nil
}
