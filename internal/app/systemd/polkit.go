package systemd

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// RuleFile is where a PolkitRule belongs.
const RuleFile = "/etc/polkit-1/rules.d/50-atoll.rules"

// PolkitRule is a rule, for polkit 0.106 and later, that lets a user start, stop and restart exactly these units and
// nothing else.
func PolkitRule(user string, units []string) string {
	quoted := make([]string, len(units))
	for i, unit := range units {
		quoted[i] = quote(unit)
	}
	return `polkit.addRule(function(action, subject) {
    var units = [` + strings.Join(quoted, ", ") + `];
    var verbs = ["start", "stop", "restart"];
    if (action.id == "org.freedesktop.systemd1.manage-units" && subject.user == ` + quote(user) + ` &&
        units.indexOf(action.lookup("unit")) >= 0 && verbs.indexOf(action.lookup("verb")) >= 0) {
        return polkit.Result.YES;
    }
});
`
}

// quote writes a JavaScript string, which every JSON string is but for two line separators.
func quote(s string) string {
	b, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(s, "\uFFFD"))
	if err != nil {
		return `""` // unreachable unless the text is not UTF-8
	}
	return strings.NewReplacer("\u2028", `\u2028`, "\u2029", `\u2029`).Replace(string(b))
}
