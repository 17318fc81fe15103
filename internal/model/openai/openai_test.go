package openai_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"atoll/internal/model"
	"atoll/internal/model/modeltest"
	"atoll/internal/model/openai"
	"atoll/internal/secret"
)

const key = "sk-canary-000"

func client(t *testing.T, s *modeltest.Server, idle time.Duration) *openai.Client {
	t.Helper()
	c, err := openai.New(openai.Config{Key: secret.New(key), Model: "test-model", BaseURL: s.URL + "/v1", Idle: idle})
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
			if replies[i].Stop == "max_tokens" {
				replies[i].Stop = "length"
			}
		}
		s := modeltest.NewOpenAI(t, modeltest.Config{Replies: replies, Key: key})
		return client(t, s, idle)
	})
}

// TestMain: no stream that was ended leaves a goroutine behind (F-E4).
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRetry: B2, over a real connection: overloads and dropped connections pass, and one good answer comes out.
func TestRetry(t *testing.T) {
	s := modeltest.NewOpenAI(t, modeltest.Config{Replies: []modeltest.Reply{
		{Status: 529}, {Fault: modeltest.Abort}, {Fault: modeltest.Overload}, {Fault: modeltest.Reset}, {Status: 429}, {Text: []string{"at", " last"}, Out: 2},
	}})
	c := model.Retry(client(t, s, 0), model.RetryConfig{Jitter: func(time.Duration) time.Duration { return 0 }})
	var got []string
	a, err := c.Stream(t.Context(), modeltest.Ask("go"), func(d string) error { got = append(got, d); return nil })
	if err != nil || a.Text() != "at last" || len(got) != 2 || len(s.Seen()) != 6 || c.Info().Backend != "openai" {
		t.Errorf("got %q, %q, %d requests, %v", a.Text(), got, len(s.Seen()), err)
	}
}
