package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/creack/pty"
	"github.com/rogpeppe/go-internal/testscript"
)

// quietTime is how long nothing is drawn before a screen counts as quiet.
const quietTime = 600 * time.Millisecond

// ttyCmd runs an atoll command at a terminal: tty FILE ARGS. Each line of FILE is one step:
//
//	expect TEXT   waits for the text after what was expected before
//	send KEYS     types; KEYS is a quoted Go string
//	quiet         waits until nothing was drawn for a while
//	absent TEXT   the text has not come since what was expected last
//	never TEXT    the terminal was sent no such bytes, so far; TEXT is a quoted Go string
//	kill9         ends the node, as the command of that name does
//	end CODE      waits for the command's end with that exit code; the last line
//
// The rows as they stood in the end are the command's stdout.
func ttyCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: tty FILE ARGS")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(ts), args[1:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), environ(ts)
	master, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 60, Cols: 160})
	ts.Check(err)
	s := &screen{master: master, drawn: make(chan string)}
	go s.watch() // ends with the terminal, before the deferred drain
	defer func() {
		cancel()
		_ = cmd.Wait()
		_ = master.Close()
		for d := range s.drawn {
			s.raw += d
		}
		fmt.Fprint(ts.Stdout(), lines(s.raw))
	}()
	for n, line := range strings.Split(strings.TrimSpace(ts.ReadFile(args[0])), "\n") {
		if err := s.step(ts, cmd, line); err != nil {
			cancel()
			ts.Fatalf("%s:%d: %s: %v; the screen:\n%s", args[0], n+1, line, err, lines(s.raw))
		}
	}
}

// screen is the person's side of a terminal.
type screen struct {
	master *os.File
	drawn  chan string // closed when the terminal is gone
	raw    string
	read   int // how much of the plain text was expected already
}

func (s *screen) watch() {
	defer close(s.drawn)
	buf := make([]byte, 4096)
	for {
		n, err := s.master.Read(buf)
		if n > 0 {
			s.drawn <- string(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

var controls = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|\r")

// redrawn is what was on a row before it was drawn anew.
var redrawn = regexp.MustCompile(`(?m)^.*\r(?:\x1b\[2?K)+`)

// lines are the rows as they stood in the end.
func lines(raw string) string {
	return plain(redrawn.ReplaceAllString(strings.ReplaceAll(raw, "\r\n", "\n"), ""))
}

func plain(raw string) string { return controls.ReplaceAllString(raw, "") }

func (s *screen) step(ts *testscript.TestScript, cmd *exec.Cmd, line string) error {
	verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch verb {
	case "", "#":
		return nil
	case "expect":
		return s.expect(rest)
	case "send":
		keys, err := strconv.Unquote(rest)
		if err == nil {
			_, err = s.master.WriteString(keys)
		}
		return err
	case "quiet":
		return s.quiet()
	case "absent":
		if seen := plain(s.raw); strings.Contains(seen[min(s.read, len(seen)):], rest) {
			return errors.New("it came")
		}
		return nil
	case "never":
		text, err := strconv.Unquote(rest)
		if err == nil && strings.Contains(s.raw, text) {
			err = errors.New("it was drawn")
		}
		return err
	case "kill9":
		kill9Cmd(ts, false, nil)
		return nil
	case "end":
		return s.end(cmd, rest)
	}
	return errors.New("no such step")
}

func (s *screen) expect(text string) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		seen := plain(s.raw)
		if at := strings.Index(seen[min(s.read, len(seen)):], text); at >= 0 {
			s.read += at + len(text)
			return nil
		}
		select {
		case d, ok := <-s.drawn:
			if !ok {
				return errors.New("the command ended")
			}
			s.raw += d
		case <-late.C:
			return errors.New("it did not come")
		}
	}
}

func (s *screen) quiet() error {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		still := time.NewTimer(quietTime)
		select {
		case d, ok := <-s.drawn:
			still.Stop()
			if !ok {
				return errors.New("the command ended")
			}
			s.raw += d
		case <-still.C:
			return nil
		case <-late.C:
			still.Stop()
			return errors.New("it is never quiet")
		}
	}
}

func (s *screen) end(cmd *exec.Cmd, code string) error {
	want, err := strconv.Atoi(code)
	if err != nil {
		return err
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case d, ok := <-s.drawn:
			if ok {
				s.raw += d
				continue
			}
		case <-late.C:
			return errors.New("it does not end")
		}
		break
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != want {
		return fmt.Errorf("exit code %d", got)
	}
	return nil
}
