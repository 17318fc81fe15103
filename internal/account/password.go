package account

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"

	"atoll/internal/fault"
)

// Argon2id at the first of the settings that OWASP's password storage sheet holds equal: 19 MiB, two passes, one lane.
const (
	hashMemory = 19 * 1024 // KiB
	hashTime   = 2
	hashLanes  = 1
	hashSalt   = 16 // bytes
	hashLength = 32 // bytes
)

// hashSlots is how many hashes are computed at once (G4): it bounds memory and leaves a processor to everything else.
const hashSlots = 2

// busyHeap is from how many bytes of objects on a node is at work: it collects soon by itself, and a collection for each login
// would be dear.
const busyHeap = 64 << 20

// Bounds of a password. The upper one is far above what a person or a password manager makes.
const (
	minPassword = 10   // characters
	maxPassword = 1024 // bytes
)

// checkPassword says what is wrong with a new password, in words that never repeat it.
func checkPassword(field, username, password string) error {
	switch {
	case !utf8.ValidString(password):
		return fault.New(fault.InvalidParams, "the password is not valid UTF-8").At(field)
	case utf8.RuneCountInString(password) < minPassword:
		return fault.New(fault.InvalidParams, "the password is too short: at least %d characters; a few words make a good one", minPassword).At(field)
	case len(password) > maxPassword:
		return fault.New(fault.InvalidParams, "the password is too long: at most %d bytes", maxPassword).At(field)
	case strings.EqualFold(password, username):
		return fault.New(fault.InvalidParams, "the password must not be the username").At(field)
	case strings.Count(password, password[:1]) == len(password):
		return fault.New(fault.InvalidParams, "the password must not be one character repeated").At(field)
	}
	return nil
}

// hash is a parsed PHC string.
type hash struct {
	memory uint32
	time   uint32
	lanes  uint8
	salt   []byte
	sum    []byte
}

func (h hash) String() string {
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.time, h.lanes,
		b64.EncodeToString(h.salt), b64.EncodeToString(h.sum))
}

var errHash = errors.New("the stored password hash is not readable")

// parseHash reads a PHC string strictly; its figures are bounded, since a damaged file must not cost all memory.
func parseHash(s string) (hash, error) {
	var h hash
	var version int
	parts := strings.Split(s, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return h, errHash
	}
	if _, err := fmt.Sscanf(parts[2], "v=%d", &version); err != nil || version != argon2.Version {
		return h, errHash
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memory, &h.time, &h.lanes); err != nil {
		return h, errHash
	}
	var err1, err2 error
	h.salt, err1 = base64.RawStdEncoding.DecodeString(parts[4])
	h.sum, err2 = base64.RawStdEncoding.DecodeString(parts[5])
	switch {
	case err1 != nil, err2 != nil, h.memory < 8, h.memory > 1<<20, h.time < 1, h.time > 64, h.lanes < 1, h.lanes > 16,
		len(h.salt) < 8, len(h.salt) > 64, len(h.sum) < 16, len(h.sum) > 64, h.String() != s:
		return h, errHash
	}
	return h, nil
}

// hasher computes password hashes, few at a time.
type hasher struct {
	slots   chan struct{}
	running *atomic.Int32
	cost    hash // of new passwords; no salt and no sum
	nobody  hash // what an unknown user's password is compared with, so that it takes as long as a known one's
}

func newHasher(memory uint32) hasher {
	k := hasher{slots: make(chan struct{}, hashSlots), running: new(atomic.Int32), cost: hash{memory: memory, time: hashTime, lanes: hashLanes}}
	k.nobody = k.salted()
	_, _ = rand.Read(k.nobody.sum) // never fails
	return k
}

// salted is a hash of new cost and salt, and no sum yet.
func (k hasher) salted() hash {
	h := k.cost
	h.salt, h.sum = make([]byte, hashSalt), make([]byte, hashLength)
	_, _ = rand.Read(h.salt) // never fails
	return h
}

// sum computes one hash in a slot. Waiting for the slot ends with ctx.
func (k hasher) sum(ctx context.Context, h hash, password string) ([]byte, error) {
	select {
	case k.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fault.Wrap(ctx.Err(), fault.Unavailable, "the node is busy with other logins; try again")
	}
	k.running.Add(1)
	sum := argon2.IDKey([]byte(norm.NFC.String(password)), h.salt, h.time, h.memory, h.lanes, uint32(len(h.sum)))
	last := k.running.Add(-1) == 0
	<-k.slots
	if last && h.memory >= hashMemory && heapObjects() < busyHeap {
		debug.FreeOSMemory() // a hash leaves its 19 MiB behind, as much as the rest of an idle node
	}
	return sum, nil
}

// heapObjects is how much memory objects take, in bytes, with those that are yet to be collected.
func heapObjects() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// create hashes a new password.
func (k hasher) create(ctx context.Context, password string) (string, error) {
	h := k.salted()
	sum, err := k.sum(ctx, h, password)
	if err != nil {
		return "", err
	}
	h.sum = sum
	return h.String(), nil
}

// verify compares a password with an account's, or, at the same cost, with nobody's when p is nil.
func (k hasher) verify(ctx context.Context, p *person, password string) (bool, error) {
	h := k.nobody
	if p != nil {
		var err error
		if h, err = parseHash(p.password); err != nil {
			return false, fault.Wrap(err, fault.Failed, "the stored password cannot be read; set a new one with `atoll user passwd`")
		}
	}
	sum, err := k.sum(ctx, h, password)
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(sum, h.sum) == 1 && p != nil, nil
}
