package assistant

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// looksLikeCall reports whether an answer is a tool call written as text, as models without tool calling do (F-E5). It
// only leads to a note of the host: such text is shown and never run (T12).
func looksLikeCall(answer string) bool {
	s := strings.TrimSpace(answer)
	for _, mark := range []string{"<tool_call>", "<function_call>", "<|tool_call|>", "[TOOL_CALLS]"} {
		if strings.Contains(s, mark) {
			return true
		}
	}
	s = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(s, "```json"), "```"), "```"))
	if !strings.HasPrefix(s, "{") && !strings.HasPrefix(s, "[{") {
		return false
	}
	var one map[string]jsontext.Value
	if json.Unmarshal([]byte(s), &one) != nil {
		var many []map[string]jsontext.Value
		if json.Unmarshal([]byte(s), &many) != nil || len(many) == 0 {
			return false
		}
		one = many[0]
	}
	_, name := one["name"]
	_, tool := one["tool"]
	_, function := one["function"]
	for _, k := range []string{"arguments", "parameters", "args", "input"} {
		if _, ok := one[k]; ok && (name || tool || function) {
			return true
		}
	}
	return function
}
