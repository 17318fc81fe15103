package sequence

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"
)

// weighted draws one of several kinds of step, each as often as its weight says.
type weighted struct {
	weight int
	step   func(t *rapid.T) string
}

func pick(t *rapid.T, label string, words ...string) string {
	return rapid.SampledFrom(words).Draw(t, label)
}

func session(t *rapid.T) string {
	return pick(t, "session", "ada1", "ada1", "ada1", "mel1", "mel1", "ada2", "mel2", "max1", "vic1")
}

func talk(t *rapid.T) string { return pick(t, "talk", "c1", "c1", "c2") }

func category(t *rapid.T) string {
	return pick(t, "category", "apps", "apps", "settings", "content", "system", "mesh", "files", "wallet")
}

func question1(t *rapid.T) string {
	return pick(t, "question", "#last", "#last", "#last", "#last", "#1", "#2", "#3")
}

// call draws what a model asks for: mostly what can work, sometimes what must not.
func call(t *rapid.T) string {
	app := pick(t, "app", "photos", "photos", "photos", "jellyfin", "jelly", "ghost", "?")
	switch rapid.IntRange(0, 15).Draw(t, "tool") {
	case 0, 1, 2, 3:
		return "app_restart:" + app
	case 4, 5:
		return "app_start:" + app
	case 6:
		return "app_stop:" + app
	case 7:
		return "settings_set:" + pick(t, "theme", "dark", "light", "!wifi.key", "?")
	case 8, 9:
		return "app_logs:" + app
	case 10:
		return pick(t, "reads", "content_list", "mesh_status")
	case 11, 12:
		return "app_list"
	case 13:
		return pick(t, "closed", "system_info", "system_disk_status", "files_list", "wallet_status", "settings_get")
	case 14:
		return pick(t, "unknown", "app_wipe", "App_Restart:photos", "app_restart ")
	}
	return "app_restart:photos"
}

func plan(t *rapid.T) string {
	var words []string
	for range rapid.SampledFrom([]int{0, 1, 1, 1, 1, 2, 2, 3, 9}).Draw(t, "answers") {
		if rapid.IntRange(0, 19).Draw(t, "cut") == 19 {
			words = append(words, "cut")
		}
		words = append(words, call(t))
		for range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "more") {
			words = append(words, call(t))
		}
		words = append(words, ";")
	}
	return strings.TrimSuffix(strings.Join(words, " "), " ;")
}

// kinds are the steps there are.
func kinds() []weighted {
	line := fmt.Sprintf
	fixed := func(words ...string) func(*rapid.T) string {
		return func(t *rapid.T) string { return pick(t, "step", words...) }
	}
	return []weighted{
		{26, func(t *rapid.T) string { return line("chat %s %s %s", session(t), talk(t), plan(t)) }},
		{8, func(t *rapid.T) string {
			return line("peer %s %s %s", pick(t, "peer", "pia", "pia", "pol"), talk(t), plan(t))
		}},
		{20, func(t *rapid.T) string {
			return line("approve %s %s%s", session(t), question1(t), pick(t, "how", "", "", "", "", " for 1h", " for 5m", " at-once", " wrong-key"))
		}},
		{8, func(t *rapid.T) string {
			return line("decline %s %s%s", session(t), question1(t), pick(t, "how", "", "", "", " wrong-key"))
		}},
		{3, func(t *rapid.T) string { return line("cancel %s %s", session(t), talk(t)) }},
		{2, func(t *rapid.T) string { return line("undo %s %s", session(t), talk(t)) }},
		{5, func(t *rapid.T) string {
			return line("grant %s %s%s", session(t), category(t), pick(t, "for", "", "", " 1h", " 5m"))
		}},
		{3, func(t *rapid.T) string { return line("close %s %s", session(t), category(t)) }},
		{3, func(t *rapid.T) string {
			return line("mode %s %s", session(t), pick(t, "mode", "confirm", "confirm", "read-only", "off"))
		}},
		{2, func(t *rapid.T) string {
			return line("role %s %s %s", session(t), pick(t, "who", "mel", "mel", "max", "vic", "ada"), pick(t, "role", "viewer", "member", "owner"))
		}},
		{2, func(t *rapid.T) string { return line("revoke %s %s", session(t), session(t)) }},
		{2, func(t *rapid.T) string { return line("listen %s %s", session(t), pick(t, "on", "on", "off", "off")) }},
		{4, func(t *rapid.T) string {
			return line("let %s%s %s", pick(t, "peer", "pia", "pia", "pol"), pick(t, "asking", " asking", " asking", ""),
				pick(t, "ceiling", "apps", "apps,content", "system,mesh,apps", "content", "none"))
		}},
		{3, fixed("swap photos", "set photos exited", "set jellyfin stopped", "swap jellyfin")},
		{3, fixed("handler well", "handler fail", "handler hang")},
		{1, fixed("summaries host", "summaries model")},
		{8, fixed("pass 2s", "pass 2s", "pass 1m", "pass 5m", "pass 1h", "pass 25h")},
		{4, fixed("wall 1s", "wall 10m", "wall -10m", "wall -1s", "wall 2h", "wall -2h")},
		{5, func(t *rapid.T) string {
			if n := rapid.IntRange(0, 12).Draw(t, "writes"); n > 0 {
				return line("kill after %d", n)
			}
			return "kill"
		}},
		{2, fixed("restart")},
	}
}

// rare are steps that take long.
func rare() []weighted {
	line := fmt.Sprintf
	return []weighted{
		{4, func(t *rapid.T) string { // what a summary was made of marks it (U3)
			return line("chat ada1 c1 app_logs:photos\nfill ada1 c1 %d\nchat ada1 c1 app_restart:photos", rapid.SampledFrom([]int{18, 26}).Draw(t, "turns"))
		}},
		{3, func(t *rapid.T) string {
			return line("fill %s %s %d", session(t), talk(t), rapid.SampledFrom([]int{18, 26}).Draw(t, "turns"))
		}},
		{2, func(t *rapid.T) string {
			return line("blank %s %d", session(t), rapid.IntRange(55, 61).Draw(t, "times"))
		}},
		{1, func(t *rapid.T) string { return "password " + pick(t, "who", "mel", "ada") }},
	}
}

func choose(t *rapid.T, kinds []weighted) string {
	sum := 0
	for _, k := range kinds {
		sum += k.weight
	}
	n := rapid.IntRange(0, sum-1).Draw(t, "kind")
	for _, k := range kinds {
		if n -= k.weight; n < 0 {
			return k.step(t)
		}
	}
	panic("unreachable: n is below the sum")
}

// beginnings are what most nodes are set to: with nothing open little happens.
func beginnings() []Script {
	return []Script{{"grant ada1 apps"}, {"grant ada1 apps", "let pia asking apps"}, {"grant ada1 apps", "grant ada1 settings", "grant ada1 content"},
		{"grant ada1 apps 1h"}, {}}
}

// draw makes a history.
func draw(t *rapid.T) Script {
	common, long := rapid.Custom(func(t *rapid.T) string { return choose(t, kinds()) }), rapid.Custom(func(t *rapid.T) string { return choose(t, rare()) })
	s := rapid.SampledFrom(beginnings()).Draw(t, "beginning")
	s = append(s[:len(s):len(s)], rapid.SliceOfN(common, 1, 12).Draw(t, "steps")...)
	if rapid.IntRange(0, 59).Draw(t, "rare") == 59 {
		at := rapid.IntRange(0, len(s)).Draw(t, "at")
		s = append(s[:at:at], append(Parse(long.Draw(t, "long")), s[at:]...)...)
	}
	return s
}
