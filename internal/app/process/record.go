package process

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/renameio/v2"

	"atoll/internal/app"
	"atoll/internal/folder"
)

// record is run/NAME.json: what is known of an app beyond the life of the node. It is written before the app's program
// runs and at every change of state.
type record struct {
	State       app.State `json:"state"`
	Since       time.Time `json:"since"`
	PID         int       `json:"pid,omitzero"`
	Start       uint64    `json:"start,omitzero"` // field 22 of /proc/PID/stat
	Boot        string    `json:"boot,omitempty"`
	Definition  string    `json:"definition,omitempty"` // hash of the one it was started by
	StopTimeout int64     `json:"stop_timeout_ns,omitzero"`
	ExitCode    *int      `json:"exit_code,omitempty"`
	Signal      string    `json:"signal,omitempty"`
	ExitUnknown bool      `json:"exit_unknown,omitzero"`
	Reason      string    `json:"reason,omitempty"`
	Restarts    int       `json:"restarts,omitzero"`
}

// maxRecord bounds one, in bytes.
const maxRecord = 64 << 10

func recordPath(dir, name string) string { return filepath.Join(dir, name+".json") }

func (r record) write(path string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(b, '\n'), 0o600)
}

// readRecord returns the zero record where there is none. A damaged one is set aside and reported.
func readRecord(path string) (record, error) {
	b, err := folder.ReadSmall(path, maxRecord)
	if os.IsNotExist(err) {
		return record{}, nil
	}
	var r record
	if err == nil {
		if err = json.Unmarshal(b, &r, json.RejectUnknownMembers(true)); err != nil {
			_ = os.Rename(path, path+".damaged")
		}
	}
	if err != nil {
		return record{}, err
	}
	return r, nil
}

// recorded lists the names that have a record.
func recorded(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok && appName.MatchString(name) {
			out = append(out, name)
		}
	}
	return out
}
