package term

import (
	"context"

	"atoll/internal/fault"
)

// ReadLine asks for one line. Hidden lines are not shown. Ctrl-C, Ctrl-D and a hang-up are a refusal.
func (t *Terminal) ReadLine(ctx context.Context, prompt string, hidden bool) (string, error) {
	e := Editor{Hidden: hidden}
	draw := func() { _, _ = t.Write([]byte(e.Row(prompt, t.Width()))) }
	draw()
	defer func() { _, _ = t.Write([]byte("\n")) }()
	for {
		select {
		case <-ctx.Done():
			return "", fault.Wrap(ctx.Err(), fault.Cancelled, "stopped")
		case k := <-t.keys:
			if !t.Fresh(k) {
				continue
			}
			switch e.Key(k) {
			case Submitted:
				return e.Text(), nil
			case Interrupted, Closed:
				return "", fault.New(fault.Cancelled, "stopped; nothing was done")
			case Edited:
				draw()
			}
		}
	}
}
