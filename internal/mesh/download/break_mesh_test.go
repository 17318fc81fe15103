package download

import (
	"crypto/sha256"
	"strings"
	"testing"
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
