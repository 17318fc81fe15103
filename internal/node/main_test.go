package node

import (
	"os"
	"testing"

	"atoll/internal/app/process"
)

// TestMain lets this binary be the program that the sample app is launched by.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case process.LaunchArg:
			os.Exit(process.Launch())
		case process.SampleArg:
			os.Exit(process.Sample(os.Args[2:], os.Stdout, os.Stderr))
		}
	}
	os.Exit(m.Run())
}
