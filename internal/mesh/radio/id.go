package radio

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// Listed is a node that may ask.
//
// A node's number on a radio is a claim: whoever holds the channel's key, which for the default channel is everybody,
// can send under any number. A Listed without a key is therefore as good as no check against somebody who knows the
// number and means harm; it only keeps out those who do not. With a Key a packet must have been encrypted to this
// device's own key by the owner of that key (Meshtastic's public key encryption, from firmware 2.5 on), and its answer
// is encrypted in the same way. The device does both; it, and the network between it and this node, are trusted for it.
type Listed struct {
	Node uint32
	Key  []byte // 32 bytes, or none
}

// NodeID writes a node's number as Meshtastic does: "!a1b2c3d4".
func NodeID(node uint32) string { return fmt.Sprintf("!%08x", node) }

// ParseListed reads "!a1b2c3d4" or "!a1b2c3d4=KEY", where KEY is the node's public key in base64 as its apps show it.
func ParseListed(s string) (Listed, error) {
	id, key, keyed := strings.Cut(s, "=")
	hex, ok := strings.CutPrefix(id, "!")
	n, err := strconv.ParseUint(hex, 16, 32)
	if !ok || len(hex) != 8 || err != nil || n == 0 || n == broadcast {
		return Listed{}, fmt.Errorf("%q is not a radio node: write it as !a1b2c3d4 or !a1b2c3d4=KEY", id)
	}
	out := Listed{Node: uint32(n)}
	if !keyed {
		return out, nil
	}
	out.Key, err = base64.StdEncoding.Strict().DecodeString(key)
	if err != nil || strings.ContainsAny(key, "\r\n") || // which the decoder skips
		len(out.Key) != keyLen || bytes.Equal(out.Key, make([]byte, keyLen)) {
		return Listed{}, fmt.Errorf("the key of radio node %s is not a public key: it is 32 bytes in base64, as the node's app shows it", id)
	}
	return out, nil
}
