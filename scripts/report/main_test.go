package main

import (
	"strings"
	"testing"
)

// A count that hides a failure would make every other test worthless.
func TestReport(t *testing.T) {
	tests := []struct {
		name, in string
		failed   int
		want     []string
		not      []string
	}{
		{"all pass", `{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`, 0, []string{"ok  \tp\t0.1s\n", "\n1 passed, 0 failed\n"}, []string{"chatter", "PASS"}},
		{"a failed test says why", `{"Action":"output","Package":"p","Test":"TestA","Output":"a_test.go:1: no\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
`, 1, []string{"a_test.go:1: no\n", "FAIL\tp", "0 passed, 1 failed\n"}, nil},
		{"what does not build", `{"Action":"build-output","ImportPath":"p","Output":"p.go:3: undefined: x\n"}
{"Action":"build-fail","ImportPath":"p"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","FailedBuild":"p"}
`, 1, []string{"undefined: x", "build failed", "0 passed, 1 failed\n"}, nil},
		{"a panic ends the package in mid-test", `{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p"}
`, 1, []string{"panic: test timed out", "1 passed, 1 failed\n"}, nil},
		{"a skipped test is named", `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:9: no docker\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
`, 0, []string{"TestA: a_test.go:9: no docker", "1 skipped\n", "0 passed, 0 failed\n"}, nil},
		{"what is no event is printed", "go: downloading x\nnull\n", 0, []string{"go: downloading x\n"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			failed, err := report(strings.NewReader(tt.in), &out)
			if err != nil || failed != tt.failed {
				t.Fatalf("failed %d, %v; want %d", failed, err, tt.failed)
			}
			for _, w := range tt.want {
				if !strings.Contains("\n"+out.String(), w) {
					t.Errorf("no %q in:\n%s", w, out.String())
				}
			}
			for _, n := range tt.not {
				if strings.Contains(out.String(), n) {
					t.Errorf("%q in:\n%s", n, out.String())
				}
			}
		})
	}
}
