package systemd

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"atoll/internal/fault"
)

// The rule, run as JavaScript: exactly the listed units, the three verbs, this user, this action; all else is left to
// polkit's other rules.
func TestPolkitRule(t *testing.T) {
	units := []string{"nginx.service", `srv-a\x2db.mount`, `x"]; return polkit.Result.YES; //`, "a\u2028b"}
	rule := PolkitRule(`atoll`, units)
	if strings.Contains(rule, "\u2028") {
		t.Error("a line separator stands in the rule")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed: the rule is not run")
	}
	program := `
var rules = [];
var polkit = {Result: {YES: "yes"}, addRule: function(f) { rules.push(f); }};
` + rule + `
function ask(id, user, unit, verb) {
    var r = rules[0]({id: id, lookup: function(k) { return {unit: unit, verb: verb}[k]; }}, {user: user});
    console.log(r === undefined ? "-" : r);
}
var manage = "org.freedesktop.systemd1.manage-units";
ask(manage, "atoll", "nginx.service", "start");
ask(manage, "atoll", "nginx.service", "stop");
ask(manage, "atoll", "srv-a\\x2db.mount", "restart");
ask(manage, "atoll", "nginx.service", "reload");
ask(manage, "atoll", "nginx.service", "set-property");
ask(manage, "atoll", "sshd.service", "start");
ask(manage, "atoll", "nginx", "start");
ask(manage, "atoll", undefined, "start");
ask(manage, "atoll", "nginx.service", undefined);
ask(manage, "eve", "nginx.service", "start");
ask("org.freedesktop.systemd1.manage-unit-files", "atoll", "nginx.service", "start");
console.log(rules.length);
`
	out, err := exec.Command(node, "-e", program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got, want := strings.Fields(string(out)), "yes yes yes - - - - - - - - 1"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// helperUnits names the units for TestHelper, which is a part of asNobody.
const helperUnits = "ATOLL_TEST_UNITS"

// With a real polkit: without the rule nothing may be started, and the words name polkit; with it exactly the listed units
// may, by exactly this user. The journal is closed to this user, and the words name the group.
func asNobody(t *testing.T, p *peer) {
	if _, err := os.Stat("/usr/share/polkit-1/actions/org.freedesktop.policykit.policy"); err != nil {
		t.Skip("polkit is not installed: its rule is not tried")
	}
	const program = "/run/helper"
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(p.root+program, self, 0o755))
	listed, other := p.service(t, "allowed", "ExecStart=/bin/sleep 1000"), p.service(t, "other", "ExecStart=/bin/sleep 1000")
	ask := func() string {
		t.Helper()
		return p.run(t, "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "env", helperUnits+"="+listed+" "+other,
			program, "-test.run=^TestHelper$", "-test.v")
	}
	const denied = "start not_configured true\nstop rule false\n"
	if got := ask(); !strings.Contains(got, listed+"\n"+denied) || !strings.Contains(got, other+"\n"+denied) || !strings.Contains(got, "journal not_configured true\n") {
		t.Errorf("without the rule: %s", got)
	}
	must(t, os.WriteFile(p.root+RuleFile, []byte(PolkitRule("nobody", []string{listed})), 0o644))
	p.run(t, "systemctl", "restart", "polkit.service")
	if got := ask(); !strings.Contains(got, listed+"\nstart ok false\nstop ok false\n") || !strings.Contains(got, other+"\n"+denied) {
		t.Errorf("with the rule: %s", got)
	}
	must(t, os.WriteFile(p.root+RuleFile, []byte(PolkitRule("daemon", []string{listed})), 0o644))
	p.run(t, "systemctl", "restart", "polkit.service")
	if got := ask(); !strings.Contains(got, listed+"\n"+denied) {
		t.Errorf("with another user's rule: %s", got)
	}
}

// TestHelper is no test: it is run by asNobody as another user.
func TestHelper(t *testing.T) {
	units := strings.Fields(os.Getenv(helperUnits))
	if len(units) == 0 {
		t.Skip("a part of TestRealSystemd")
	}
	m, err := New(Config{Log: quiet(), Units: units})
	must(t, err)
	running(t, m)
	say := func(what string, err error, words string) {
		code, named := fault.Code("ok"), false
		if err != nil {
			code, named = fault.Of(err).Code, strings.Contains(fault.Of(err).Public, words)
		}
		fmt.Println(what, code, named)
	}
	_, err = m.Logs(t.Context(), units[0], 1)
	say("journal", err, "systemd-journal")
	for _, name := range units {
		fmt.Println(name)
		say("start", m.Start(t.Context(), name), "polkit rule")
		say("stop", m.Stop(t.Context(), name), "polkit rule")
	}
}
