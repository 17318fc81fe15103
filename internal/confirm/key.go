package confirm

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/rpc"
)

// Key is the identity of an action: what exactly would be done, whoever asks and whenever.
type Key [sha256.Size]byte

// String is the key as it travels: lower-case hex.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// ActionKey hashes the canonical JSON of [tool, arguments]. args must be canonical already. With a secret the hash is
// keyed, so that private arguments cannot be guessed from it.
func ActionKey(tool string, args jsontext.Value, secret []byte) Key {
	name, err := rpc.Marshal(tool)
	if err != nil {
		panic(err) // unreachable unless a tool's name is not UTF-8
	}
	text := append(append(append(append([]byte{'['}, name...), ','), args...), ']')
	if len(secret) == 0 {
		return sha256.Sum256(text)
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(text)
	return Key(mac.Sum(nil))
}

func parseKey(s string) (Key, error) {
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != len(Key{}) {
		return Key{}, errors.New("an action key is not readable")
	}
	return Key(raw), nil
}

// newNonce draws 128 random bits.
func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b[:])
}

func hashNonce(nonce string) [sha256.Size]byte { return sha256.Sum256([]byte(nonce)) }
