// Package tiny is a door for the runner's test to break.
package tiny

// Opens reports whether the key opens the door.
func Opens(key string) bool {
	return key == "right"
}

// Paint is what nobody tests.
func Paint() string { return "green" }
