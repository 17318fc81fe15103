package chat

import (
	"testing"
	"time"

	"atoll/internal/cli/term"
)

// C8, C12, F-A20: what decides at a prompt, and what does not.
func TestKeypad(t *testing.T) {
	type press struct {
		ms  int
		key term.Key
	}
	r := func(ms int, c rune) press { return press{ms, term.Key{Kind: term.Rune, Rune: c}} }
	k := func(ms int, kind term.Kind) press { return press{ms, term.Key{Kind: kind}} }
	more := func(p press) press { p.key.More = true; return p }
	for name, tt := range map[string]struct {
		presses []press
		want    choice // within ten seconds
	}{
		"nothing":                             {nil, noChoice},
		"a letter alone":                      {[]press{r(1500, 'y')}, 'y'},
		"a letter at the last inert moment":   {[]press{r(999, 'y')}, noChoice},
		"a letter as it opens":                {[]press{r(0, 'y')}, noChoice},
		"enter as it opens":                   {[]press{k(1, term.Enter)}, noChoice},
		"ctrl-c as it opens":                  {[]press{k(1, term.CtrlC)}, noChoice},
		"again after the inert time":          {[]press{r(300, 'y'), r(1600, 'y')}, 'y'},
		"yes, typed":                          {[]press{r(1500, 'y'), r(1600, 'e'), r(1700, 's')}, noChoice},
		"yes and enter, typed":                {[]press{r(1500, 'y'), r(1600, 'e'), r(1700, 's'), k(1800, term.Enter)}, noChoice},
		"typing on when it opens":             {[]press{r(900, 'a'), r(1050, 'n'), r(1200, 'y'), r(1350, ' ')}, noChoice},
		"typing on, ending in the letter":     {[]press{r(900, 'a'), r(1050, 'n'), r(1200, 'y')}, noChoice},
		"the letter and enter":                {[]press{r(1500, 'y'), k(1510, term.Enter)}, 'y'},
		"the letter and enter in one piece":   {[]press{more(r(1500, 'y')), k(1500, term.Enter)}, 'y'},
		"a paste without brackets":            {[]press{more(r(1500, 'y')), more(k(1500, term.Enter)), r(1500, 'x')}, noChoice},
		"a paste":                             {[]press{{1500, term.Key{Kind: term.Paste, Text: "y\n"}}}, noChoice},
		"enter alone declines":                {[]press{k(1500, term.Enter)}, enter},
		"escape declines":                     {[]press{k(1500, term.Esc)}, escaped},
		"ctrl-c declines, also while typing":  {[]press{r(1490, 'x'), k(1500, term.CtrlC)}, stopped},
		"a letter that means nothing":         {[]press{r(1500, 'q')}, noChoice},
		"p where it is not offered":           {[]press{r(1500, 'p')}, noChoice},
		"an arrow":                            {[]press{k(1500, term.Up)}, noChoice},
		"a key held down":                     {[]press{r(1500, 'y'), r(1530, 'y'), r(1560, 'y'), r(1590, 'y')}, noChoice},
		"a look-alike letter":                 {[]press{r(1500, 'у')}, noChoice}, // Cyrillic
		"a second press after a time decides": {[]press{r(1500, 'q'), r(2100, 'n')}, 'n'},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			p := keypad{timing: Timing{}.orDefault(), letters: "ynr", opened: start}
			got := noChoice
			next := 0
			for ms := 0; ms <= 10_000 && got == noChoice; ms++ {
				now := start.Add(time.Duration(ms) * time.Millisecond)
				for next < len(tt.presses) && tt.presses[next].ms == ms && got == noChoice {
					got = p.key(tt.presses[next].key, now)
					next++
				}
				if got == noChoice {
					got = p.tick(now)
				}
			}
			if got != tt.want {
				t.Errorf("decided %q, want %q", got, tt.want)
			}
		})
	}
}

func TestKeypadNextWakesTheLoop(t *testing.T) {
	start := time.Unix(1000, 0)
	p := keypad{timing: Timing{}.orDefault(), letters: "y", opened: start}
	if got := p.next(start); got != start.Add(time.Second) {
		t.Errorf("before keys count: %v", got)
	}
	now := start.Add(2 * time.Second)
	if got := p.next(now); !got.IsZero() {
		t.Errorf("with nothing to do: %v", got)
	}
	p.key(term.Key{Kind: term.Rune, Rune: 'y'}, now)
	if got := p.next(now); got != now.Add(300*time.Millisecond) {
		t.Errorf("with a letter held: %v", got)
	}
}
