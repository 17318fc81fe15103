package systemd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"atoll/internal/app"
)

// maxUnitFile bounds what is read of a unit file.
const maxUnitFile = 1 << 20

// Examine implements app.Runtime.
func (m *Manager) Examine(ctx context.Context, name string) (app.App, string, error) {
	u, p, err := m.look(ctx, name)
	if err != nil {
		return app.App{}, "", err
	}
	return m.view(u, p), m.fingerprint(name, p), nil
}

// fingerprint is of the unit's files by content, whether systemd has yet to read them again, the commands with the identity
// of the programs in them, and the user (F-A2). What changes from one run to the next is not in it.
func (m *Manager) fingerprint(name string, p props) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q reload=%t read=%q user=%q group=%q dynamic=%t\n", name, p.text("LoadState"), p.flag("NeedDaemonReload"),
		p.texts("DropInPaths"), p.text("User"), p.text("Group"), p.flag("DynamicUser"))
	for _, path := range m.files(name, p) {
		fmt.Fprintf(sum, "file %q %s\n", path, m.contentOf(path))
	}
	for _, kind := range []string{"ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost", "ExecReload", "ExecStop", "ExecStopPost"} {
		for _, c := range commands(p[kind]) {
			fmt.Fprintf(sum, "%s %q %q %t %s\n", kind, c.path, c.args, c.ignore, m.identityOf(c.path))
			for _, arg := range c.args[min(1, len(c.args)):] {
				if m.isProgram(arg) {
					fmt.Fprintf(sum, "program %q %s\n", arg, m.identityOf(arg))
				}
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// files are the unit's files: those that systemd read, and drop-ins that it has yet to find.
func (m *Manager) files(name string, p props) []string {
	all := append([]string{p.text("FragmentPath"), p.text("SourcePath")}, p.texts("DropInPaths")...)
	for _, dir := range []string{"/etc/systemd/system", "/run/systemd/system", "/etc/systemd/system.control", "/run/systemd/system.control",
		"/usr/local/lib/systemd/system", "/usr/lib/systemd/system"} {
		entries, err := os.ReadDir(filepath.Join(m.root, dir, name+".d"))
		if err != nil {
			continue
		}
		for _, e := range entries {
			all = append(all, filepath.Join(dir, name+".d", e.Name()))
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(path string) bool { return path == "" })
}

// command is a line of Exec…= without what systemd adds about its last run.
type command struct {
	path   string
	args   []string
	ignore bool
}

// commands reads a property of type a(sasbttttuii).
func commands(property any) (out []command) {
	rows, _ := property.([][]any)
	for _, row := range rows {
		if len(row) < 3 {
			continue
		}
		var c command
		c.path, _ = row[0].(string)
		c.args, _ = row[1].([]string)
		c.ignore, _ = row[2].(bool)
		out = append(out, c)
	}
	return out
}

// contentOf is the hash of a file's content, or its identity where this user may not read it.
func (m *Manager) contentOf(path string) string {
	f, err := os.OpenFile(filepath.Join(m.root, path), os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe does not hold it up
	if errors.Is(err, os.ErrPermission) {
		return m.identityOf(path)
	}
	if err != nil {
		return "missing"
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return "no file"
	}
	sum := sha256.New()
	if n, err := io.Copy(sum, io.LimitReader(f, maxUnitFile+1)); err != nil || n > maxUnitFile {
		return m.identityOf(path)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// identityOf changes when another file takes the path's place, or its content is written.
func (m *Manager) identityOf(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(m.root, path), &st); err != nil {
		return "missing"
	}
	return fmt.Sprintf("%d:%d %o %d %d.%d", st.Dev, st.Ino, st.Mode, st.Size, st.Mtim.Sec, st.Mtim.Nsec)
}

func (m *Manager) isProgram(path string) bool {
	st, err := os.Stat(filepath.Join(m.root, path))
	return filepath.IsAbs(path) && err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}
