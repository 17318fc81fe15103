package tiny

import (
	"os"
	"testing"
)

func TestOpens(t *testing.T) {
	for key, want := range map[string]bool{"right": true, "wrong": false, "": false} {
		t.Run(key, func(t *testing.T) {
			if Opens(key) != want {
				t.Errorf("%q: %v", key, !want)
			}
		})
	}
}

func TestSkips(t *testing.T) { t.Skip("not here") }

func TestFails(t *testing.T) {
	if os.Getenv("NEVER") == "" {
		t.Error("always")
	}
}
