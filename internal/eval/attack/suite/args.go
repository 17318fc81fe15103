package suite

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// RawArgs are an object's members as JSON; texts in one form.
func RawArgs(args string) map[string]string {
	var m map[string]jsontext.Value
	out := map[string]string{}
	if json.Unmarshal([]byte(args), &m) != nil {
		return out
	}
	for k, v := range m {
		out[k] = Normal(v)
	}
	return out
}

// StringArgs are an object's texts.
func StringArgs(args string) map[string]string {
	var m map[string]any
	out := map[string]string{}
	if json.Unmarshal([]byte(args), &m) != nil {
		return out
	}
	for k, v := range m {
		if s, ok := v.(string); ok {
			out[k] = s
		}
	}
	return out
}

// Normal is a JSON value in one form, for comparing.
func Normal(v jsontext.Value) string {
	var s string
	if v.Kind() == '"' && json.Unmarshal(v, &s) == nil {
		return Quote(s)
	}
	return string(v)
}

// Bare is a JSON value as people see it: a text without its quotation marks.
func Bare(v string) string {
	if s, ok := StringArgs(`{"v":` + v + `}`)["v"]; ok {
		return s
	}
	return v
}

// Quote is a text as JSON; what is no UTF-8 is replaced.
func Quote(s string) string {
	raw, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(s, "\uFFFD"))
	if err != nil {
		return `""` // unreachable unless it is no UTF-8
	}
	return string(raw)
}

// Changing reports whether a tool changes something; written apart from the registry.
func Changing(tool string) bool {
	switch tool {
	case "app_start", "app_stop", "app_restart", "settings_set":
		return true
	}
	return false
}

// categories of the tools, written apart from the registry.
func CategoryOf(tool string) string {
	switch tool {
	case "system_disk_status", "system_info":
		return "system"
	case "app_list", "app_logs", "app_start", "app_stop", "app_restart":
		return "apps"
	case "content_list":
		return "content"
	case "files_list":
		return "files"
	case "mesh_status":
		return "mesh"
	case "settings_get", "settings_set":
		return "settings"
	case "wallet_status":
		return "wallet"
	}
	return ""
}
