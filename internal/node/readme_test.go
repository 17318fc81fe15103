package node

import (
	"os"
	"strings"
	"testing"
)

// Who sets a key must find it: the README's table has every one.
func TestReadmeNamesEveryVariable(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var s Settings
	for name := range s.variables() {
		if !strings.Contains(string(readme), "`"+name+"`") {
			t.Errorf("README.md does not name %s", name)
		}
	}
}
