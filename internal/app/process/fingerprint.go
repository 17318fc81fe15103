package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"atoll/internal/app"
	"atoll/internal/proc"
)

// interpreters run the file that their first argument names.
const interpreters = " sh bash dash ash zsh ksh fish python python2 python3 perl ruby node nodejs deno bun php lua java tclsh "

// Examine implements app.Runtime.
func (s *Supervisor) Examine(_ context.Context, name string) (app.App, string, error) {
	u, err := s.unit(name)
	if err != nil {
		return app.App{}, "", err
	}
	a, ok := u.view()
	if !ok {
		return app.App{}, "", s.unknown(name)
	}
	return a, u.fingerprint(), nil
}

// fingerprint is of the definition, and of the identity of the files that would be executed, so that a script rewritten
// while its approval stands is noticed (F-A2). The running process is not in it.
func (u *unit) fingerprint() string {
	u.mu.Lock()
	def, running := u.def, u.rec.Definition
	u.mu.Unlock()
	sum := sha256.New()
	if def == nil {
		fmt.Fprintf(sum, "without definition\n%s\n", running)
		return hex.EncodeToString(sum.Sum(nil))
	}
	fmt.Fprintf(sum, "%s\n", def.hash())
	for _, path := range programs(def) {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			fmt.Fprintf(sum, "%q missing\n", path)
			continue
		}
		id := identityOf(&st)
		fmt.Fprintf(sum, "%q %+v\n", path, id)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// programs are the files that a definition executes: the program, any argument that is an executable file, and an
// interpreter's script.
func programs(d *definition) []string {
	path := defaultPath
	if p, ok := d.Environment["PATH"]; ok {
		path = p
	}
	files := map[string]bool{}
	if p, err := proc.FindProgram(d.Command[0], path); err == nil {
		files[within(d, p)] = true
	}
	base := filepath.Base(d.Command[0])
	base = strings.TrimRight(base, "0123456789.") + "\x00" + base // python3.12 is python
	first := false
	for known := range strings.FieldsSeq(interpreters) {
		first = first || slices.Contains(strings.Split(base, "\x00"), known)
	}
	for _, arg := range d.Command[1:] {
		if strings.HasPrefix(arg, "-") || arg == "" {
			continue
		}
		var st unix.Stat_t
		full := within(d, arg)
		if unix.Stat(full, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && (first || st.Mode&0o111 != 0) {
			files[full] = true
		}
		first = false
	}
	return slices.Sorted(maps.Keys(files))
}

// within resolves a path as the app itself would.
func within(d *definition, path string) string {
	if filepath.IsAbs(path) || d.Directory == "" {
		return path
	}
	return filepath.Join(d.Directory, path)
}
