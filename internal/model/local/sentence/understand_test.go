package sentence

import (
	"slices"
	"strings"
	"testing"
)

// want writes an Intent's telling fields in one line.
func want(in Intent) string {
	parts := []string{in.Kind, in.Tool}
	if in.Focus != "" && in.Kind != Say {
		parts = append(parts, in.Focus)
	}
	for _, s := range []string{in.App, in.Key, in.Path, in.Name} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	switch v := in.Value.(type) {
	case string:
		parts = append(parts, "="+v)
	case int64:
		parts = append(parts, "#"+strings.Repeat("i", int(min(v, 3))))
	}
	return strings.TrimSpace(strings.Join(parts, " "))
}

func TestReadsAreTolerant(t *testing.T) {
	l := english(t)
	for _, c := range [][2]string{
		{"How full is the disk?", "call system_disk_status"},
		{"hey, how full is my hard drive right now please?", "call system_disk_status"},
		{"how ful is the dsik", "call system_disk_status"},
		{"So... how much free space do I have left?!", "call system_disk_status"},
		{"i wonder if there is still enough room left on that old drive of ours", "call system_disk_status"},
		{"What's the temperature?", "call system_info temperature"},
		{"how hot is it and how much ram is used", "call system_info memory,temperature"},
		{"is the server busy?", "call system_info cpu"},
		{"why is my server so slow?", "call system_info"},
		{"is the sample app running?", "call app_list sample"},
		{"IS SAMPLE STILL RUNNING???", "call app_list sample"},
		{"is jelyfin running", "call app_list jellyfin"},
		{"is the immich server up", "call app_list docker:immich/server"},
		{"is smbd running?", "call app_list systemd:smbd.service"},
		{"which containers are down", "call app_list failed"},
		{"show me the logs of jellyfin", "call app_logs jellyfin"},
		{"last 50 lines of the jellyfin log", "call app_logs jellyfin"},
		{"could you look through the jellyfin logs for me and say whether anything is odd in there", "call app_logs jellyfin"},
		{"Why is jellyfin down?", "why app_logs jellyfin"},
		{"why did the sample app stop all of a sudden", "why app_logs sample"},
		{"jellyfin hangs, fix it.", "why app_logs jellyfin"},
		{"what's in /srv/Media", "call files_list /srv/Media"},
		{"list /private.", "call files_list /private"},
		{"Find the tax file.", "find files_list tax"},
		{"what does oak share?", "call content_list peer oak"},
		{"is node-b online?", "call mesh_status peer node-b"},
		{"what is the node called?", "call settings_get node.name"},
		{"what is ui.theme", "call settings_get key ui.theme"},
		{"is the bitcoin node synced?", "call wallet_status sync"},
		{"what is the balance?", "call wallet_status balance"},
		{"how far along is the sync?", "call wallet_status sync"},
		{"bitcoin status", "call wallet_status"},
		{"logs of server", "call app_logs docker:immich/server"},
		{"show me the logs of the server", "call app_logs docker:immich/server"},
		{"what is the server doing?", "call system_info cpu"}, // the machine
		{"is immich running", "call app_list docker:immich"},
		{"is immich db healthy?", "call app_list docker:immich/db"},
		{"why is db down", "why app_logs docker:immich/db"},
		{"is smbd.service up", "call app_list systemd:smbd.service"},
		{"give me a short health report", "report"},
		{"what can you do?", "help"},
		{"?", "help"},
		{"yes", "say"}, // C12
		{"Approve it.", "say"},
		{"send 5 to Ann", "say"},
		{"is the nginx app running?", "say"},  // two fit
		{"is nextcloud running?", "say"},      // none fits
		{"delete everything", "say"},          // nothing of the kind exists
		{"write me a poem about the sea", ""}, // unknown
		{"", ""},
		{"\n \t", ""},
	} {
		got := want(understand(l, known(), c[0]))
		if c[1] == "" {
			c[1] = Unknown
		}
		if got != c[1] {
			t.Errorf("%q: got %q, want %q", c[0], got, c[1])
		}
	}
}

func TestChanges(t *testing.T) {
	l := english(t)
	for _, c := range [][2]string{
		{"restart jellyfin", "call app_restart jellyfin"},
		{"  Restart Jellyfin!  ", "call app_restart jellyfin"},
		{"please, restart the sample app", "call app_restart sample"},
		{"restart jellyfin, please.", "call app_restart jellyfin"},
		{"can you restart jellyfin", "call app_restart jellyfin"},
		{"stop docker:immich/db", "call app_stop docker:immich/db"},
		{"stop immich/server", "call app_stop docker:immich/server"},
		{"turn the immich server off", "call app_stop docker:immich/server"},
		{"start smbd", "call app_start systemd:smbd.service"},
		{"start jellyfin up again", "call app_start jellyfin"},
		{"set node.name to Harbour", "call settings_set node.name =Harbour"},
		{"rename the node to Old Harbour please", "call settings_set node.name =Old Harbour"},
		{"set node.name to \"salt and pepper\"", "call settings_set node.name =salt and pepper"},
		{"turn the night mode on", "call settings_set ui.theme =dark"},
		{"switch to light mode", "call settings_set ui.theme =light"},
		{"set the language to German", "call settings_set ui.language =de"},
		{"speak french", "call settings_set ui.language =fr"},
		{"set disk.warn_percent to 3%", "call settings_set disk.warn_percent #iii"},
		{"warn me when a disk is 85 percent full", "call settings_set disk.warn_percent #iii"},

		{"restart jelyfin", "say"},                        // a slip in a name never picks an app for a change
		{"restrat jellyfin", "call app_restart jellyfin"}, // a person confirms it
		{"restart immich", "call app_restart docker:immich"},
		{"restart photoprism", "call app_restart docker:photoprism"}, // the project, not its service of that name
		{"stop db", "call app_stop docker:immich/db"},
		{"restart docker:nginx", "call app_restart docker:nginx"},
		{"start nginx.service", "call app_start systemd:nginx.service"},
		{"restart nginx", "say"}, // two apps fit
		{"restart everything", "say"},
		{"restart the server", "say"}, // the machine, not immich/server
		{"restart", "say"},
		{"stop it", "say"}, // nothing named before
		{"stop jellyfin stop sample", "say"},
		{"restart jellyfin\u200b", "say"},
		{"restart j\u0435llyfin", "say"}, // a Cyrillic letter
		{"set node.name to a\" and \"b", "say"},
		{"set node.name to", "say"},
		{"set the language to klingon", "say"},
		{"set disk.warn_percent to many", "say"},
		{"set wallet.url to http://evil", "say"},
		{"set admin.password to 1", "say"},
		{"stop trying to be funny", "say"},
		{"the log says \"restart me\". Do it for jellyfin.", "call app_logs jellyfin"},
	} {
		in := understand(l, known(), c[0])
		if got := want(in); got != c[1] {
			t.Errorf("%q: got %q, want %q (%s)", c[0], got, c[1], in.Text)
		}
	}
}

// Where the caller's apps are not known, any one word stands for itself and the choke point answers; never a sentence.
func TestChangesWithoutNames(t *testing.T) {
	l := english(t)
	for _, c := range [][2]string{
		{"restart jellyfin", "call app_restart jellyfin"},
		{"restart docker:immich/server", "call app_restart docker:immich/server"},
		{"is nextcloud running?", "call app_list nextcloud"},
		{"why is nextcloud down", "why app_logs nextcloud"},
		{"start over", "say"},
		{"stop that", "say"},
		{"stop", "say"},
		{"restart the node", "say"},
		{"stop the app called demo\u0301", "say"},
		{"stop -rf", "say"},
	} {
		if got := want(understand(l, Names{}, c[0])); got != c[1] {
			t.Errorf("%q: got %q, want %q", c[0], got, c[1])
		}
	}
	odd := Names{Apps: []string{"demo\u0301", "demo"}}
	if got := want(understand(l, odd, "Stop the app called demo\u0301.")); got != "call app_stop demo\u0301" {
		t.Errorf("an odd name: %q", got)
	}
}

func TestPronouns(t *testing.T) {
	l := english(t)
	for _, c := range []struct {
		names Names
		said  []string
		want  string
	}{
		{known(), []string{"is the sample app running?", "why did it stop?", "restart it"}, "call app_restart sample"},
		{known(), []string{"is the sample app running?", "how full is the disk?", "why did it stop?"}, "why app_logs sample"},
		{known(), []string{"is sample running", "is jellyfin running", "stop it please"}, "call app_stop jellyfin"},
		{known(), []string{"are sample and jellyfin fine?", "stop it"}, "say"}, // two, so it asks
		{known(), []string{"how full is the disk?", "restart it"}, "say"},      // none, so it asks
		{known(), []string{"is nginx fine", "restart it"}, "say"},              // it was ambiguous then
		{known(), []string{"is sample running", "why?"}, "why app_logs sample"},
		{known(), []string{"is sample running", "show me the log"}, "call app_logs sample"},
		{known(), []string{"show me the log"}, "say"},
		{known(), []string{"is sample running", "restart"}, "say"}, // a change names its app, or says "it"
		{Names{Apps: []string{"sample"}}, []string{"restart it"}, "call app_restart sample"},
		{Names{}, []string{"is the sample app running?", "restart it"}, "call app_restart sample"},
		{Names{}, []string{"restart it"}, "say"},
		{known(), []string{"restart sample", "it should not be restarted"}, "unknown"},
	} {
		in := understand(l, c.names, c.said...)
		if got := want(in); got != c.want {
			t.Errorf("%q: got %q, want %q (%s)", c.said, got, c.want, in.Text)
		}
	}
}

// U1: text of somebody else in the same message takes the right to change.
func TestMixedMessageChangesNothing(t *testing.T) {
	l := english(t)
	if in := l.Understand([]Said{{Words: "restart jellyfin", Mixed: true}}, known())[0]; in.Kind != Say || in.Exact {
		t.Errorf("a mixed message led to %s %s", in.Kind, in.Tool)
	}
}

func TestSettingsThatCannotBeSet(t *testing.T) {
	n := known()
	n.Settings = []string{"ui.theme"}
	if in := understand(english(t), n, "set node.name to harbour"); in.Kind != Say || !strings.Contains(in.Text, "ui.theme") {
		t.Errorf("got %s %s %q", in.Kind, in.Tool, in.Text)
	}
}

func TestExactOnlyToTheLetter(t *testing.T) {
	l := english(t)
	for m, exact := range map[string]bool{
		"how full is the disk?": true, "restart jellyfin": true, "why is jellyfin down": true, "what can you do": true, "hello": true,
		"how ful is the disk?": false, "is jelyfin running": false, "restart nextcloud": false, "restart jellyfin?": false,
		"stop it": false, "i wonder how much room is left on the drive": false, "write a poem": false, "is nginx running": false, "is immich running": true,
	} {
		if got := understand(l, known(), m).Exact; got != exact {
			t.Errorf("%q: exact = %v", m, got)
		}
	}
}

func TestNear(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"disk", "dsik", true}, {"disk", "disks", true}, {"disk", "risk", true}, {"disk", "disk", true}, {"up", "us", false},
		{"memory", "memroy", true}, {"memory", "mammary", false}, {"running", "runing", true}, {"größe", "grösse", false}} {
		if near(c.a, c.b) != c.want || near(c.b, c.a) != c.want {
			t.Errorf("near(%q, %q) != %v", c.a, c.b, c.want)
		}
	}
}

// FuzzUnderstand: no bytes make it fail, and a change comes only from a message that a template of it spells out whole.
func FuzzUnderstand(f *testing.F) {
	for _, s := range []string{"restart jellyfin", "set node.name to \"a b\"", "don't stop it", "why?\n", "\xff\xfe restart sample",
		"stop \u202ejellyfin", "warn me at 85%", "what’s up with “sample”", strings.Repeat("restart ", 39), "((((", "?", "…", "set node.name to x\r\n",
		strings.Repeat("set node name to ", 10), strings.Repeat("please could you ", 13) + "restart", strings.Repeat("turn it off and on again ", 6),
		strings.Repeat("it ", 40), "last 9999999999999999999999 lines of sample", "/"} {
		f.Add(s)
	}
	l := english(f)
	f.Fuzz(func(t *testing.T, m string) {
		for _, n := range []Names{known(), {}} {
			for _, in := range understandAll(l, n, "is sample running", m) {
				if in.Kind == Say && in.Text == "" || in.Kind == Call && in.Tool == "" {
					t.Fatalf("%q: an empty intent", m)
				}
				if !Changing(in.Tool) {
					continue
				}
				if in.App != "" && len(n.Apps) > 0 && !slices.Contains(n.Apps, in.App) {
					t.Fatalf("%q led to the unknown app %q", m, in.App)
				}
			}
		}
	})
}
