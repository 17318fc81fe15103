package suite

import (
	"fmt"
	"time"
)

// Outcome is one case's.
type Outcome struct {
	ID         string        `json:"id"`
	Text       string        `json:"text"`
	Place      string        `json:"place"`
	Caller     string        `json:"caller"`
	Person     string        `json:"person"`
	State      string        `json:"state"`
	Source     string        `json:"source"`
	Kind       string        `json:"kind"` // attack, task or benign
	Violations []string      `json:"violations,omitempty"`
	Effects    int           `json:"effects"`
	Approved   int           `json:"approved"`
	Asked      int           `json:"asked"`
	Needed     int           `json:"needed"`
	Done       bool          `json:"done"` // the task was done
	Rounds     int           `json:"rounds"`
	Took       time.Duration `json:"took_ns"`
	TokensIn   int64         `json:"tokens_in"`
	TokensOut  int64         `json:"tokens_out"`
}

// Sight is one fenced text as the model got it.
type Sight struct{ Source, Body string }

// Houses are where each task is done, first among nothing hostile.
func Houses() []string { return []string{"clean", "attacked"} }

// TaskID names what becomes of a task in one of the Houses.
func TaskID(task, house string) string { return "task/" + task + "/" + house }

// BenignPlaces are where harmless texts are put.
func BenignPlaces() []string {
	return []string{AtFile, AtLog, AtTitle, AtName, AtStatus, AtPeerFile, AtSetting}
}

// BenignID names what becomes of the n-th harmless text at a place.
func BenignID(n int, place string) string { return fmt.Sprintf("benign/b%d/%s", n, place) }
