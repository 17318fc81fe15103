package process

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atoll/internal/app"
)

func runAs() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return ""
}

// SPEC section 4: the sample app really ends once with a reason in its log; after a restart it goes on until asked to
// stop, also when the node was restarted meanwhile.
func TestSampleApp(t *testing.T) {
	dir := t.TempDir()
	if err := WriteSample(dir, program(t), runAs()); err != nil {
		t.Fatal(err)
	}
	b := open(t, dir)
	a := b.await(SampleName, app.Exited)
	if a.ExitCode == nil || *a.ExitCode != 3 || a.Restarts != 0 || a.Title != "" || a.Reason != "" {
		t.Errorf("%+v", a)
	}
	log := b.log(SampleName)
	if strings.Count(log, "atoll: started") != 1 || !strings.HasPrefix(log, "atoll: started") {
		t.Errorf("%s", log)
	}
	why := strings.Index(log, "output: error: the cache is full (64 of 64 entries); giving up. The next start clears it.")
	if end := strings.Index(log, "atoll: ended with exit code 3"); why < 0 || end < why {
		t.Errorf("%s", log)
	}
	if err := b.Restart(t.Context(), SampleName); err != nil {
		t.Fatal(err)
	}
	b.awaitLog(SampleName, "old entries make room from now on")
	if a := b.look(SampleName); a.State != app.Running {
		t.Errorf("%+v", a)
	}
	b.stop(SampleName)
	if a := b.look(SampleName); a.ExitCode == nil || *a.ExitCode != 0 {
		t.Errorf("%+v", a)
	}
}

func program(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func TestRunSample(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	run := func(ctx context.Context) (int, string) {
		var out, errs bytes.Buffer
		code := runSample(ctx, cache, time.Microsecond, &out, &errs)
		return code, out.String() + errs.String()
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if code, _ := run(ended); code != 0 {
		t.Errorf("stopped: %d", code)
	}
	if code, out := run(t.Context()); code != 3 || !strings.Contains(out, "giving up") { // the first run had not ended by itself
		t.Errorf("%d %s", code, out)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if code, out := run(ctx); code != 0 || strings.Contains(out, "giving up") || !strings.Contains(out, "stopped") {
			t.Errorf("%d %s", code, out)
		}
		cancel()
	}
	cache = filepath.Join(cache, "no", "folder")
	if code, out := run(t.Context()); code != 1 || !strings.Contains(out, "error: the cache cannot be written") {
		t.Errorf("%d %s", code, out)
	}
	if code := Sample(nil, &bytes.Buffer{}, &bytes.Buffer{}); code != 2 {
		t.Error(code)
	}
}

// It is written once: an owner who takes it away, or changed it, is left alone; only a program that is gone is renewed.
func TestWriteSample(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's a: [dir]")
	path := filepath.Join(dir, "apps", SampleName+".yaml")
	read := func() string {
		b, _ := os.ReadFile(path)
		return string(b)
	}
	write := func(exe string) {
		t.Helper()
		if err := WriteSample(dir, exe, runAs()); err != nil {
			t.Fatal(err)
		}
	}
	write("/tmp/go-build1/atoll")
	def, problems := parse([]byte(read()))
	if def == nil || def.Command[0] != "/tmp/go-build1/atoll" || def.Command[2] != filepath.Join(dir, "app-data", SampleName) {
		t.Fatalf("%+v %v", def, problems)
	}
	write(program(t))
	if !strings.Contains(read(), program(t)) {
		t.Error("a program that is gone is still named")
	}
	write("/another/one")
	if !strings.Contains(read(), program(t)) {
		t.Error("a program that is there was replaced")
	}
	own := "command: [/no/such/program]\n"
	if err := os.WriteFile(path, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	if write("/x"); read() != own {
		t.Error("the owner's own words were replaced")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if write("/x"); read() != "" {
		t.Error("it came back")
	}
}
