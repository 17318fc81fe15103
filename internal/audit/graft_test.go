package audit

import (
	"testing"

	"atoll/internal/store"
)

// N2: a node that was set back to an old copy signs a second record of the same number. Either history verifies by itself;
// an end of the one put after the beginning of the other does not, though each record in it is whole and signed.
func TestGraftedEnd(t *testing.T) {
	c := newChain(t, 3)
	add := func(detail string) {
		if err := c.log.Append(t.Context(), store.Relaxed, Entry{Kind: "tool", Event: "intent", Detail: detail}); err != nil {
			t.Fatal(err)
		}
	}
	add("stop the app photos")
	add("look at the disk")
	if rep := c.verify(""); !rep.OK || rep.Records != 5 {
		t.Fatalf("%+v", rep)
	}
	c.sql("CREATE TABLE kept AS SELECT * FROM audit WHERE seq = 5")
	c.sql("DELETE FROM audit WHERE seq > 3")
	add("nothing to see")
	if rep := c.verify(""); !rep.OK || rep.Records != 4 {
		t.Fatalf("%+v", rep)
	}
	c.sql("INSERT INTO audit SELECT * FROM kept")
	if rep := c.verify(""); rep.OK || rep.Broken != 5 {
		t.Errorf("a record that follows another fourth one verifies: %+v", rep)
	}
}
