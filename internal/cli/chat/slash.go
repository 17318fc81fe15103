package chat

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"atoll/internal/cli/client"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
)

// slash is one of the chat's own commands.
type slash struct {
	name, usage, help string
	run               func(*Chat, context.Context, []string) error
}

func commands() []slash {
	return []slash{
		{"/help", "", "this list", (*Chat).slashHelp},
		{"/open", "CATEGORY [1h|forever]", "let the assistant use a category, for an hour unless you say otherwise", (*Chat).slashOpen},
		{"/close", "CATEGORY", "close a category again", (*Chat).slashClose},
		{"/grants", "", "which categories are open, and until when", (*Chat).slashGrants},
		{"/mode", "[off|read-only|confirm]", "show or set what the assistant may do at all", (*Chat).slashMode},
		{"/tools", "", "what the assistant can do now", (*Chat).slashTools},
		{"/new", "", "begin a new conversation", (*Chat).slashNew},
		{"/history", "", "what was said in this conversation", (*Chat).slashHistory},
		{"/undo", "", "take the last turn out of the conversation (not out of the world)", (*Chat).slashUndo},
		{"/ask", "PEER QUESTION", "ask another node's assistant; it answers in words of its own, and yours sees none of it", (*Chat).slashAsk},
		{"/notices", "", "what the node wants you to know", (*Chat).slashNotices},
		{"/quit", "", "leave; so does Ctrl-D", (*Chat).slashQuit},
	}
}

// command runs one of the chat's own commands. What it cannot do it says; only leaving and a lost session are errors.
func (c *Chat) command(ctx context.Context, line string) error {
	fields := strings.Fields(line)
	i := slices.IndexFunc(commands(), func(s slash) bool { return s.name == fields[0] })
	if i < 0 {
		c.host("There is no command " + term.Clean(fields[0]) + "; /help lists them. It was not sent.")
		return nil
	}
	err := commands()[i].run(c, ctx, fields[1:])
	if err == nil || errors.Is(err, errLeave) || ctx.Err() != nil {
		return err
	}
	c.host("Not done: " + words(err) + ".")
	if mustLeave(err) {
		return err
	}
	return nil
}

func (c *Chat) slashHelp(context.Context, []string) error {
	var lines []string
	for _, s := range commands() {
		lines = append(lines, s.name+strings.Repeat(" ", 10-len(s.name))+strings.TrimSpace(s.usage+"  "+s.help))
	}
	c.host(append(lines, "Anything else is said to the assistant. Ctrl-C stops a running answer.")...)
	return nil
}

func (c *Chat) slashQuit(context.Context, []string) error { return errLeave }

func usage(words string) error { return fault.New(fault.InvalidParams, "write it as %s", words) }

func (c *Chat) slashOpen(ctx context.Context, args []string) error {
	d := offerTime
	switch {
	case len(args) == 2 && args[1] == "forever":
		d = 0
	case len(args) == 2:
		var err error
		if d, err = time.ParseDuration(args[1]); err != nil || d <= 0 {
			return usage("/open CATEGORY 1h, or 30m, or forever")
		}
	case len(args) != 1:
		return usage("/open CATEGORY [1h|forever]")
	}
	return c.setGrant(ctx, args[0], true, d)
}

func (c *Chat) slashClose(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return usage("/close CATEGORY")
	}
	return c.setGrant(ctx, args[0], false, 0)
}

func (c *Chat) slashGrants(ctx context.Context, _ []string) error {
	var r struct {
		Grants map[string]client.Grant `json:"grants"`
	}
	if err := c.cfg.Client.Call(ctx, "assistant.grants-get", nil, &r); err != nil {
		return err
	}
	var lines []string
	for name, g := range r.Grants {
		state := "closed"
		switch {
		case g.Granted && g.ExpiresAt.IsZero():
			state = "open"
		case g.Granted:
			state = "open until " + g.ExpiresAt.Local().Format("2 Jan 15:04")
		}
		lines = append(lines, term.Clean(name)+": "+state)
	}
	slices.Sort(lines)
	c.host(lines...)
	return nil
}

func (c *Chat) slashMode(ctx context.Context, args []string) error {
	var r struct {
		Mode string `json:"mode"`
	}
	var err error
	switch len(args) {
	case 0:
		err = c.cfg.Client.Call(ctx, "assistant.mode-get", nil, &r)
	case 1:
		err = c.cfg.Client.Call(ctx, "assistant.mode-set", map[string]string{"mode": args[0]}, &r)
	default:
		return usage("/mode [off|read-only|confirm]")
	}
	if err == nil {
		c.host("The assistant's mode is " + term.Clean(r.Mode) + ".")
	}
	return err
}

func (c *Chat) slashTools(ctx context.Context, _ []string) error {
	var r struct {
		Tools []struct {
			Tool        string `json:"tool"`
			Category    string `json:"category"`
			Description string `json:"description"`
			Destructive bool   `json:"destructive"`
			Offered     bool   `json:"offered"`
		} `json:"tools"`
	}
	if err := c.cfg.Client.Call(ctx, "assistant.list-tools", nil, &r); err != nil {
		return err
	}
	var lines []string
	for _, t := range r.Tools {
		line := term.Clean(t.Tool) + " (" + term.Clean(t.Category) + "): " + term.Clean(t.Description)
		if !t.Offered {
			line += " Closed now."
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		lines = append(lines, "No category is open, so the assistant can use no tool. /open opens one.")
	}
	c.host(lines...)
	return nil
}

func (c *Chat) slashNew(context.Context, []string) error {
	c.conversation = ""
	c.host("A new conversation begins with your next message.")
	return nil
}

func (c *Chat) slashUndo(ctx context.Context, _ []string) error {
	if c.conversation == "" {
		return fault.New(fault.NotFound, "nothing was said yet in this conversation")
	}
	var u client.Undone
	if err := c.cfg.Client.Call(ctx, "assistant.undo", map[string]string{"conversation": c.conversation}, &u); err != nil {
		return err
	}
	c.host("The last turn is out of the conversation. What it did on the node stays done.")
	for _, ch := range u.Changes {
		c.host(changeLine(ch))
	}
	return nil
}

func (c *Chat) slashHistory(ctx context.Context, _ []string) error {
	if c.conversation == "" {
		return fault.New(fault.NotFound, "nothing was said yet in this conversation")
	}
	var h client.History
	if err := c.cfg.Client.Call(ctx, "assistant.history", map[string]string{"conversation": c.conversation}, &h); err != nil {
		return err
	}
	screen := c.cfg.Text
	if screen == nil {
		screen = c.cfg.Chrome
	}
	ShowHistory(screen, h)
	return nil
}

// ShowHistory writes a conversation, every part of it marked with who said it.
func ShowHistory(s *term.Screen, h client.History) {
	if h.Earlier {
		s.Host("There is more before this; `atoll history export` has all of it.")
	}
	for _, e := range h.Entries {
		s.Host("You:")
		s.Other(e.Message)
		for _, b := range e.Blocks {
			if b.Kind == "text" {
				s.Host("The assistant:")
				s.Other(b.Text)
				continue
			}
			s.Host(callLine(b))
		}
		s.EndOther()
		for _, ch := range e.Changes {
			s.Host(changeLine(ch))
		}
		if e.Outcome != "" && e.Outcome != "done" {
			s.Host(strings.TrimSuffix("This turn was not finished ("+term.Clean(e.Outcome)+"): "+codeWords(e.Code), ": "))
		}
	}
	if len(h.Entries) == 0 {
		s.Host("Nothing was said yet.")
	}
}

// callLine is one call of the model in a conversation.
func callLine(b client.HistoryBlock) string {
	line := toolName(b.Tool, "")
	switch {
	case b.Private:
		line += " (what was asked and found is not kept)"
	case b.Arguments != "" && b.Arguments != "{}":
		line += " " + term.Clean(b.Arguments)
	}
	if b.Error {
		line += ", without success"
	}
	return line
}

// slashAsk asks a peer's assistant. The answer is another node's text, and stays out of the conversation.
func (c *Chat) slashAsk(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return usage("/ask PEER QUESTION")
	}
	var r struct {
		Peer      string `json:"peer"`
		Text      string `json:"text"`
		Truncated bool   `json:"truncated"`
	}
	err := c.cfg.Client.Stream(ctx, "mesh.ask", map[string]string{"peer": args[0], "question": strings.Join(args[1:], " ")}, &r, func(client.Frame) {})
	if err != nil {
		return err
	}
	screen := c.cfg.Text
	if screen == nil {
		screen = c.cfg.Chrome
	}
	screen.Host(term.Clean(r.Peer) + " says (another node's words):")
	screen.Other(r.Text)
	screen.EndOther()
	if r.Truncated {
		screen.Host("The answer was longer; the rest was left out.")
	}
	return nil
}

func (c *Chat) slashNotices(ctx context.Context, _ []string) error {
	var r struct {
		Notices []client.Notice `json:"notices"`
	}
	if err := c.cfg.Client.Call(ctx, "notices.list", nil, &r); err != nil {
		return err
	}
	var lines []string
	for _, n := range r.Notices {
		lines = append(lines, noticeLine(n))
	}
	if len(lines) == 0 {
		lines = append(lines, "No notices.")
	}
	c.host(lines...)
	return nil
}

func noticeLine(n client.Notice) string {
	line := "[" + term.Clean(n.Kind) + ", " + term.Clean(n.Severity) + "] " + term.Clean(n.What)
	if n.Do != "" {
		line += " — " + term.Clean(n.Do)
	}
	if n.Count > 1 {
		line += " (" + plural(int(n.Count), "time", "times") + ")"
	}
	return line
}
