package account

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"atoll/internal/fault"
)

func TestCheckPassword(t *testing.T) {
	for _, ok := range []string{"ten chars!", "пароль из слов", strings.Repeat("ab", 512)} {
		if err := checkPassword("password", "ada", ok); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for _, bad := range []string{"", "nine char", "\xff\xfe\xff\xfe\xff\xfe\xff\xfe\xff\xfe\xff", strings.Repeat("ab", 513), "Long.User.Name", "aaaaaaaaaaaa"} {
		err := checkPassword("new", "long.user.name", bad)
		wantCode(t, err, fault.InvalidParams, "new")
		if bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("the error repeats %q", bad)
		}
	}
}

// G6: Argon2id at the setting that OWASP asks for, salted.
func TestHashes(t *testing.T) {
	k := newHasher(hashMemory)
	a, err := k.create(t.Context(), goodPassword)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := k.create(t.Context(), goodPassword)
	if a == b {
		t.Fatal("no salt")
	}
	if !strings.HasPrefix(a, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Fatal(a)
	}
	p := &person{password: a}
	for _, c := range []struct {
		p        *person
		password string
		want     bool
	}{{p, goodPassword, true}, {p, goodPassword + " ", false}, {p, "", false}, {nil, goodPassword, false}} {
		if got, err := k.verify(t.Context(), c.p, c.password); got != c.want || err != nil {
			t.Errorf("%q: %v %v", c.password, got, err)
		}
	}
}

// The same word typed on another keyboard is the same password.
func TestPasswordsAreNormalised(t *testing.T) {
	k := newHasher(64)
	h, _ := k.create(t.Context(), "caf\u00e9 in the rain")
	if ok, _ := k.verify(t.Context(), &person{password: h}, "cafe\u0301 in the rain"); !ok {
		t.Fatal("refused")
	}
}

// G4: two hashes at once; who waits for a slot gives up with its context.
func TestHashSlotsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newHasher(64)
		for range hashSlots {
			k.slots <- struct{}{}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := k.verify(ctx, nil, goodPassword)
		wantCode(t, err, fault.Unavailable, "")
		<-k.slots
		if _, err := k.verify(t.Context(), nil, goodPassword); err != nil {
			t.Fatal(err)
		}
		if len(k.slots) != hashSlots-1 {
			t.Fatal("a slot was kept")
		}
	})
}

func TestParseHashRefuses(t *testing.T) {
	good := newHasher(hashMemory).nobody.String()
	if _, err := parseHash(good); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "$", "x" + good, good + "$", strings.Replace(good, "argon2id", "argon2i", 1),
		strings.Replace(good, "v=19", "v=16", 1), strings.Replace(good, "m=19456", "m=4294967295", 1),
		strings.Replace(good, "t=2", "t=0", 1), strings.Replace(good, "p=1", "p=0", 1), strings.Replace(good, "p=1", "p=1,k=2", 1),
		strings.Replace(good, "m=19456", "m=019456", 1), good[:len(good)-30]} {
		if _, err := parseHash(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func FuzzParseHash(f *testing.F) {
	f.Add(newHasher(64).nobody.String())
	f.Add("$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Add("$argon2id$v=19$m=,t=,p=$$")
	f.Fuzz(func(t *testing.T, s string) {
		h, err := parseHash(s)
		if err == nil && (h.String() != s || h.memory > 1<<20 || h.time == 0 || h.lanes == 0) {
			t.Fatalf("%q became %v", s, h)
		}
	})
}
