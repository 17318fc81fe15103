package folder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestReadSmall(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.WriteFile(at("good"), []byte("12345"), 0o600), os.Symlink("good", at("link")), os.Mkdir(at("folder"), 0o700), syscall.Mkfifo(at("pipe"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"good", "link"} {
		if raw, err := ReadSmall(at(name), 5); err != nil || string(raw) != "12345" {
			t.Errorf("%s: %q, %v", name, raw, err)
		}
	}
	for _, name := range []string{"folder", "pipe"} { // and the pipe holds nobody
		if _, err := ReadSmall(at(name), 5); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadSmall(at("good"), 4); err == nil {
		t.Error("more than was asked for")
	}
	if _, err := ReadSmall(at("none"), 4); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
