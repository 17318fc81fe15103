package systemd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// leash starts a program that ends with this process, however that ends. out gets what it writes. end ends it.
func leash(t *testing.T, out *os.File, args ...string) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", `"$@" >&3 2>&3 & echo $!; read end; kill -9 $!; wait $!`, "sh"}, args...)...)
	cmd.ExtraFiles = []*os.File{out}
	hold, err := cmd.StdinPipe()
	must(t, err)
	number, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	end = sync.OnceFunc(func() {
		_ = hold.Close()
		_ = cmd.Wait()
	})
	t.Cleanup(end)
	if _, err := fmt.Fscan(number, &pid); err != nil {
		t.Fatal(err)
	}
	return pid, end
}

// output is a file for what a program writes.
func output(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "output"))
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// bus is a private dbus-daemon that can be taken away and brought back at one address.
type bus struct {
	address, config string
	out             *os.File
	end             func() // nil while it is away
}

func newBus(t *testing.T) *bus {
	t.Helper()
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		t.Skip("dbus-daemon is not installed: not tried")
	}
	dir := t.TempDir()
	b := &bus{address: "unix:path=" + dir + "/bus", config: filepath.Join(dir, "bus.conf"), out: output(t)}
	must(t, os.WriteFile(b.config, []byte(`<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>`+b.address+`</listen><auth>EXTERNAL</auth><policy context="default">
<allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`), 0o600))
	b.start(t)
	return b
}

func (b *bus) start(t *testing.T) {
	t.Helper()
	_ = os.Remove(strings.TrimPrefix(b.address, "unix:path="))
	_, b.end = leash(t, b.out, "dbus-daemon", "--nofork", "--nopidfile", "--config-file="+b.config)
	until(t, "dbus-daemon", func() bool {
		conn, err := dbus.Connect(b.address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

func (b *bus) stop() {
	b.end()
	b.end = nil
}

// fake is a Manager on a bus that does as it is told, and notes every object and name that it was asked for.
type fake struct {
	conn *dbus.Conn

	mu    sync.Mutex // guards the fields below
	asked []string
	jobs  uint32
	units map[string]map[string]any // by unit; missing ones have LoadState not-found
	// act answers StartUnit and its like; nil gives a job that never ends.
	act func(verb, name string) *dbus.Error
	// silent holds every question up until it is closed; nil holds up none.
	silent chan struct{}
}

func newFake(t *testing.T, address string, names ...string) *fake {
	t.Helper()
	f := &fake{units: map[string]map[string]any{}}
	for _, name := range names {
		f.units[name] = map[string]any{"Id": name, "LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead", "Result": "success"}
	}
	f.join(t, address)
	return f
}

// join puts the manager on the bus.
func (f *fake) join(t *testing.T, address string) {
	t.Helper()
	conn, err := dbus.Connect(address, dbus.WithIncomingInterceptor(f.note))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	f.conn = conn
	must(t, conn.ExportMethodTable(map[string]any{
		"Subscribe":   func() *dbus.Error { return nil },
		"StartUnit":   func(name, mode string) (dbus.ObjectPath, *dbus.Error) { return f.job("start", name) },
		"StopUnit":    func(name, mode string) (dbus.ObjectPath, *dbus.Error) { return f.job("stop", name) },
		"RestartUnit": func(name, mode string) (dbus.ObjectPath, *dbus.Error) { return f.job("restart", name) },
	}, object, managerFace))
	must(t, conn.ExportSubtreeMethodTable(map[string]any{"GetAll": f.getAll}, object, propsFace))
	_, err = conn.RequestName(destination, dbus.NameFlagDoNotQueue)
	must(t, err)
}

func (f *fake) note(msg *dbus.Message) {
	if msg.Type != dbus.TypeMethodCall {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if path, ok := msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath); ok && path != object {
		f.asked = append(f.asked, "path:"+string(path))
	}
	for _, arg := range msg.Body {
		if s, ok := arg.(string); ok && s != "" && s != "replace" {
			f.asked = append(f.asked, "name:"+s)
		}
	}
}

func (f *fake) getAll(msg dbus.Message, face string) (map[string]dbus.Variant, *dbus.Error) {
	f.mu.Lock()
	silent := f.silent
	f.mu.Unlock()
	if silent != nil {
		<-silent
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	path, _ := msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	for name, p := range f.units {
		if path == unitPath(name) {
			return variants(p), nil
		}
	}
	return variants(map[string]any{"LoadState": "not-found", "ActiveState": "inactive"}), nil
}

func unitPath(name string) dbus.ObjectPath {
	return dbus.ObjectPath("/org/freedesktop/systemd1/unit/" + sd.PathBusEscape(name))
}

func variants(p map[string]any) map[string]dbus.Variant {
	out := map[string]dbus.Variant{}
	for k, v := range p {
		out[k] = dbus.MakeVariant(v)
	}
	return out
}

func (f *fake) job(verb, name string) (dbus.ObjectPath, *dbus.Error) {
	f.mu.Lock()
	f.jobs++
	id, act := f.jobs, f.act
	f.mu.Unlock()
	if act != nil {
		if err := act(verb, name); err != nil {
			return "", err
		}
	}
	return jobPath(id), nil
}

func jobPath(id uint32) dbus.ObjectPath {
	return dbus.ObjectPath("/org/freedesktop/systemd1/job/" + strconv.FormatUint(uint64(id), 10))
}

// acts sets what it does when it is asked for a job.
func (f *fake) acts(act func(verb, name string) *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.act = act
}

// set changes properties without telling anybody.
func (f *fake) set(name string, changed map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, v := range changed {
		f.units[name][k] = v
	}
}

// change changes properties and tells it, as systemd does.
func (f *fake) change(t *testing.T, name string, changed map[string]any) {
	t.Helper()
	f.set(name, changed)
	must(t, f.conn.Emit(unitPath(name), propsFace+".PropertiesChanged", "org.freedesktop.systemd1.Unit", variants(changed), []string{}))
}

// end tells the end of the last job.
func (f *fake) end(name, result string) error {
	f.mu.Lock()
	id := f.jobs
	f.mu.Unlock()
	return f.conn.Emit(object, managerFace+".JobRemoved", id, jobPath(id), name, result)
}

func (f *fake) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func (f *fake) started() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int(f.jobs)
}

// faked is a runtime for units of the fake.
func faked(t *testing.T, address string, units ...string) *Manager {
	t.Helper()
	m, err := New(Config{Log: quiet(), Units: units, Bus: address})
	must(t, err)
	running(t, m)
	return m
}
