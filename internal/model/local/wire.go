package local

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/model/local/sentence"
)

// The results as they are read here: by name, whatever is absent stays zero, whatever is new is passed over.
type (
	diskStatus struct {
		Disks []struct {
			Mount  string   `json:"mount"`
			Total  uint64   `json:"total_bytes"`
			Used   uint64   `json:"used_bytes"`
			Free   uint64   `json:"free_bytes"`
			Use    *float64 `json:"used_percent"`
			Warn   bool     `json:"warn"`
			FS     string   `json:"fs"`
			Device string   `json:"device"`
		} `json:"disks"`
		Warn int `json:"warn_percent"`
	}
	systemInfo struct {
		Hostname     string   `json:"hostname"`
		OS           string   `json:"os"`
		Kernel       string   `json:"kernel"`
		Arch         string   `json:"arch"`
		CPUs         int      `json:"cpus"`
		Load1        *float64 `json:"load1"`
		Load5        *float64 `json:"load5"`
		Load15       *float64 `json:"load15"`
		CPU          *float64 `json:"cpu_percent"`
		MemTotal     uint64   `json:"memory_total_bytes"`
		MemUsed      uint64   `json:"memory_used_bytes"`
		MemAvailable uint64   `json:"memory_available_bytes"`
		SwapTotal    uint64   `json:"swap_total_bytes"`
		SwapUsed     uint64   `json:"swap_used_bytes"`
		Temperatures []struct {
			Sensor  string  `json:"sensor"`
			Celsius float64 `json:"celsius"`
		} `json:"temperatures"`
		Uptime    float64   `json:"uptime_s"`
		Addresses []string  `json:"addresses"`
		Time      time.Time `json:"time"`
	}
	appRow struct {
		App      string     `json:"app"`
		Title    string     `json:"title"`
		Runtime  string     `json:"runtime"`
		State    string     `json:"state"`
		Since    *time.Time `json:"since"`
		PID      int        `json:"pid"`
		ExitCode *int       `json:"exit_code"`
		Signal   string     `json:"signal"`
		Reason   string     `json:"reason"`
		Restarts int        `json:"restarts"`
		CPU      *float64   `json:"cpu_percent"`
		Memory   *uint64    `json:"memory_bytes"`
		Observed *bool      `json:"observed"`
		Health   string     `json:"health"`
		Services []appRow   `json:"services"`
		Warning  string     `json:"warning"`
		Log      []logLine  `json:"log"`
	}
	logLine struct {
		Time    *time.Time `json:"time"`
		Stream  string     `json:"stream"`
		Service string     `json:"service"`
		Text    string     `json:"text"`
	}
	appList struct {
		Apps     []appRow `json:"apps"`
		Brief    bool     `json:"brief"`    // details and services that run as they should had no room
		LeftOut  int      `json:"left_out"` // nor had so many apps that do
		Problems []struct {
			File    string `json:"file"`
			Problem string `json:"problem"`
		} `json:"problems"`
	}
	appLogs struct {
		App       string    `json:"app"`
		Lines     []logLine `json:"lines"`
		Truncated bool      `json:"truncated"`
	}
	contentList struct {
		Items []struct {
			Peer     string    `json:"peer"`
			Path     string    `json:"path"`
			Size     uint64    `json:"size_bytes"`
			Modified time.Time `json:"modified"`
		} `json:"items"`
		Total      *int    `json:"total"`
		TotalBytes *uint64 `json:"total_bytes"`
		Truncated  bool    `json:"truncated"`
	}
	fileList struct {
		Path    string `json:"path"`
		Entries []struct {
			Name string `json:"name"`
			Kind string `json:"kind"`
			Size uint64 `json:"size_bytes"`
		} `json:"entries"`
		Truncated bool `json:"truncated"`
	}
	meshStatus struct {
		Enabled *bool `json:"enabled"`
		Peers   []struct {
			Name     string     `json:"name"`
			Label    string     `json:"label"`
			Status   string     `json:"status"`
			State    string     `json:"state"`
			Online   *bool      `json:"online"`
			LastSeen *time.Time `json:"last_seen"`
		} `json:"peers"`
	}
	walletStatus struct {
		Configured *bool          `json:"configured"`
		Chain      string         `json:"chain"`
		Height     *int64         `json:"height"`
		Headers    *int64         `json:"headers"`
		Synced     *bool          `json:"synced"`
		Progress   *int64         `json:"progress_ppm"`
		Pruned     bool           `json:"pruned"`
		Peers      *int           `json:"peers"`
		TipTime    time.Time      `json:"tip_time"`
		Balance    jsontext.Value `json:"balance_sat"`
		Wallet     string         `json:"wallet"` // why there is no balance
		Scanning   bool           `json:"wallet_scanning"`
		Notes      []string       `json:"notes"`
	}
	settingsGet struct {
		Settings map[string]struct {
			Value    jsontext.Value `json:"value"`
			Settable bool           `json:"settable"`
		} `json:"settings"`
	}
	settingsSet struct {
		Key      string         `json:"key"`
		Value    jsontext.Value `json:"value"`
		Previous jsontext.Value `json:"previous"`
	}
)

// cutMark is what fence.Cap leaves where a result was too long.
const cutMark = "\n[… cut here by Atoll: "

func (d done) cut() bool { return !d.error && strings.Contains(d.text, cutMark) }

// read decodes a result as far as it goes. A field of another type than expected stays zero, and so does all after it.
func read[T any](d *done) T {
	var v T
	text, _, cut := strings.Cut(d.text, cutMark)
	if cut {
		text = closed(text)
	}
	_ = json.Unmarshal([]byte(text), &v)
	return v
}

// closed makes JSON that was cut off whole again: it drops the entry that was cut and closes what is open.
func closed(s string) string {
	var stack []byte
	keep, keptStack := 0, ""
	inString := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{':
			stack = append(stack, '}')
		case c == '[':
			stack = append(stack, ']')
			keep, keptStack = i+1, string(stack)
		case c == '}' || c == ']':
			if len(stack) > 0 {
				stack = stack[:len(stack)-1]
			}
		case c == ',' && len(stack) > 0 && (stack[len(stack)-1] == ']' || len(stack) == 1):
			keep, keptStack = i, string(stack)
		}
	}
	out := []byte(s[:keep])
	for i := len(keptStack) - 1; i >= 0; i-- {
		out = append(out, keptStack[i])
	}
	return string(out)
}

// findApp finds an app or a service by its full name, or by a short one that only it has.
func findApp(rows []appRow, name string) (appRow, bool) {
	name = strings.ToLower(name)
	hit := map[string]appRow{}
	for _, r := range withServices(rows) {
		if strings.ToLower(r.App) == name {
			return r, true
		}
		if slices.Contains(sentence.Forms(r.App), name) {
			hit[r.App] = r
		}
	}
	if ids := sentence.Narrow(slices.Collect(maps.Keys(hit))); len(ids) == 1 {
		return hit[ids[0]], true
	}
	return appRow{}, false
}

// withServices lists each app and, after it, its services.
func withServices(rows []appRow) []appRow {
	var out []appRow
	for _, r := range rows {
		out = append(append(out, r), r.Services...)
	}
	return out
}
