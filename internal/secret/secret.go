// Package secret holds a value that cannot be printed by accident. It stores nothing and encrypts nothing.
package secret

import "log/slog"

const mask = "***"

// String is a secret text. Every way of formatting, logging or marshalling it yields "***"; only Reveal gives the text.
type String struct{ text string }

// New wraps a text.
func New(text string) String { return String{text} }

// Reveal returns the text. Call it where the secret is used and nowhere else.
func (s String) Reveal() string { return s.text }

// Empty reports whether there is no secret.
func (s String) Empty() bool { return s.text == "" }

func (s String) String() string               { return mask }
func (s String) GoString() string             { return mask }
func (s String) LogValue() slog.Value         { return slog.StringValue(mask) }
func (s String) MarshalText() ([]byte, error) { return []byte(mask), nil }
