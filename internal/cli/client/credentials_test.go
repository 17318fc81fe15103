package client

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"atoll/internal/fault"
	"atoll/internal/secret"
)

func session(name string) Session {
	return Session{Token: secret.New("token-" + name), CSRF: secret.New("csrf-" + name), Username: name, Role: "owner", ExpiresAt: time.Unix(2000000000, 0).UTC()}
}

func TestCredentialsKeepSessionsByAddress(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config", "atoll", "credentials.json")
	c := OpenCredentials(path)
	if current, err := c.Current(); err != nil || current != "" {
		t.Fatalf("without a file: %q, %v", current, err)
	}
	for _, name := range []string{"a", "b"} {
		if err := c.Put("http://"+name, session(name)); err != nil {
			t.Fatal(err)
		}
	}
	got, ok, err := c.Get("http://a")
	if err != nil || !ok || got.Token.Reveal() != "token-a" || got.CSRF.Reveal() != "csrf-a" || got.Username != "a" || !got.ExpiresAt.Equal(session("a").ExpiresAt) {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	if current, _ := c.Current(); current != "http://b" {
		t.Errorf("current is %q", current)
	}
	for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", p, info.Mode().Perm(), want)
		}
	}
	if err := c.Remove("http://b"); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := c.Get("http://b"); ok {
		t.Error("removed and still there")
	}
	if raw, _ := os.ReadFile(path); strings.Contains(string(raw), "token-b") {
		t.Error("a removed session is still in the file")
	}
}

// Issue 2: credentials kept 0600; a file that others can read is refused and not changed.
func TestCredentialsOfOthersAreRefused(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, path string){
		"readable by others": func(t *testing.T, path string) {
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
		},
		"a link": func(t *testing.T, path string) {
			if err := os.Rename(path, path+".real"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(path+".real", path); err != nil {
				t.Fatal(err)
			}
		},
		"damaged": func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(`{"nodes":`), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "credentials.json")
			c := OpenCredentials(path)
			if err := c.Put("http://a", session("a")); err != nil {
				t.Fatal(err)
			}
			prepare(t, path)
			before, _ := os.ReadFile(path)
			_, _, err := c.Get("http://a")
			if err == nil {
				t.Error("it was read")
			} else if f := fault.Of(err); !strings.Contains(f.Public, path) {
				t.Errorf("the words do not name the file: %s", f.Public)
			}
			if err := c.Put("http://b", session("b")); err == nil {
				t.Error("it was written")
			}
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Error("it was changed")
			}
		})
	}
}

func TestCredentialsTwoLoginsAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credentials.json")
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		wg.Go(func() {
			if err := OpenCredentials(path).Put("http://"+name, session(name)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		if _, ok, err := OpenCredentials(path).Get("http://" + name); !ok || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
}
