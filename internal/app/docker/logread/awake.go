package logread

import (
	"io"
	"time"
)

// Awake is a stream whose every sign of life puts a timer off.
type Awake struct {
	io.Reader
	Idle  *time.Timer
	After time.Duration
}

// Read implements io.Reader.
func (a Awake) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if n > 0 {
		a.Idle.Reset(a.After)
	}
	return n, err
}
