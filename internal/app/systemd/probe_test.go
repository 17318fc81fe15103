package systemd

import (
	"os"
	"strings"
	"testing"

	"atoll/internal/app"
	"atoll/internal/fault"
)

// doctor: what is there, what is not, what is masked, and whether logs can be read. Nothing is started.
func probeReal(t *testing.T, p *peer) {
	there := p.service(t, "there", "ExecStart=/bin/sleep 1000")
	masked := p.name("hidden") + ".service"
	p.run(t, "systemctl", "mask", masked)
	cfg := Config{Log: quiet(), Units: []string{there, "nothing", masked}, Bus: "unix:path=" + p.root + "/run/dbus/system_bus_socket",
		Journalctl: p.journalctl}
	r, err := Probe(t.Context(), cfg)
	must(t, err)
	if r.Bus != nil || r.Version == "" || r.Journal != nil || r.User == "" || len(r.Units) != 3 {
		t.Fatalf("%+v", r)
	}
	if u := r.Units[0]; u.Name != there || u.State != app.Stopped || u.Problem != "" {
		t.Errorf("%+v", u)
	}
	if u := r.Units[1]; u.Name != "nothing.service" || u.State != "" || !strings.Contains(u.Problem, "no unit") {
		t.Errorf("%+v", u)
	}
	if u := r.Units[2]; u.State != app.Stopped || !strings.Contains(u.Problem, "masked") {
		t.Errorf("%+v", u)
	}
	if r.Rule != "" {
		t.Errorf("root needs no rule: %s", r.Rule)
	}
}

// Without a bus and a journal, each says why.
func TestProbeNothing(t *testing.T) {
	r, err := Probe(t.Context(), Config{Log: quiet(), Units: []string{"a"}, Bus: "unix:path=" + t.TempDir() + "/none", Journalctl: "/no/journalctl"})
	must(t, err)
	refused(t, r.Bus, fault.Unavailable, "there is no D-Bus at")
	refused(t, r.Journal, fault.NotConfigured, "not installed")
	if len(r.Units) != 0 || (r.Rule == "") != (os.Geteuid() == 0) {
		t.Errorf("%+v", r)
	}
	if _, err := Probe(t.Context(), Config{Log: quiet(), Units: []string{"a*"}}); err == nil {
		t.Error("a pattern was taken")
	}
}
