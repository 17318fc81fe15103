package claude_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"atoll/internal/model"
	"atoll/internal/model/claude"
	"atoll/internal/model/modeltest"
	"atoll/internal/secret"
)

const key = "sk-ant-canary-000"

func client(t *testing.T, s *modeltest.Server, idle time.Duration) *claude.Client {
	t.Helper()
	c, err := claude.New(claude.Config{Key: secret.New(key), Model: "claude-test", BaseURL: s.URL, Idle: idle})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestContract: B1, B2, B3, T12, F-D4, F-E3, F-E4, F-E5, F-E6.
func TestContract(t *testing.T) {
	modeltest.Run(t, func(t *testing.T, idle time.Duration, replies ...modeltest.Reply) model.Client {
		for i := range replies {
			if replies[i].Stop == "length" {
				replies[i].Stop = "max_tokens"
			}
		}
		s := modeltest.NewClaude(t, modeltest.Config{Replies: replies, Key: key})
		return client(t, s, idle)
	})
}

// TestMain: no stream that was ended leaves a goroutine behind (F-E4).
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
