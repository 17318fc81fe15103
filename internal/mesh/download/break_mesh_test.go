package download

import (
	"context"
	"crypto/sha256"
	"strings"
	"sync"
	"testing"

	"atoll/internal/fault"
)

// A name that is taken can be kept: the partial file's name fits in the system's 255 bytes too.
func TestLongestName(t *testing.T) {
	s, err := New(Config{Dir: t.TempDir(), Quota: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for n := 200; n <= 260; n++ {
		name := strings.Repeat("x", n)
		if CheckPath(name) != nil {
			continue
		}
		f, err := s.Begin(t.Context(), "peer-x", name, 0, sha256.Sum256(nil))
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if _, err := f.Finish(); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		_ = f.Close()
	}
}

// holding is a context whose first look blocks until it is let go.
type holding struct {
	context.Context
	once    sync.Once
	reached chan struct{}
	letGo   chan struct{}
}

func (h *holding) Err() error {
	h.once.Do(func() { close(h.reached); <-h.letGo })
	return nil
}

// What has arrived of a large file is hashed again for minutes: other downloads go on meanwhile, and it is begun once.
func TestOthersGoOnWhileOneIsHashed(t *testing.T) {
	s, _ := newStore(t, 1<<20)
	large, other := []byte("0123456789"), begin(t, s, "other", []byte("abcd"))
	f := begin(t, s, "large", large)
	if _, err := f.Write(large[:5]); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	h := &holding{Context: t.Context(), reached: make(chan struct{}), letGo: make(chan struct{})}
	var g sync.WaitGroup
	g.Go(func() {
		f, err := s.Begin(h, "garden", "large", int64(len(large)), sha256.Sum256(large))
		if err != nil || f.Offset() != 5 {
			t.Error(err)
			return
		}
		_ = f.Close()
	})
	<-h.reached
	if _, err := other.Write([]byte("abcd")); err != nil {
		t.Error(err)
	}
	if _, err := s.Begin(t.Context(), "garden", "large", int64(len(large)), sha256.Sum256(large)); !fault.Is(err, fault.Busy) {
		t.Error("begun twice:", err)
	}
	close(h.letGo)
	g.Wait()
	if s.reserved != 0 || len(s.open) != 1 { // other is whole, and not closed
		t.Errorf("%d bytes, %v", s.reserved, s.open)
	}
}
