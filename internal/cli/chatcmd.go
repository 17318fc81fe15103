package cli

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"atoll/internal/cli/chat"
	"atoll/internal/cli/client"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
)

func (a *app) chatCommand() *cobra.Command {
	var message, conversation string
	cmd := a.leaf("chat", "Talk to the node's assistant", "atoll chat\natoll chat -m \"is the sample app running?\"\natoll chat --conversation ID", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			if message != "" {
				return a.say(ctx, c, conversation, message)
			}
			if a.json {
				return usage("with --json, give the message with -m")
			}
			return a.talk(ctx, c, conversation, []string{"/help lists the chat's commands. Ctrl-D leaves."})
		})
	cmd.Long = `Talk to the node's assistant, without -m until you leave.

What changes something is asked first, in a prompt of the terminal's own. Where standard input or
output is no terminal nobody can be asked, and the answer is no: there is no option to approve ahead.
With -m the exit code is 3 if a tool was refused or declined and did not succeed after that.`
	cmd.Flags().StringVarP(&message, "message", "m", "", "say this, print the answer and end")
	cmd.Flags().StringVar(&conversation, "conversation", "", "go on with this conversation")
	return cmd
}

// screens are where a chat reads and writes.
type screens struct {
	cfg      chat.Config
	terminal *term.Terminal
	reader   *term.Reader
}

// open finds out who can be asked, and where. Both standard input and an output must be a terminal; with JSON on
// standard output, or with standard output elsewhere, it is standard error.
func (a *app) open(ctx context.Context, c *client.Client, conversation string) (*screens, error) {
	s := &screens{cfg: chat.Config{Client: c, Conversation: conversation, Lines: a.Stdin}}
	in, out, err := term.File(a.Stdin), term.File(a.Stdout), error(nil)
	shared := out != nil && !a.json
	if !shared {
		out = term.File(a.Stderr)
	}
	if in != nil && out != nil {
		if s.terminal, err = term.Open(in, out); err != nil {
			return nil, fault.Wrap(err, fault.Failed, "the terminal cannot be used")
		}
		s.cfg.Terminal = s.terminal
		s.cfg.Chrome = term.NewScreen(s.terminal, s.terminal.Width)
	}
	switch {
	case s.terminal != nil && shared:
		s.cfg.Text = s.cfg.Chrome
	case a.json:
		if s.cfg.Chrome == nil {
			s.cfg.Chrome = term.NewScreen(io.Discard, nil)
		}
	default:
		s.cfg.Text = term.NewScreen(a.Stdout, nil)
		if s.cfg.Chrome == nil {
			s.cfg.Chrome = s.cfg.Text
		}
	}
	if f, ok := a.Stdin.(*os.File); ok && s.terminal == nil {
		if s.reader, err = term.NewReader(ctx, f); err != nil {
			return nil, fault.Wrap(err, fault.Failed, "standard input cannot be read")
		}
		s.cfg.Lines = s.reader
	}
	return s, nil
}

func (s *screens) close() error {
	var err error
	if s.terminal != nil {
		err = s.terminal.Close()
	}
	if s.reader != nil {
		err = errors.Join(err, s.reader.Close())
	}
	return err
}

// talk chats until the person leaves.
func (a *app) talk(ctx context.Context, c *client.Client, conversation string, greeting []string) (err error) {
	s, err := a.open(ctx, c, conversation)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	talk, err := chat.New(s.cfg)
	if err != nil {
		return err
	}
	s.cfg.Chrome.Host(greeting...)
	return talk.Run(ctx)
}

// say says one message.
func (a *app) say(ctx context.Context, c *client.Client, conversation, message string) error {
	s, err := a.open(ctx, c, conversation)
	if err != nil {
		return err
	}
	talk, err := chat.New(s.cfg)
	if err != nil {
		return errors.Join(err, s.close())
	}
	answer, err := talk.Once(ctx, message)
	if err = errors.Join(err, s.close()); err != nil {
		return err
	}
	if a.json {
		if err := a.printJSON(answer); err != nil {
			return err
		}
	}
	if refused(answer.Tools) {
		return silent(ExitRefused)
	}
	return nil
}

// refused reports whether a call was refused and its tool did not succeed later in the turn. What the model merely wrote
// wrongly is no refusal.
func refused(calls []client.ToolCall) bool {
	open := map[string]bool{}
	for _, t := range calls {
		switch {
		case t.Outcome == "refused" && t.Code != fault.UnknownTool && t.Code != fault.InvalidArgs:
			open[t.Tool] = true
		case t.Outcome == "done":
			delete(open, t.Tool)
		}
	}
	return len(open) > 0
}
