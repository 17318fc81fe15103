package invite

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"image"
	"image/color"
	"slices"
	"strings"
	"testing"

	qr "github.com/piglig/go-qr"
	"pgregory.net/rapid"
)

func sample(n byte, addrs ...string) Invite {
	i := Invite{Key: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, 32)).Public().(ed25519.PublicKey), Addrs: addrs}
	for k := range i.Secret {
		i.Secret[k] = n + byte(k)
	}
	return i
}

func equal(a, b Invite) bool {
	return a.Key.Equal(b.Key) && a.Secret == b.Secret && slices.Equal(a.Addrs, b.Addrs)
}

// M1: what was invited is what is read, however it was copied, scanned or spelled out.
func TestBothSpellings(t *testing.T) {
	for _, addrs := range [][]string{nil, {"/ip4/192.168.1.7/tcp/8421"}, {"/ip4/203.0.113.7/udp/8421/quic-v1", "/dns4/home.example.org/tcp/8421", "/ip6/2001:db8::7/tcp/8421"}} {
		for n := range byte(40) {
			want := sample(n, addrs...)
			code, words := want.Code(), strings.Join(want.Words(), " ")
			spelled := strings.NewReplacer("0", "o", "1", "l").Replace(strings.ToLower(strings.TrimPrefix(code, prefix)))
			numbered := ""
			for k, w := range want.Words() {
				numbered += string(rune('0'+k%10)) + ") " + strings.ToUpper(w[:min(4, len(w))]) + ",\n"
			}
			for _, text := range []string{code, strings.ToLower(code), strings.ReplaceAll(code, "-", ""), "  " + strings.ReplaceAll(code, "-", "\n "),
				prefix + spelled, words, strings.ToUpper(words), numbered} {
				got, err := Parse(text)
				if err != nil || !equal(got, want) {
					t.Fatalf("%q is read as %+v, %v", text, got, err)
				}
			}
		}
	}
}

// A typing error is found: no other key and no other secret comes of it.
func TestTypingErrors(t *testing.T) {
	good := sample(3, "/ip4/192.168.1.7/tcp/8421")
	rapid.Check(t, func(t *rapid.T) {
		code := []byte(good.Code())
		at := rapid.IntRange(len(prefix)+1, len(code)-1).Draw(t, "at")
		if code[at] == '-' {
			return
		}
		was := code[at]
		code[at] = alphabet[rapid.IntRange(0, len(alphabet)-1).Draw(t, "letter")]
		if _, err := Parse(string(code)); (err == nil) != (code[at] == was) {
			t.Fatalf("%s: %v", code, err)
		}
		words := good.Words()
		i, j := rapid.IntRange(0, len(words)-1).Draw(t, "i"), rapid.IntRange(0, len(words)-1).Draw(t, "j")
		same := words[i] == words[j]
		words[i], words[j] = words[j], words[i]
		if got, err := Parse(strings.Join(words, " ")); (err == nil) != same || err == nil && !equal(got, good) {
			t.Fatalf("swapped %d and %d: %v", i, j, err)
		}
	})
	for text, want := range map[string]string{"": "no invite", "   - ": "no invite", "hallo world": "word 1", good.Code()[:40]: "check sum",
		strings.Repeat("A", maxText+1): "too long", "ATOLL1-!!!!": "character", strings.Join(good.Words()[1:], " "): "check sum",
		"ATOLL1": "check sum", "zoo": "last word", "abandonment": "word 1", "ab": "word 1"} {
		if i, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v", text, i, err)
		}
	}
}

// An invite of a later version is refused with the version's name, whatever else is in it.
func TestLaterVersion(t *testing.T) {
	raw := sample(1).bytes()
	raw[0] = 2
	raw = reseal(raw[:len(raw)-sumSize])
	if _, err := Parse(prefix + coding().EncodeToString(raw)); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	long := "/dns4/" + strings.Repeat("a", maxAddr) + "/tcp/1"
	i := sample(9, "nonsense", long, "/ip4/1.2.3.4/tcp/1", "/ip4/1.2.3.4/tcp/2", "/ip4/1.2.3.4/tcp/3", "/ip4/1.2.3.4/tcp/4", "/ip4/1.2.3.4/tcp/5", "/ip4/1.2.3.4/tcp/6", "/ip4/1.2.3.4/tcp/7")
	got, err := Parse(i.Code())
	if err != nil || len(got.Addrs) != MaxAddrs || got.Addrs[0] != "/ip4/1.2.3.4/tcp/1" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, tail := range [][]byte{{0}, {5, 1}, {200}, append([]byte{6}, "abcdef"...)} {
		raw := sample(1).bytes()
		raw = reseal(append(raw[:len(raw)-sumSize], tail...))
		if i, err := Parse(prefix + coding().EncodeToString(raw)); err == nil {
			t.Errorf("%v: %+v", tail, i)
		}
	}
}

func TestKeyWords(t *testing.T) {
	seen := map[string]bool{}
	for n := range byte(200) {
		w := KeyWords(sample(n).Key)
		if len(w) != 6 || seen[strings.Join(w, " ")] || !slices.Equal(w, KeyWords(sample(n).Key)) {
			t.Fatal(w)
		}
		seen[strings.Join(w, " ")] = true
	}
}

// The drawn code is read back by a decoder, and it is the code.
func TestQR(t *testing.T) {
	code := sample(7, "/ip4/192.168.1.7/tcp/8421", "/ip4/192.168.1.7/udp/8421/quic-v1").Code()
	rows, err := QR(code)
	if err != nil {
		t.Fatal(err)
	}
	const scale, quiet = 6, 4
	size := (len(rows) + 2*quiet) * scale
	img := image.NewGray(image.Rect(0, 0, size, size))
	for y := range size {
		for x := range size {
			img.SetGray(x, y, color.Gray{Y: 255})
			r, c := y/scale-quiet, x/scale-quiet
			if r >= 0 && c >= 0 && r < len(rows) && c < len(rows) && rows[r][c] == '#' {
				img.SetGray(x, y, color.Gray{})
			}
		}
	}
	if got, err := qr.Decode(img); err != nil || got != code {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := QR(strings.Repeat("A", 5000)); err == nil {
		t.Error("five thousand characters fit")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample(1).Code())
	f.Add(strings.Join(sample(2, "/ip4/1.2.3.4/tcp/1").Words(), " "))
	f.Add("ATOLL1-0000")
	f.Add("1) zoo 2) zoo")
	f.Fuzz(func(t *testing.T, text string) {
		i, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(i.Code()); err != nil || !equal(again, i) {
			t.Fatalf("%+v is read back as %+v, %v", i, again, err)
		}
		if again, err := Parse(strings.Join(i.Words(), " ")); err != nil || !equal(again, i) {
			t.Fatalf("%+v is read back from words as %+v, %v", i, again, err)
		}
	})
}

// FuzzContents: what another node's owner put into an invite, under a check sum that fits, is read whole or refused; what
// is read has sizes of ours and comes back the same in both spellings.
func FuzzContents(f *testing.F) {
	for _, i := range []Invite{sample(1), sample(2, "/ip4/1.2.3.4/tcp/1", "/dns4/home.example.org/tcp/8421")} {
		raw := i.bytes()
		f.Add(raw[:len(raw)-sumSize])
	}
	head := sample(3).bytes()[:headSize]
	for _, tail := range [][]byte{{0}, {5, 1}, {200}, append([]byte{6}, "abcdef"...), {3, 0x06, 0, 1, 3, 0x06, 0, 1}, {3, 0x36, 1, 'x'}, {6, 0x36, 4, 'a', '/', 'b', 0}} {
		f.Add(append(bytes.Clone(head), tail...))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		code := prefix + coding().EncodeToString(reseal(body))
		i, err := Parse(code)
		if len(body) < headSize || len(body) > maxSize-sumSize || body[0] != version {
			if err == nil {
				t.Fatalf("%x is read as %+v", body, i)
			}
			return
		}
		if err != nil {
			return
		}
		if len(i.Key) != ed25519.PublicKeySize || !bytes.Equal(i.Key, body[1:1+ed25519.PublicKeySize]) || len(i.Addrs) > MaxAddrs {
			t.Fatalf("%x is read as %+v", body, i)
		}
		for _, text := range []string{i.Code(), strings.Join(i.Words(), " ")} {
			if again, err := Parse(text); err != nil || !equal(again, i) {
				t.Fatalf("%+v is read back as %+v, %v", i, again, err)
			}
		}
	})
}

func reseal(body []byte) []byte {
	sum := sha256.Sum256(body)
	return append(slices.Clip(body), sum[:sumSize]...)
}
