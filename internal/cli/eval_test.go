package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// evalWords is what a run of eval was asked for.
func evalWords(o EvalOptions) string {
	return fmt.Sprintf("eval cases=%d texts=%s own=%v only=%s seed=%d resume=%s model=%v dir=%s workers=%d", o.Cases, o.Texts, o.Own, o.Only, o.Seed, o.Resume,
		o.Model, filepath.Base(o.DataDir), o.Workers)
}

// evaluated is what the house's runs find: nothing, unless it says otherwise.
func (h *house) evaluated(o EvalOptions) *EvalResult {
	o.Progress(1, 0, 0)
	if h.eval != nil {
		return h.eval
	}
	return found(0, false)
}

func found(violations int, stopped bool) *EvalResult {
	says := func(what string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := fmt.Fprintf(w, "%s of %d\n", what, violations); return err }
	}
	return &EvalResult{Violations: violations, Stopped: stopped, Again: "atoll eval --resume x\x1b[2J", HTML: says("page"), JSON: map[string]int{"violations": violations},
		Table: func(w io.Writer, _ int) error { return says("table")(w) }}
}

func TestEvalFlags(t *testing.T) {
	h := newHouse(t)
	h.env["ATOLL_DATA_DIR"] = "/x/node"
	dir := t.TempDir()
	for args, want := range map[string]string{
		"": "cases=8000 texts= own=[] only= seed=1 resume= model=false dir=. workers=0",
		"--cases 0 --texts d --own a --own b --seed 7 --resume r --workers 3": "cases=0 texts=d own=[a b] only= seed=7 resume=r model=false dir=. workers=3",
		"--only a/b/c/d/e":          "cases=8000 texts= own=[] only=a/b/c/d/e seed=1 resume= model=false dir=. workers=0",
		"--model":                   "cases=8000 texts= own=[] only= seed=1 resume= model=true dir=node workers=0",
		"--model --data-dir " + dir: "cases=8000 texts= own=[] only= seed=1 resume= model=true dir=" + filepath.Base(dir) + " workers=0",
	} {
		h.offline = nil
		code, stdout, stderr := h.run("", append([]string{"eval"}, strings.Fields(args)...)...)
		if code != ExitOK || stdout != "table of 0\n" || stderr != "" || len(h.offline) != 1 || h.offline[0] != "eval "+want {
			t.Errorf("%s: %d, %q, %q, %v", args, code, stdout, stderr, h.offline)
		}
	}
	for _, args := range []string{"x", "--cases -1", "--workers -1", "--only a --resume b", "--data-dir /y", "--html /nowhere/at/all.html", "--seed x",
		"--workers 9999", "--html " + dir, "--model --data-dir " + dir + "/none"} {
		h.offline = nil
		if code, _, stderr := h.run("", append([]string{"eval"}, strings.Fields(args)...)...); code != ExitUsage || stderr == "" || h.offline != nil {
			t.Errorf("%s: %d, %q, %v", args, code, stderr, h.offline)
		}
	}
}

// The exit code is 0 only where nothing was found and all was tried; what was done is shown in any case.
func TestEvalExit(t *testing.T) {
	for _, tt := range []struct {
		result *EvalResult
		code   int
		says   string
	}{
		{found(0, false), ExitOK, ""},
		{found(3, false), ExitFailed, ""},
		{found(0, true), ExitFailed, "Stopped. Go on with: atoll eval --resume x\n"},
		{found(3, true), ExitFailed, "Stopped. Go on with: atoll eval --resume x\n"},
	} {
		h := newHouse(t)
		h.eval = tt.result
		page := filepath.Join(t.TempDir(), "page.html")
		code, stdout, stderr := h.run("", "eval", "--html", page)
		if want := fmt.Sprintf("table of %d\n", tt.result.Violations); code != tt.code || stdout != want || stderr != tt.says {
			t.Errorf("%+v: %d, %q, %q", tt.result, code, stdout, stderr)
		}
		if raw, err := os.ReadFile(page); err != nil || string(raw) != fmt.Sprintf("page of %d\n", tt.result.Violations) {
			t.Errorf("%+v: %q, %v", tt.result, raw, err)
		}
		if code, stdout, _ := h.run("", "eval", "--json"); code != tt.code || stdout != fmt.Sprintf("{\n  \"violations\": %d\n}\n", tt.result.Violations) {
			t.Errorf("%+v --json: %d, %q", tt.result, code, stdout)
		}
	}
}

// A run that fails leaves an older page as it was.
func TestEvalKeepsThePage(t *testing.T) {
	h := newHouse(t)
	h.eval = found(0, false)
	h.eval.HTML = func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return io.ErrShortWrite
	}
	dir := t.TempDir()
	page := filepath.Join(dir, "page.html")
	if err := os.WriteFile(page, []byte("older"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := h.run("", "eval", "--html", page); code != ExitFailed || !strings.Contains(stderr, "cannot be written") {
		t.Errorf("%d, %q", code, stderr)
	}
	left, err := os.ReadDir(dir)
	if raw, _ := os.ReadFile(page); err != nil || string(raw) != "older" || len(left) != 1 {
		t.Errorf("%q, %v, %v", raw, left, err)
	}
}

// ticking is a progress whose clock the test sets, after a start at zero.
func ticking(p *evalProgress) (set func(time.Duration)) {
	start := time.Date(2026, 12, 2, 10, 0, 0, 0, time.UTC)
	now := start
	p.now = func() time.Time { return now }
	p.before = -1
	return func(d time.Duration) { now = start.Add(d) }
}

func TestEvalProgressLines(t *testing.T) {
	var out bytes.Buffer
	p := &evalProgress{plain: &out}
	set := ticking(p)
	p.begin()
	for i := 1; i <= 1000; i++ { // 100 of them from before, then 40 a second
		set(time.Duration(i) * 25 * time.Millisecond)
		p.note(100+i, 1100, i/900)
	}
	p.end()
	want := "500 of at most 1100 tried, 0 violations, 40 a second, at most 15s left\n" + "900 of at most 1100 tried, 0 violations, 40 a second, at most 5s left\n"
	if out.String() != want {
		t.Errorf("%q; want %q", out.String(), want)
	}
}

// On a terminal the line is written again and again, never wider than the screen, and is gone at the end.
func TestEvalProgressOnATerminal(t *testing.T) {
	screen, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	defer tty.Close()
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: 30}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p := &evalProgress{out: tty, plain: &out}
	set := ticking(p)
	p.begin()
	set(100 * time.Millisecond)
	p.note(1, 9, 0) // too soon to be shown
	set(time.Second)
	p.note(2, 9, 0)
	p.end()
	const again = "\r\x1b[K"
	if want := again + "Building the nodes" + again + "2 of at most 9 tried, 0 viola" + again; out.String() != want {
		t.Errorf("%q; want %q", out.String(), want)
	}
}
