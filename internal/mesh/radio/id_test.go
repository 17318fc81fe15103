package radio

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
)

func TestParseListed(t *testing.T) {
	key := bytes.Repeat([]byte{9}, keyLen)
	good := "!a1b2c3d4=" + base64.StdEncoding.EncodeToString(key)
	if l, err := ParseListed(good); err != nil || l.Node != 0xA1B2C3D4 || !bytes.Equal(l.Key, key) {
		t.Errorf("%s: %+v, %v", good, l, err)
	}
	if l, err := ParseListed("!A1B2C3D4"); err != nil || l.Key != nil || NodeID(l.Node) != "!a1b2c3d4" {
		t.Errorf("%+v, %v", l, err)
	}
	for _, bad := range []string{"", "!", "a1b2c3d4", "!a1b2c3d", "!a1b2c3d45", "!+1b2c3d4", "!00000000", "!ffffffff", "!a1b2c3d4=", "!a1b2c3d4=AAAA",
		"!a1b2c3d4=" + base64.StdEncoding.EncodeToString(make([]byte, keyLen)), good + "=", "!a1b2c3d4 =" + strings.Repeat("A", 43) + "=", good + "\n"} {
		if l, err := ParseListed(bad); err == nil {
			t.Errorf("%q is taken for %+v", bad, l)
		}
	}
}
