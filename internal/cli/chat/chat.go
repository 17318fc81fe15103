// Package chat is the conversation in a terminal: what is said, shown, and asked of the person. It is trusted chrome: no
// text of a model or of a third party can draw what the host draws, and nothing typed as chat decides anything (C12).
package chat

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"atoll/internal/cli/client"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
)

// maxMessage bounds one message in bytes (SPEC section 3).
const maxMessage = 32 << 10

// Timing is how long a prompt waits before and after a key. Zero values mean the defaults.
type Timing struct {
	Inert  time.Duration // all keys are ignored for so long after a prompt opened (C8); 1 s
	Quiet  time.Duration // no key decides unless none was pressed for so long before; 500 ms
	Settle time.Duration // a letter decides if no other key follows for so long; 300 ms
}

func (t Timing) orDefault() Timing {
	pick := func(d, def time.Duration) time.Duration {
		if d <= 0 {
			return def
		}
		return d
	}
	return Timing{Inert: pick(t.Inert, time.Second), Quiet: pick(t.Quiet, 500*time.Millisecond), Settle: pick(t.Settle, 300*time.Millisecond)}
}

// Config is what a Chat needs.
type Config struct {
	Client   *client.Client
	Terminal *term.Terminal // the person who can be asked; nil: nobody, so nothing is ever asked (C10)
	Text     *term.Screen   // the answers; nil: they are not shown
	Chrome   *term.Screen   // the host's lines and prompts
	Lines    io.Reader      // the messages of Run where there is no Terminal
	// Conversation to go on with; empty begins a new one.
	Conversation string
	Timing       Timing
}

// Chat is one conversation. Its methods are for one goroutine.
type Chat struct {
	cfg          Config
	conversation string
	editor       term.Editor
	ahead        []term.Key // typed while a turn ran
	listener     *listener
	asked        map[string]bool // nonces that were shown or have ended
	notices      map[string]bool // unread ones by id; true once told
	closed       bool            // the terminal is gone
	talking      bool            // more messages can follow: Run, not Once
}

// errLeave ends the chat at the person's wish.
var errLeave = errors.New("leave")

// New makes a Chat.
func New(cfg Config) (*Chat, error) {
	if cfg.Client == nil || cfg.Chrome == nil {
		return nil, errors.New("chat: a client and a screen are needed")
	}
	cfg.Timing = cfg.Timing.orDefault()
	return &Chat{cfg: cfg, conversation: cfg.Conversation, asked: map[string]bool{}, notices: map[string]bool{}}, nil
}

// Conversation is the conversation's identifier, once there is one.
func (c *Chat) Conversation() string { return c.conversation }

// Once says one message and returns the answer. Questions are put to the person if there is a Terminal.
func (c *Chat) Once(ctx context.Context, message string) (client.Answer, error) {
	defer c.listen(ctx)()
	answer, err := c.say(ctx, message)
	if errors.Is(err, errLeave) {
		err = fault.New(fault.Cancelled, "left; the turn was stopped")
	}
	return answer, err
}

// Run talks until the person leaves or the input ends.
func (c *Chat) Run(ctx context.Context) error {
	c.talking = true
	defer c.listen(ctx)()
	if c.cfg.Terminal == nil {
		return c.runLines(ctx)
	}
	for {
		message, command, err := c.readMessage(ctx)
		if err != nil {
			return c.left(err)
		}
		if command {
			err = c.command(ctx, message)
		} else {
			_, err = c.say(ctx, message)
		}
		if errors.Is(err, errLeave) || ctx.Err() != nil || c.closed {
			return c.left(err)
		}
		if err != nil {
			if mustLeave(err) {
				return err
			}
			c.report(err)
		}
	}
}

// mustLeave reports whether the chat cannot go on after an error.
func mustLeave(err error) bool { return fault.Is(err, fault.Unauthenticated) }

func (c *Chat) left(err error) error {
	if errors.Is(err, errLeave) || errors.Is(err, context.Canceled) || fault.Is(err, fault.Cancelled) {
		return nil
	}
	return err
}

// runLines takes each line as a message: there is no terminal, so nothing is asked.
func (c *Chat) runLines(ctx context.Context) error {
	lines := bufio.NewScanner(c.cfg.Lines)
	lines.Buffer(make([]byte, 4096), maxMessage+1)
	for lines.Scan() {
		message := strings.TrimSpace(lines.Text())
		if message == "" {
			continue
		}
		var err error
		if strings.HasPrefix(message, "/") {
			err = c.command(ctx, message)
		} else {
			_, err = c.say(ctx, message)
		}
		if errors.Is(err, errLeave) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	err := lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return fault.New(fault.TooLarge, "a message is longer than %d KiB", maxMessage>>10).At("message")
	case errors.Is(err, context.Canceled):
		return nil
	case err != nil:
		return fault.Wrap(err, fault.Failed, "the input cannot be read")
	}
	return nil
}

// listen opens the stream of events where somebody can be asked, before anything is said (C10). The returned function
// ends it.
func (c *Chat) listen(ctx context.Context) func() {
	if c.cfg.Terminal == nil {
		return func() {}
	}
	c.listener = startListener(ctx, c.cfg.Client)
	return c.listener.close
}

// keys is where keys come from; nil, which never delivers, without a Terminal.
func (c *Chat) keys() <-chan term.Key {
	if c.cfg.Terminal == nil {
		return nil
	}
	return c.cfg.Terminal.Keys()
}

// nextKey is the oldest key that was typed ahead.
func (c *Chat) nextKey() (term.Key, bool) {
	if len(c.ahead) == 0 {
		return term.Key{}, false
	}
	k := c.ahead[0]
	c.ahead = c.ahead[1:]
	return k, true
}

// maxAhead bounds the keys kept for the next message.
const maxAhead = 4096

func (c *Chat) typeAhead(keys ...term.Key) {
	for _, k := range keys {
		if len(c.ahead) < maxAhead {
			c.ahead = append(c.ahead, k)
		}
	}
}

// flush forgets what was typed ahead, here and in the terminal.
func (c *Chat) flush() {
	c.ahead = nil
	c.cfg.Terminal.Flush()
}

// drawRow draws over the row of the cursor.
func (c *Chat) drawRow(row string) { _, _ = c.cfg.Terminal.Write([]byte(row)) }

const promptMark = "› "

// readMessage edits the next message. command is true if it is one of the chat's own commands: one line that begins
// with a slash and was typed, not pasted.
func (c *Chat) readMessage(ctx context.Context) (message string, command bool, err error) {
	interrupted := false
	c.tellNotices()
	draw := func() { c.drawRow(c.editor.Row(promptMark, c.cfg.Terminal.Width())) }
	draw()
	for {
		k, ok := c.nextKey()
		if !ok {
			select {
			case <-ctx.Done():
				c.drawRow(term.ClearRow)
				return "", false, ctx.Err()
			case ev := <-c.listener.events:
				c.onIdleEvent(ev)
				continue
			case k = <-c.keys():
				if !c.cfg.Terminal.Fresh(k) {
					continue
				}
			}
		}
		switch c.editor.Key(k) {
		case term.Submitted:
			if message, command, ok = c.submit(); ok {
				return message, command, nil
			}
		case term.Interrupted:
			if interrupted || c.editor.Text() == "" && c.lastWasInterrupt(&interrupted) {
				c.drawRow(term.ClearRow)
				return "", false, errLeave
			}
			c.editor.Clear()
		case term.Closed:
			c.closed = true
			c.drawRow(term.ClearRow)
			return "", false, errLeave
		default:
			interrupted = false
		}
		draw()
	}
}

// lastWasInterrupt tells how to leave the first time Ctrl-C is pressed on an empty line.
func (c *Chat) lastWasInterrupt(interrupted *bool) bool {
	c.drawRow(term.ClearRow)
	c.cfg.Chrome.Host("Ctrl-C again leaves the chat; so do Ctrl-D and /quit.")
	*interrupted = true
	return false
}

// submit takes the edited line and shows it in full.
func (c *Chat) submit() (message string, command, ok bool) {
	typed := c.editor.Typed()
	if len(c.editor.Text()) > maxMessage {
		c.drawRow(term.ClearRow)
		c.host("That message is longer than 32 KiB and was not sent — shorten it.")
		return "", false, false
	}
	text := c.editor.Take()
	message = strings.TrimSpace(text)
	if message == "" {
		return "", false, false
	}
	c.drawRow(term.ClearRow)
	c.cfg.Chrome.Person(message)
	return message, typed && strings.HasPrefix(text, "/") && !strings.Contains(message, "\n"), true
}

// host writes the host's own lines.
func (c *Chat) host(lines ...string) { c.cfg.Chrome.Host(lines...) }
