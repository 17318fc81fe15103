package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"atoll/internal/folder"
)

// SampleName is the name of the built-in app, and SampleArg the hidden first argument by which the program becomes it:
// main must call Sample for it with the arguments after that.
const (
	SampleName = "sample"
	SampleArg  = "__sample"
)

const (
	sampleRoom = 64                    // entries that the sample's cache holds
	samplePace = 30 * time.Millisecond // for one entry, so that the first run takes two seconds
)

// WriteSample gives a data directory the sample app, once: an owner who takes the definition away does not get it back.
// exe is this program's path; where a definition written earlier names a program that is no longer there (go run makes
// a new one each time), it is brought up to date. runAs is its user, empty where the node does not run as root.
func WriteSample(dir, exe, runAs string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	apps, run, cache := filepath.Join(dir, "apps"), filepath.Join(dir, "run"), filepath.Join(dir, "app-data", SampleName)
	path, written := filepath.Join(apps, SampleName+".yaml"), filepath.Join(run, SampleName+".written")
	if _, err := os.Lstat(written); err == nil {
		if !outdated(path) {
			return nil
		}
	} else if _, err := os.Lstat(path); err == nil {
		return nil // somebody else's sample
	}
	for _, d := range []string{apps, run, cache} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	if err := give(cache, runAs); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("# The built-in sample app. It ends once, with a reason in its log, so that there is something to ask about.\n")
	fmt.Fprintf(&b, "command: [%s, %s, %s]\n", quote(exe), quote(SampleArg), quote(cache))
	b.WriteString("restart: never\nautostart: true\n")
	if runAs != "" {
		fmt.Fprintf(&b, "user: %s\n", quote(runAs))
	}
	if _, problems := parse([]byte(b.String())); len(problems) > 0 {
		return errors.New("process: the sample's definition: " + problems[0])
	}
	if err := renameio.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		return err
	}
	return renameio.WriteFile(written, nil, 0o600)
}

// quote writes a YAML text in single quotes.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// give makes the sample's folder its user's own.
func give(path, name string) error {
	if name == "" {
		return nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	return os.Chown(path, uid, gid)
}

// outdated reports whether the definition is the sample's own and names a program that is gone.
func outdated(path string) bool {
	data, err := folder.ReadSmall(path, maxDefinitionBytes)
	if err != nil {
		return false
	}
	def, _ := parse(data)
	if def == nil || !slices.Contains(def.Command, SampleArg) {
		return false
	}
	_, err = os.Stat(def.Command[0])
	return errors.Is(err, os.ErrNotExist)
}

// Sample is the app itself. Its one argument is the folder of its cache, which it fills once until it has no more room:
// then it ends with code 3 and says why. Every later run clears the cache and goes on until SIGTERM.
func Sample(args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "sample: the folder of the cache is needed")
		return 2
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	return runSample(ctx, filepath.Join(args[0], "cache"), samplePace, stdout, stderr)
}

func runSample(ctx context.Context, cache string, pace time.Duration, stdout, stderr io.Writer) int {
	fmt.Fprintln(stdout, "sample: starting")
	left, _ := os.ReadFile(cache) // none, or nothing in it, before the first run has come to its end
	first := len(left) == 0
	if !first {
		fmt.Fprintln(stdout, "sample: clearing the cache that the last run left")
		left = []byte("cleared\n")
	}
	entries := 0
	if err := os.WriteFile(cache, left, 0o600); err != nil {
		fmt.Fprintln(stderr, "error: the cache cannot be written:", cause(err))
		return 1
	}
	fmt.Fprintln(stdout, "sample: ready")
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			fmt.Fprintln(stdout, "sample: asked to stop; stopped")
			return 0
		case <-tick.C:
		}
		switch entries++; {
		case entries%(sampleRoom/4) == 0 && entries < sampleRoom:
			fmt.Fprintf(stdout, "sample: the cache is %d%% full\n", entries*100/sampleRoom)
		case entries == sampleRoom && first:
			_ = os.WriteFile(cache, []byte("full\n"), 0o600)
			fmt.Fprintln(stdout, "warning: the cache is 100% full")
			fmt.Fprintf(stderr, "error: the cache is full (%d of %d entries); giving up. The next start clears it.\n", entries, sampleRoom)
			return 3
		case entries == sampleRoom:
			fmt.Fprintln(stdout, "sample: the cache is full; old entries make room from now on")
			tick.Stop()
		}
	}
}
