package term

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/creack/pty"

	"atoll/internal/fault"
)

func openTerminal(t *testing.T) (master *os.File, terminal *Terminal) {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no pseudo-terminal here: %v", err)
	}
	terminal, err = Open(tty, tty)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := terminal.Close(); err != nil {
			t.Error(err)
		}
		_ = tty.Close()
		_ = master.Close()
	})
	return master, terminal
}

func next(t *testing.T, terminal *Terminal) Key {
	t.Helper()
	select {
	case k := <-terminal.Keys():
		return k
	case <-time.After(20 * time.Second):
		t.Fatal("no key came")
		return Key{}
	}
}

// F-A20: after a Flush no key is fresh that was pressed before it, wherever it was on its way.
func TestFlushDropsWhatWasTypedAhead(t *testing.T) {
	master, terminal := openTerminal(t)
	for range 20 {
		if _, err := master.WriteString("yyy"); err != nil {
			t.Fatal(err)
		}
		if k := next(t, terminal); k.Rune != 'y' && k.Rune != 'n' { // one is taken, others are in the reader or the kernel
			t.Fatalf("%+v", k)
		}
		terminal.Flush()
		if _, err := master.WriteString("n"); err != nil {
			t.Fatal(err)
		}
		for {
			k := next(t, terminal)
			if !terminal.Fresh(k) {
				continue
			}
			if k.Rune != 'n' {
				t.Fatalf("%q typed before the flush is fresh", k.Rune)
			}
			break
		}
	}
}

func TestALoneEscapeIsAKey(t *testing.T) {
	master, terminal := openTerminal(t)
	if _, err := master.WriteString("\x1b"); err != nil {
		t.Fatal(err)
	}
	if k := next(t, terminal); k.Kind != Esc {
		t.Errorf("%+v", k)
	}
}

func TestReadLineCanBeLeft(t *testing.T) {
	master, terminal := openTerminal(t)
	for keys, want := range map[string]string{"ada\r": "ada", "ad\x7fda\r": "ada", "ada\x03": ""} {
		if _, err := master.WriteString(keys); err != nil {
			t.Fatal(err)
		}
		got, err := terminal.ReadLine(t.Context(), "Username: ", false)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", keys, got, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := terminal.ReadLine(ctx, "Username: ", true); !fault.Is(err, fault.Cancelled) {
		t.Errorf("%v", err)
	}
}

func TestReaderEndsWithItsContext(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	reader, err := NewReader(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 8)
	if n, err := reader.Read(buf); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	done := make(chan error, 1)
	go func() { // waited for by done
		_, err := reader.Read(buf)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
