// Package invite is the text by which one node's owner invites another: whose node it is, a secret for one use, and where
// it can be reached. It reads and writes that text; whether an invite still counts is known to the node that made it.
package invite

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"

	ma "github.com/multiformats/go-multiaddr"
)

// Sizes of what an invite holds, in bytes. A secret is guessed online only, against an invite that lives for minutes.
const (
	version    = 1
	SecretSize = 10
	sumSize    = 4
	headSize   = 1 + ed25519.PublicKeySize + SecretSize
	maxAddr    = 96
	MaxAddrs   = 6
	maxSize    = headSize + MaxAddrs*(maxAddr+1) + sumSize
	maxText    = 8 * maxSize // a code in words, with room for numbers and line ends
)

// Invite is what the text says.
type Invite struct {
	Key    ed25519.PublicKey // of the node that invites
	Secret [SecretSize]byte
	Addrs  []string // multiaddrs without /p2p; may be empty on a common network
}

// NewSecret draws a secret.
func NewSecret() (s [SecretSize]byte) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// alphabet is Crockford's base 32: no I, L, O and U.
const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

const prefix = "ATOLL1"

func coding() *base32.Encoding { return base32.NewEncoding(alphabet).WithPadding(base32.NoPadding) }

// bytes is the form under both spellings. Addresses that do not parse or do not fit are left out.
func (i Invite) bytes() []byte {
	out := append([]byte{version}, i.Key...)
	out = append(out, i.Secret[:]...)
	n := 0
	for _, a := range i.Addrs {
		m, err := ma.NewMultiaddr(a)
		if err != nil || len(m.Bytes()) > maxAddr || n == MaxAddrs {
			continue
		}
		out = append(append(out, byte(len(m.Bytes()))), m.Bytes()...)
		n++
	}
	sum := sha256.Sum256(out)
	return append(out, sum[:sumSize]...)
}

// Code spells the invite in letters and figures, in groups of four: for copying, and for a QR code.
func (i Invite) Code() string {
	s := coding().EncodeToString(i.bytes())
	var b strings.Builder
	b.WriteString(prefix)
	for ; len(s) > 0; s = s[min(4, len(s)):] {
		b.WriteString("-" + s[:min(4, len(s))])
	}
	return b.String()
}

// Words spells the invite in words that can be read over a telephone.
func (i Invite) Words() []string { return toWords(i.bytes()) }

// Parse reads either spelling. Case, spaces and dashes do not count, nor do numbers before words; O is read as 0, I and L
// as 1, and of a word its first four letters. Its errors say what is wrong with the text.
func Parse(text string) (Invite, error) {
	if len(text) > maxText {
		return Invite{}, errors.New("this is too long for an invite")
	}
	fields := strings.FieldsFunc(strings.ToUpper(text), func(r rune) bool { return strings.ContainsRune(" \t\r\n-,.", r) })
	if len(fields) == 0 {
		return Invite{}, errors.New("there is no invite in it")
	}
	if strings.HasPrefix(fields[0], prefix) {
		return parseCode(strings.TrimPrefix(strings.Join(fields, ""), prefix))
	}
	return parseWords(fields)
}

func parseCode(s string) (Invite, error) {
	s = strings.NewReplacer("O", "0", "I", "1", "L", "1").Replace(s)
	raw, err := coding().DecodeString(s)
	if err != nil {
		return Invite{}, errors.New("the invite holds a character that no invite has, or is cut off")
	}
	if coding().EncodeToString(raw) != s {
		return Invite{}, errMistyped
	}
	return parse(raw)
}

func parseWords(fields []string) (Invite, error) {
	raw, err := fromWords(fields)
	if err != nil {
		return Invite{}, err
	}
	i, err := parse(raw)
	if err != nil && len(raw) > 0 && raw[len(raw)-1] == 0 { // the last word's padding can be a whole byte
		return parse(raw[:len(raw)-1])
	}
	return i, err
}

var errMistyped = errors.New("the invite is not complete or has a typing error: its check sum does not fit")

func parse(raw []byte) (Invite, error) {
	if len(raw) < headSize+sumSize || len(raw) > maxSize {
		return Invite{}, errMistyped
	}
	body, sum := raw[:len(raw)-sumSize], sha256.Sum256(raw[:len(raw)-sumSize])
	if !bytes.Equal(sum[:sumSize], raw[len(body):]) {
		return Invite{}, errMistyped
	}
	if body[0] != version {
		return Invite{}, fmt.Errorf("the invite is of version %d, and this node knows version %d; update the older node", body[0], version)
	}
	i := Invite{Key: ed25519.PublicKey(bytes.Clone(body[1 : 1+ed25519.PublicKeySize]))}
	copy(i.Secret[:], body[1+ed25519.PublicKeySize:])
	for rest := body[headSize:]; len(rest) > 0; {
		n := int(rest[0])
		if n == 0 || n > maxAddr || n >= len(rest) || len(i.Addrs) == MaxAddrs {
			return Invite{}, errors.New("the invite's addresses are not well formed")
		}
		m, err := ma.NewMultiaddrBytes(rest[1 : 1+n])
		if err != nil {
			return Invite{}, errors.New("the invite holds an address of a kind that this node does not know")
		}
		i.Addrs, rest = append(i.Addrs, m.String()), rest[1+n:]
	}
	return i, nil
}

// KeyWords are six words (66 bits) of a node's key: what two owners compare before they trust each other's node. Finding a
// second key with the same words takes some 2^66 tries.
func KeyWords(key ed25519.PublicKey) []string {
	sum := sha256.Sum256(append([]byte("atoll key words\x00"), key...))
	return toWords(sum[:9])[:6]
}
