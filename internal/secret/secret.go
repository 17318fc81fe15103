// Package secret holds a value that cannot be printed by accident. It stores nothing and encrypts nothing.
package secret

import (
	"fmt"
	"io"
	"log/slog"
)

const mask = "***"

// String is a secret text. Every way of formatting, logging or marshalling it yields "***"; only Reveal gives the text.
type String struct {
	_ [0]func() // two secrets are not compared with ==
	// text is behind a pointer: fmt calls no method on an unexported field of another struct, and prints an address.
	text *string
}

// New wraps a text.
func New(text string) String { return String{text: &text} }

// Reveal returns the text. Call it where the secret is used and nowhere else.
func (s String) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Empty reports whether there is no secret.
func (s String) Empty() bool { return s.Reveal() == "" }

// Format writes the mask for every verb, also for those that a text does not have.
func (s String) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, mask) }

func (s String) String() string               { return mask }
func (s String) LogValue() slog.Value         { return slog.StringValue(mask) }
func (s String) MarshalText() ([]byte, error) { return []byte(mask), nil }
