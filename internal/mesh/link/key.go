package link

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// maxAddr bounds an address, in bytes.
const maxAddr = 256

// KeyOf is how a public key is written: libp2p's peer id, which holds the whole key. It panics on a key of a wrong size.
func KeyOf(pub ed25519.PublicKey) string {
	key, err := crypto.UnmarshalEd25519PublicKey(pub)
	if err != nil {
		panic("link: " + err.Error())
	}
	id, err := peer.IDFromPublicKey(key)
	if err != nil {
		panic("link: " + err.Error()) // unreachable: the key was just read
	}
	return id.String()
}

// PublicKey reads a key as KeyOf writes it, and takes no other spelling of it.
func PublicKey(key string) (ed25519.PublicKey, error) {
	id, err := peer.Decode(key)
	if err != nil {
		return nil, fmt.Errorf("link: no node's key: %w", err)
	}
	if id.String() != key {
		return nil, errors.New("link: no node's key: it is written in another form than 12D3KooW…")
	}
	pub, err := id.ExtractPublicKey()
	if err != nil {
		return nil, fmt.Errorf("link: no node's key: %w", err)
	}
	if pub.Type() != crypto.Ed25519 {
		return nil, errors.New("link: the key is not an Ed25519 one")
	}
	return pub.Raw()
}

// CheckAddr says why an address is none that a Host can listen on or dial, or nil.
func CheckAddr(a string) error {
	if len(a) > maxAddr {
		return errors.New("it is too long")
	}
	m, err := ma.NewMultiaddr(a)
	if err != nil {
		return err
	}
	transport := false
	for _, c := range m {
		switch c.Protocol().Code {
		case ma.P_TCP, ma.P_QUIC_V1:
			transport = true
		case ma.P_IP4, ma.P_IP6, ma.P_DNS, ma.P_DNS4, ma.P_DNS6, ma.P_UDP, ma.P_P2P, ma.P_CIRCUIT, ma.P_IP6ZONE:
		default:
			return fmt.Errorf("%s is not used here", c.Protocol().Name)
		}
	}
	if !transport {
		return errors.New("it has neither tcp nor quic-v1")
	}
	return nil
}
