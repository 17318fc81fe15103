package node

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"atoll/internal/caller"
)

// A folder that is still being hashed is shared as far as it is: what has no hash yet is left out, and a page that is not
// full is not the end.
func TestCatalogueWhileHashing(t *testing.T) {
	m := newMeshNode(t, nil)
	peer := caller.Operator(1, "ada", caller.Owner, "s1", "") // sees the folder whole
	for i := range 40 {
		if err := os.WriteFile(filepath.Join(m.dir, "content", fmt.Sprintf("f%03d", i)), []byte{byte(i)}, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seen := func() (all, hashed int) {
		items, _, err := m.content.Page(peer, "", 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range items {
			if i.SHA256 != "" {
				hashed++
			}
		}
		return len(items), hashed
	}
	until(t, "found, and not hashed yet", func() bool { all, hashed := seen(); return all == 40 && hashed == 0 })
	items, more, err := m.catalogue(peer, "", 10)
	for _, i := range items {
		if i.SHA256 == "" {
			t.Fatalf("%+v, %v, %v", i, more, err)
		}
	}
	until(t, "hashed", func() bool { _, hashed := seen(); return hashed == 40 })
	if items, more, err = m.catalogue(peer, "f009", 10); err != nil || !more || len(items) != 10 || items[0].Path != "f010" {
		t.Errorf("%d, %v, %v", len(items), more, err)
	}
	if items, more, err = m.catalogue(peer, "f029", 10); err != nil || more || len(items) != 10 {
		t.Errorf("%d, %v, %v", len(items), more, err)
	}
}
