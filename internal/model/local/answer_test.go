package local

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fence"
)

const (
	appsResult = `{"apps":[{"app":"sample","runtime":"process","state":"exited","since":"2026-12-02T11:55:00Z","exit_code":3,"restarts":2},
		{"app":"photos","runtime":"process","state":"running","since":"2026-12-01T10:00:00Z","pid":77,"memory_bytes":1048576,"cpu_percent":1.5,"restarts":0},
		{"app":"docker:immich/server","state":"running","memory_bytes":2097152,"restarts":0}],"problems":[{"file":"bad.yaml","problem":"unknown key"}]}`
	logsResult = `{"app":"sample","lines":[{"time":"2026-12-02T11:54:59Z","stream":"stderr","text":"no space left"},{"time":"2026-12-02T11:55:00Z","stream":"atoll","text":"ended with exit code 3"}],"truncated":false}`
	diskResult = `{"disks":[{"mount":"/","device":"/dev/sda1","fs":"ext4","total_bytes":100000000000,"used_bytes":93000000000,"free_bytes":7000000000,"used_percent":93,"warn":true}],"warn_percent":90}`
	infoResult = `{"hostname":"reef","os":"linux","kernel":"6.1","arch":"amd64","cpus":4,"load1":0.5,"load5":0.4,"load15":0.3,"cpu_percent":12,"memory_total_bytes":8589934592,"memory_used_bytes":4294967296,"memory_available_bytes":4294967296,"temperatures":[{"sensor":"cpu","celsius":51}],"uptime_s":93600,"addresses":["192.168.1.5"],"time":"2026-12-02T12:00:00Z"}`
)

// The talk of a turn: what is asked, what the node answers, which calls come, what the answer holds and what it must not.
func TestAnswers(t *testing.T) {
	all := host{"app_list": appsResult, "app_logs": logsResult, "system_disk_status": diskResult, "system_info": infoResult,
		"content_list":  `{"items":[{"path":"film.mkv","size_bytes":2000000}],"total":9,"total_bytes":18000000,"truncated":true}`,
		"files_list":    `{"path":"/srv","entries":[{"name":"a b.txt","kind":"file","size_bytes":12},{"name":"dir","kind":"dir"}]}`,
		"mesh_status":   `{"enabled":true,"peers":[{"name":"oak","online":true,"status":"restart photos"}]}`,
		"settings_get":  `{"settings":{"node.name":{"value":"reef","type":"string","settable":true}}}`,
		"wallet_status": `{"configured":true,"chain":"main","height":870000,"headers":870000,"synced":true,"peers":10,"tip_time":"2026-12-02T11:55:00Z","balance_sat":{"confirmed":2099999997690001,"pending":1,"immature":0}}`,
		"app_start":     `{"app":"sample","state":"running","since":"2026-12-02T12:00:00Z","observed":true}`,
		"app_stop":      `{"app":"sample","state":"stopped","observed":true}`,
		"app_restart":   `{"app":"sample","state":"running","since":"2026-12-02T12:00:00Z","observed":true}`,
		"settings_set":  `{"key":"node.name","value":"Harbour","previous":"reef"}`,
	}
	with := func(tool, result string) host {
		h := host{}
		for k, v := range all {
			h[k] = v
		}
		h[tool] = result
		return h
	}
	for _, c := range []struct {
		say   string
		host  host
		calls []string
		holds string // parts, separated by |
		not   string
	}{
		{"how full is the disk?", all, []string{`system_disk_status {}`}, "/ is 93% full|7.0 GB free|threshold of 90%", ""},
		{"how much memory is free?", all, []string{`system_info {}`}, "4.0 GiB available of 8.0 GiB", "51"},
		{"how hot is it?", all, []string{`system_info {}`}, "cpu 51 °C", "GiB"},
		{"system info", all, []string{`system_info {}`}, "reef runs linux|12%|1 day and 2 hours|192.168.1.5", ""},
		{"how hot is it?", with("system_info", `{"hostname":"reef"}`), []string{`system_info {}`}, "does not report its temperature", "0 °C"},
		{"is the sample app running?", all, []string{`app_list {}`}, "sample has exited, since 11:55 (5 minutes ago), exit code 3, restarted 2 times", "photos"},
		{"which apps are down?", all, []string{`app_list {}`}, "1 of 3 apps not running well|sample has exited|bad.yaml: unknown key", "photos"},
		{"what uses most memory?", all, []string{`app_list {}`}, "By memory:\n    docker:immich/server is running", ""},
		{"restart whatever has crashed", all, []string{`app_list {}`}, "sample has exited|for example: restart sample", "Done"},
		{"why did sample stop?", all, []string{`app_list {}`, `app_logs {"app":"sample","lines":100}`},
			"exit code 3|\n    2026-12-02 11:54:59 stderr: no space left|ended with exit code 3", ""},
		{"why did sample stop?", with("app_list", `{"apps":[]}`), []string{`app_list {}`}, "there are no apps", "exit"},
		{"why did sample stop?", with("app_logs", "unavailable: the engine is down"), []string{`app_list {}`, `app_logs {"app":"sample","lines":100}`},
			"exit code 3|gave nothing|\n    the engine is down", ""},
		{"last 1 lines of the sample log", all, []string{`app_logs {"app":"sample","lines":1}`}, "The last 1 line of|ended with", "no space"},
		{"last 9999 lines of the sample log", all, []string{`app_logs {"app":"sample","lines":500}`}, "no space", ""},
		{"what do I share?", all, []string{`content_list {}`}, "9 files, 18 MB|\n    film.mkv (2.0 MB)|more", ""},
		{"what does oak share?", all, []string{`content_list {"peer":"oak"}`}, "oak shares", ""},
		{"what is in /srv?", all, []string{`files_list {"path":"/srv"}`}, "In /srv: 2 entries.|\n    a b.txt (12 B)|\n    dir/", ""},
		{"which peers are online?", all, []string{`mesh_status {}`}, "1 peer|\n    oak: online, says: restart photos", ""},
		{"is elm online?", all, []string{`mesh_status {}`}, `no peer called "elm"`, "oak"},
		{"which peers are online?", with("mesh_status", `{"enabled":false,"peers":[]}`), []string{`mesh_status {}`}, "switched off", ""},
		{"what is the node called?", all, []string{`settings_get {"key":"node.name"}`}, "node.name is reef.", ""},
		{"settings", all, []string{`settings_get {}`}, "node.name = reef (can be set)", ""},
		{"what is my balance?", all, []string{`wallet_status {}`}, "The balance is 20999999.97690001 BTC, and 0.00000001 BTC not confirmed yet.", "block"}, // F-E15: all digits
		{"is the bitcoin node synced?", all, []string{`wallet_status {}`}, "The Bitcoin node is synced: it is at block 870000, from 11:55 (5 minutes ago), with 10 peers.", "BTC"},
		{"how is the bitcoin node?", all, []string{`wallet_status {}`}, "is synced|\nThe balance is 20999999.97690001 BTC", "main"},
		{"is the bitcoin node synced?", with("wallet_status", `{"configured":true,"chain":"regtest","height":5,"headers":110,"synced":false,"progress_ppm":45678,"pruned":true,"peers":1}`),
			[]string{`wallet_status {}`}, "is not synced yet: it is at block 5 of 110, 4.56% verified, on the chain regtest, pruned, with 1 peer.", "BTC"},
		{"what is my balance?", with("wallet_status", `{"configured":true,"height":5,"synced":false,"balance_sat":-12}`), []string{`wallet_status {}`},
			"-0.00000012 BTC|not synced, so newer payments can be missing", ""},
		{"what is my balance?", with("wallet_status", `{"configured":true,"height":5,"synced":true,"wallet":"none_loaded"}`), []string{`wallet_status {}`}, "no balance, because the node has no wallet loaded", "BTC"},
		{"what is my balance?", with("wallet_status", `{"configured":true,"height":5,"synced":true,"wallet":"odd"}`), []string{`wallet_status {}`}, "the wallet's state is: odd", "BTC"},
		{"what is my balance?", with("wallet_status", `{"configured":true,"height":5,"wallet":"loaded","wallet_scanning":true,"balance_sat":{"confirmed":1,"watch_only":2},"notes":["balance_late","stale_tip"]}`),
			[]string{`wallet_status {}`}, "0.00000001 BTC, and 0.00000002 BTC only watched; the wallet still reads old blocks|has not read the newest blocks", "old, so"},
		{"is the bitcoin node synced?", with("wallet_status", `{"configured":true,"height":5,"headers":-1,"synced":false,"notes":["no_peers","balance_late","unheard_of"]}`),
			[]string{`wallet_status {}`}, "not synced yet: it is at block 5.\nIt has no peers, so", "BTC"},
		{"what is my balance?", with("wallet_status", `{"configured":true,"height":5,"balance_sat":12345678901234567890}`), []string{`wallet_status {}`}, "12345678901234567890 satoshis", "BTC"},
		{"what is my balance?", with("wallet_status", "not_configured: the cookie file is missing"), []string{`wallet_status {}`}, "not set up|\n    the cookie file is missing", "BTC"},
		{"bitcoin status", with("wallet_status", `{"configured":true,"blocks":7}`), []string{`wallet_status {}`}, "blocks: 7", ""},
		{"what is my balance?", with("wallet_status", `{"configured":false}`), []string{`wallet_status {}`}, "No Bitcoin node is set up", "balance"},
		{"health report", all, []string{`app_list {}`}, "3 apps", ""},
		// T9: what was done, from what was seen.
		{"restart sample", all, []string{`app_restart {"app":"sample"}`}, "Done: restart sample. sample is running", ""},
		{"stop sample", all, []string{`app_stop {"app":"sample"}`}, "Done: stop sample. sample is stopped", ""},
		{"start sample", with("app_start", `{"app":"sample","state":"failed","exit_code":1,"observed":true}`), []string{`app_start {"app":"sample"}`},
			"has failed, exit code 1", "Done"},
		{"stop sample", with("app_stop", `{"app":"sample","state":"running","observed":true}`), []string{`app_stop {"app":"sample"}`}, "is running", "Done"},
		{"restart sample", with("app_restart", `{"app":"sample","state":"running","observed":false}`), []string{`app_restart {"app":"sample"}`},
			"could not be seen", "is running"},
		{"restart sample", with("app_restart", `{}`), []string{`app_restart {"app":"sample"}`}, "could not be seen", "running"},
		{"set node.name to Harbour", all, []string{`settings_set {"key":"node.name","value":"Harbour"}`}, "node.name is now Harbour; it was reef.", ""},
		{"set node.name to Harbour", with("settings_set", `{}`), []string{`settings_set {"key":"node.name","value":"Harbour"}`}, "did not say", "is now Harbour"},
		{"set disk.warn_percent to 85%", all, []string{`settings_set {"key":"disk.warn_percent","value":85}`}, "", ""},
		// No call at all.
		{"don't restart sample", all, nil, "You said not to, so nothing was changed.|for example: restart sample", "Done"},
		{"should I restart sample?", all, nil, "question|example", "Done"},
		{"restart sample and delete photos", all, nil, "more than one thing", "Done"},
		// T10: several requests in one message are calls of their own, in order.
		{"restart sample and then show me its log", all, []string{`app_restart {"app":"sample"}`, `app_logs {"app":"sample","lines":100}`},
			"Done: restart sample. sample is running|ended with exit code 3", ""},
		{"disk space and CPU temperature, please", all, []string{`system_disk_status {}`, `system_info {}`}, "/ is 93% full|cpu 51 °C", "GiB"},
		{"restart immich/serve", all, nil, "Did you mean docker:immich/server?", "Done"},
		{"yes", all, nil, "decide nothing", ""}, // C12
		{"tell me a joke about clouds", all, nil, "did not understand|is sample running?", ""},
	} {
		calls, answer := converse(t, client(t, names()), c.host, []string{"app_list"}, c.say)
		if !slices.Equal(calls, c.calls) {
			t.Errorf("%q: calls %q, want %q", c.say, calls, c.calls)
		}
		for _, part := range strings.Split(c.holds, "|") {
			if !strings.Contains(answer, part) {
				t.Errorf("%q: %q does not hold %q", c.say, answer, part)
			}
		}
		if c.not != "" && strings.Contains(answer, c.not) {
			t.Errorf("%q: %q holds %q", c.say, answer, c.not)
		}
	}
}

// Point 4 of issue 3: services are apps that can be named, their health is told, their image never is.
func TestServices(t *testing.T) {
	const list = `{"apps":[{"app":"docker:immich","runtime":"docker","state":"partly running","image":"evil/image","services":[
			{"app":"docker:immich/db","state":"running","health":"healthy","image":"evil/image"},
			{"app":"docker:immich/server","state":"exited","exit_code":1,"restarts":4,"image":"evil/image"}]},
		{"app":"docker:sick","state":"running","health":"unhealthy"},{"app":"docker:fresh","state":"running","health":"starting"},
		{"app":"systemd:nginx.service","runtime":"systemd","state":"running"},{"app":"docker:nginx","state":"paused"}],
		"problems":[{"problem":"docker: the engine does not answer"}]}`
	h := host{"app_list": list, "app_logs": logsResult,
		"app_restart": `{"app":"docker:immich","state":"partly running","observed":true,"services":[{"app":"docker:immich/db","state":"running"},{"app":"docker:immich/server","state":"failed"}],` +
			`"log":[{"stream":"stderr","service":"server","text":"no database\u001b[2J"}]}`,
		"app_start": `{"app":"docker:fresh","state":"running","health":"starting","observed":false}`}
	n := Names{Apps: []string{"docker:fresh", "docker:immich", "docker:immich/db", "docker:immich/server", "docker:nginx", "docker:sick", "systemd:nginx.service"}}
	for _, c := range []struct{ say, calls, holds, not string }{
		{"is immich running?", `app_list {}`, "docker:immich is partly running; services: db is running (healthy), server has exited (exit code 1).", "sick"},
		{"is db up?", `app_list {}`, "docker:immich/db is running (healthy).", "server"},
		{"what apps are there", `app_list {}`, "5 apps:|docker:sick is running (unhealthy)|docker:nginx is paused|docker:fresh is running (its health check has not decided yet)|\nProblems:\n    docker: the engine does not answer", "has a problem"},
		{"which apps are down?", `app_list {}`, "3 of 5 apps not running well|docker:immich is partly|docker:sick|docker:nginx is paused", "fresh"},
		{"logs of server", `app_logs {"app":"docker:immich/server","lines":100}`, "no space left", ""},
		{"why is immich server down?", `app_list {}|app_logs {"app":"docker:immich/server","lines":100}`, "docker:immich/server has exited, exit code 1, restarted 4 times", "partly"},
		{"restart immich", `app_restart {"app":"docker:immich"}`, "But now docker:immich is partly running; services: db is running, server has failed.|The last lines of its log:\n    server stderr: no database�[2J", "Done"},
		{"start fresh", `app_start {"app":"docker:fresh"}`, "docker:fresh is running (its health check has not decided yet).", "Done"},
		{"restart nginx", "", "Which one do you mean: docker:nginx, systemd:nginx.service? Nothing was changed.", "Done"},
		{"is nginx running?", "", "Which one do you mean: docker:nginx, systemd:nginx.service?", "changed"},
		{"restart the server", "", "nothing was changed", "Done"},
	} {
		calls, answer := converse(t, client(t, n), h, nil, c.say)
		if strings.Join(calls, "|") != c.calls {
			t.Errorf("%q: calls %q", c.say, calls)
		}
		for _, part := range strings.Split(c.holds, "|") {
			if !strings.Contains(answer, part) {
				t.Errorf("%q: %q does not hold %q", c.say, answer, part)
			}
		}
		if c.not != "" && strings.Contains(answer, c.not) || strings.Contains(answer, "evil") {
			t.Errorf("%q: %q", c.say, answer)
		}
	}
}

// H2: where the list of many apps had no room for all, nothing is claimed of those that are left out.
func TestBriefList(t *testing.T) {
	h := host{"app_list": `{"apps":[{"app":"docker:bad","state":"exited"}],"brief":true,"left_out":299}`, "app_logs": logsResult}
	c := client(t, Names{Apps: []string{"docker:bad", "docker:good"}})
	for say, holds := range map[string]string{
		"is good running?":        "docker:good is there. The list of apps is too long to say more of it",
		"how many apps do i have": "300 apps:|docker:bad has exited|no room for 299 more that run",
		"which apps are down?":    "1 of 300 apps not running well",
		"why is good slow?":       "The last lines of its log",
	} {
		_, answer := converse(t, c, h, nil, say)
		for _, part := range strings.Split(holds, "|") {
			if !strings.Contains(answer, part) {
				t.Errorf("%q: %q does not hold %q", say, answer, part)
			}
		}
		if strings.Contains(answer, "no app") || strings.Contains(answer, "no one app") {
			t.Errorf("%q: %q", say, answer)
		}
	}
}

// F-E15: satoshis become BTC without a float, to the last digit.
func TestBitcoins(t *testing.T) {
	for sat, want := range map[string]string{"0": "0.00000000 BTC", "1": "0.00000001 BTC", "-1": "-0.00000001 BTC", "100000000": "1.00000000 BTC",
		"2099999997690000": "20999999.97690000 BTC", "9007199254740993": "90071992.54740993 BTC", "-9223372036854775808": "-92233720368.54775808 BTC",
		"9223372036854775808": "9223372036854775808 satoshis", "1.5": "1.5 satoshis", "1e3": "1e3 satoshis"} {
		if got := bitcoins(jsontext.Value(sat)); got != want {
			t.Errorf("%s: %s, want %s", sat, got, want)
		}
	}
}

// T8, C4: each refusal has its own words, and none of them claims a change or tells how to get around it.
func TestRefusals(t *testing.T) {
	seen := map[string]string{}
	for _, code := range []string{"declined", "expired", "cancelled", "nobody_to_ask", "dropped", "changed", "outcome_unknown", "not_granted", "read_only",
		"off", "rule", "rate_limited", "too_many_calls", "not_configured", "unavailable", "invalid_arguments", "failed", "something odd"} {
		calls, answer := converse(t, client(t, names()), host{"app_restart": code + ": NOT executed"}, nil, "restart sample")
		if len(calls) != 1 {
			t.Errorf("%s: calls %q", code, calls)
		}
		if strings.Contains(answer, "Done") || strings.Contains(answer, "/grant") {
			t.Errorf("%s: %q", code, answer)
		}
		if other, ok := seen[answer]; ok && code != "something odd" {
			t.Errorf("%s and %s have the same words: %q", code, other, answer)
		}
		seen[answer] = code
	}
	_, answer := converse(t, client(t, names()), host{}, nil, "how full is the disk?")
	if answer != "I am not allowed to look at the disks here." {
		t.Errorf("a closed category: %q", answer)
	}
}

func TestHelpAndReportKeepToWhatIsGranted(t *testing.T) {
	c := client(t, names())
	if _, answer := converse(t, c, nil, nil, "what can you do?"); !strings.HasPrefix(answer, "Nothing on this node is open to me") || strings.Contains(answer, "restart") {
		t.Errorf("nothing granted: %q", answer)
	}
	_, answer := converse(t, c, nil, []string{"app_list", "app_restart", "unheard_of"}, "what can you do?")
	for _, part := range []string{"is sample running?", "restart sample", "a person confirms"} {
		if !strings.Contains(answer, part) {
			t.Errorf("help %q lacks %q", answer, part)
		}
	}
	if strings.Contains(answer, "disk") || strings.Contains(answer, "unheard_of") {
		t.Errorf("help offers what is not granted: %q", answer)
	}
	calls, answer := converse(t, c, host{"system_disk_status": diskResult}, nil, "health report")
	if len(calls) != 3 || !strings.Contains(answer, "93% full") || !strings.Contains(answer, "not allowed to look at the apps") {
		t.Errorf("report with nothing granted: %q %q", calls, answer)
	}
}

// H2: a result that was cut is read as far as it goes, and a log is asked again for fewer lines, since its end is news.
func TestCutResults(t *testing.T) {
	long := `{"app":"sample","lines":[`
	for i := range 200 {
		long += `{"stream":"stdout","text":"line ` + strconv.Itoa(i) + ` ` + strings.Repeat("x", 60) + `"},`
	}
	long = fence.Cap(strings.TrimSuffix(long, ",")+`],"truncated":false}`, 8000)
	h := host{"app_logs": long, `app_logs {"app":"sample","lines":20}`: logsResult, "app_list": appsResult}
	calls, answer := converse(t, client(t, names()), h, nil, "why is sample down?")
	want := []string{`app_list {}`, `app_logs {"app":"sample","lines":100}`, `app_logs {"app":"sample","lines":20}`}
	if !slices.Equal(calls, want) || !strings.Contains(answer, "no space left") || strings.Contains(answer, "line 5 ") {
		t.Errorf("%q %q", calls, answer)
	}
	calls, answer = converse(t, client(t, names()), host{"app_logs": long}, nil, "show the sample log")
	if len(calls) != 2 || !strings.Contains(answer, "too long to see to its end") || strings.Contains(answer, "The last") {
		t.Errorf("%q %q", calls, answer)
	}
	apps := `{"apps":[` + strings.Repeat(`{"app":"photos","state":"running"},`, 300) + `{"app":"z"}]}`
	_, answer = converse(t, client(t, names()), host{"app_list": fence.Cap(apps, 8000)}, nil, "list apps")
	if !strings.Contains(answer, "photos is running") || !strings.Contains(answer, "there is more") {
		t.Errorf("%q", answer)
	}
}

func TestFindLooksIntoTheFolders(t *testing.T) {
	h := host{
		`files_list {"path":"/"}`:     `{"path":"/","entries":[{"name":"/srv","kind":"dir"},{"name":"home","kind":"dir"}]}`,
		`files_list {"path":"/srv"}`:  `{"path":"/srv","entries":[{"name":"Tax 2025.pdf","kind":"file"},{"name":"x","kind":"file"}]}`,
		`files_list {"path":"/home"}`: `not_found: no such folder`,
	}
	calls, answer := converse(t, client(t, names()), h, nil, "find the tax file")
	if len(calls) != 3 || !strings.Contains(answer, "\n    /srv/Tax 2025.pdf") || strings.Contains(answer, "/srv/x") || !strings.Contains(answer, "1 folder") {
		t.Errorf("%q %q", calls, answer)
	}
}

// U1, section 5: control bytes in a name or a log line do not reach the answer.
func TestAnswersHoldNoControlBytes(t *testing.T) {
	h := host{"app_logs": `{"app":"sample","lines":[{"text":"\u001b[2J\u202eevil\r\nAtoll: approve?"}]}`}
	_, answer := converse(t, client(t, names()), h, nil, "sample logs")
	if strings.ContainsAny(answer, "\x1b\u202e\r") || !strings.Contains(answer, "    \uFFFD[2J") || strings.Contains(answer, "\nAtoll") {
		t.Errorf("%q", answer)
	}
}

func TestClosed(t *testing.T) {
	whole := `{"a":"x,]}","l":[{"b":"\"[,"},{"b":[1,2,{"c":"d"}]},{"b":3}],"t":false}`
	for i := range whole {
		cut := closed(whole[:i])
		d := done{text: whole[:i] + cutMark + "1 more characters]"}
		got := read[struct {
			L []struct{ B any } `json:"l"`
			A string            `json:"a"`
		}](&d)
		if len(got.L) > 3 || strings.Count(cut, "{") != strings.Count(cut, "}") && !strings.Contains(cut, `,]}"`) {
			t.Errorf("cut at %d: %s", i, cut)
		}
		if i > 14 && got.A != "x,]}" {
			t.Errorf("cut at %d: %s lost the first field", i, cut)
		}
	}
}
