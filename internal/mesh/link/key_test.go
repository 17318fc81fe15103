package link

import (
	"crypto/ed25519"
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	pub := keyFor("a").Public().(ed25519.PublicKey)
	key := KeyOf(pub)
	if !strings.HasPrefix(key, "12D3KooW") {
		t.Errorf("written as %s", key)
	}
	if back, err := PublicKey(key); err != nil || !back.Equal(pub) {
		t.Errorf("read back: %v", err)
	}
	for _, bad := range []string{"", "x", key[:len(key)-1], key + "1", " " + key, "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
		"bafzaajaiaejcbxoqjudnf4gzpxr4vtbxpwmvmb2kglo5qnlqsqjtqkrbewxtpzdj"} {
		if _, err := PublicKey(bad); err == nil {
			t.Errorf("%q is a key", bad)
		}
	}
}

func TestCheckAddr(t *testing.T) {
	key := keyText("a")
	for _, good := range []string{"/ip4/192.0.2.1/tcp/8421", "/ip6/2001:db8::1/udp/8421/quic-v1/p2p/" + key, "/dns/a.example/tcp/8421",
		"/ip4/192.0.2.1/tcp/8421/p2p/" + key + "/p2p-circuit"} {
		if err := CheckAddr(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "/", "192.0.2.1:8421", "/ip4/192.0.2.1", "/ip4/192.0.2.1/udp/8421", "/unix/tmp/x", "/ip4/192.0.2.1/tcp/80/http", "/ip4/192.0.2.1/tcp/80/ws",
		"/ip4/192.0.2.1/udp/1/webrtc-direct", "/dns/" + strings.Repeat("a", 300) + "/tcp/1", "/dnsaddr/bootstrap.libp2p.io", "/onion3/x:1"} {
		if CheckAddr(bad) == nil {
			t.Errorf("%q is an address", bad)
		}
	}
}
