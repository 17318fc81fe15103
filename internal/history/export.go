package history

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
)

// exportStep is how many turns an export holds in memory.
const exportStep = 100

// Export writes one whole conversation of the caller's own, as "json" or "markdown". Nothing is written before the
// conversation was found and the format is known. Errors: NotFound, InvalidParams, Unavailable, and w's own.
func (r *Room) Export(ctx context.Context, c caller.Caller, conversation, format string, w io.Writer) error {
	if format != "json" && format != "markdown" {
		return fault.New(fault.InvalidParams, `the format is "json" or "markdown"`).At("format").Doing("history")
	}
	t, err := r.History(ctx, c, conversation, Span{Limit: 1})
	if err != nil {
		return err
	}
	write := markdownTurn
	if format == "json" {
		write = jsonTurn
	}
	if err := exportHead(w, format, t.Conversation); err != nil {
		return err
	}
	for first := 1; first <= t.Turns; first += exportStep {
		end := min(first+exportStep, t.Turns+1)
		part, err := r.History(ctx, c, conversation, Span{Limit: end - first, Before: end})
		if err != nil {
			return err
		}
		for i := range part.Entries {
			if err := write(w, part.Entries[i], first == 1 && i == 0); err != nil {
				return err
			}
		}
	}
	if format == "json" {
		_, err = io.WriteString(w, "\n]}\n")
	}
	return err
}

func exportHead(w io.Writer, format string, c Conversation) error {
	if format == "json" {
		raw, err := json.Marshal(c)
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, strings.TrimSuffix(string(raw), "}")+`,"entries":[`)
		return err
	}
	_, err := io.WriteString(w, "# "+escapeMarkdown(c.Title)+"\n\nBegun "+c.Created.Format(time.RFC3339)+", last used "+
		c.Updated.Format(time.RFC3339)+".\n")
	return err
}

func jsonTurn(w io.Writer, v TurnView, first bool) error {
	raw, err := json.Marshal(v, jsontext.Multiline(false))
	if err != nil {
		return err
	}
	sep := ",\n"
	if first {
		sep = "\n"
	}
	_, err = io.WriteString(w, sep+string(raw))
	return err
}

func markdownTurn(w io.Writer, v TurnView, _ bool) error {
	var b strings.Builder
	b.WriteString("\n## " + v.At.Format(time.RFC3339) + "\n\n")
	quote(&b, v.Message)
	for _, block := range v.Blocks {
		if block.Kind == "text" {
			b.WriteString("\n" + strings.TrimSpace(block.Text) + "\n")
			continue
		}
		b.WriteString("\n- used `" + block.Tool + "` with " + code(block.Arguments) + "\n\n")
		fenced(&b, block.Result)
	}
	b.WriteString("\nDone: " + escapeMarkdown(done(v.Changes)) + ".")
	if v.Outcome != Done {
		b.WriteString(" The turn ended: " + string(v.Outcome) + ".")
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func quote(b *strings.Builder, s string) {
	for line := range strings.Lines(s) {
		b.WriteString("> " + strings.TrimRight(line, "\r\n") + "\n")
	}
}

// fenced writes a block whose fence is longer than any run of back-ticks in it.
func fenced(b *strings.Builder, s string) {
	fence := strings.Repeat("`", max(3, longestRun(s)+1))
	b.WriteString(fence + "\n" + strings.TrimRight(s, "\n") + "\n" + fence + "\n")
}

func code(s string) string {
	ticks := strings.Repeat("`", longestRun(s)+1)
	return ticks + " " + s + " " + ticks
}

func longestRun(s string) int {
	longest, run := 0, 0
	for i := range len(s) {
		if run++; s[i] != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}

func escapeMarkdown(s string) string {
	return strings.NewReplacer("\\", "\\\\", "`", "\\`", "*", "\\*", "_", "\\_", "<", "\\<", "[", "\\[", "#", "\\#", "\n", " ").Replace(s)
}
