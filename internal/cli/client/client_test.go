package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/cli/client"
	"atoll/internal/cli/clitest"
	"atoll/internal/fault"
	"atoll/internal/secret"
)

func TestAddress(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1:8420": "http://127.0.0.1:8420", "http://Host:1/": "http://host:1", "https://h": "https://h",
		"unix:///a/b.sock": "unix:///a/b.sock", "unix:/a/b.sock": "unix:///a/b.sock", "/a/../b.sock": "unix:///b.sock", "[::1]:80": "http://[::1]:80",
		"": "", "ftp://x": "", "http://": "", "http://u:p@h": "", "http://h/path": "", "http://h?x=1": "", "unix:relative": "",
	} {
		got, err := client.Address(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v", in, got, err)
		}
	}
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]bool{"http://127.0.0.1:1": false, "http://localhost": false, "http://[::1]:1": false, "https://h": false,
		"unix:///a": false, "http://h": true, "http://10.0.0.1:1": true} {
		if client.Plain(in) != want {
			t.Errorf("%q: got %v", in, !want)
		}
	}
}

func TestLoginKeepsTheSession(t *testing.T) {
	n := clitest.New(t)
	n.Methods["apps.list"] = func(jsontext.Value) (any, error) { return map[string]int{"n": 1}, nil }
	c, err := client.New(client.Config{Address: n.URL, ChatTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Call(t.Context(), "apps.list", nil, nil); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("without a session: %v", err)
	}
	if _, err := c.Login(t.Context(), clitest.Username, secret.New("wrong")); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("with a wrong password: %v", err)
	}
	s, err := c.Login(t.Context(), clitest.Username, secret.New(clitest.Password))
	if err != nil || s.Token.Reveal() != clitest.Token || s.CSRF.Reveal() != clitest.CSRF || s.Role != "owner" {
		t.Fatalf("%+v, %v", s, err)
	}
	var result struct{ N int }
	if err := c.Call(t.Context(), "apps.list", nil, &result); err != nil {
		t.Error(err)
	}
}

func TestErrorsKeepCodeFieldAndWait(t *testing.T) {
	n := clitest.New(t)
	n.Methods["x.y"] = func(jsontext.Value) (any, error) {
		return nil, fault.New(fault.RateLimited, "too many").At("key").After(7 * time.Second)
	}
	f := fault.Of(n.Client().Call(t.Context(), "x.y", nil, nil))
	if f.Code != fault.RateLimited || f.Public != "too many" || f.Field != "key" || f.RetryAfter != 7*time.Second {
		t.Errorf("%+v", f)
	}
}

func TestUnreachableSaysHowToStart(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	defer html.Close()
	redirect := httptest.NewServer(http.RedirectHandler("http://example.invalid/", http.StatusTemporaryRedirect))
	defer redirect.Close()
	for address, words := range map[string]string{
		gone: "atoll serve", "unix://" + filepath.Join(t.TempDir(), "no.sock"): "atoll serve", html.URL: "no Atoll node", redirect.URL: "no Atoll node",
	} {
		c, err := client.New(client.Config{Address: address, ChatTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		err = c.Call(t.Context(), "node.version", nil, nil)
		if !errors.Is(err, client.ErrUnreachable) || !strings.Contains(fault.Of(err).Public, words) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestSocket(t *testing.T) {
	n := clitest.New(t)
	path := filepath.Join(t.TempDir(), "atoll.sock")
	n.Listen(path)
	n.Methods["node.version"] = func(jsontext.Value) (any, error) { return map[string]string{"version": "1"}, nil }
	c, err := client.New(client.Config{Address: path, ChatTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Call(t.Context(), "node.version", nil, nil); err != nil {
		t.Error(err)
	}
	if !c.Answers(t.Context()) {
		t.Error("it does not answer")
	}
}

func TestChatStreams(t *testing.T) {
	n := clitest.New(t)
	n.Chat = func(_ context.Context, req client.ChatRequest, emit clitest.Emit) {
		emit("start", map[string]string{"conversation": "c1"})
		emit("text", map[string]string{"delta": "Hel"})
		emit("something-new", []int{1})
		emit("text", map[string]string{"delta": "lo " + req.Message})
		emit("answer", client.Answer{Conversation: "c1", Answer: "Hello you"})
	}
	var text string
	a, err := n.Client().Chat(t.Context(), client.ChatRequest{Message: "you"}, func(ev client.ChatEvent) { text += ev.Delta })
	if err != nil || a.Answer != "Hello you" || text != "Hello you" {
		t.Errorf("%+v, %q, %v", a, text, err)
	}
}

func TestChatErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		chat func(context.Context, client.ChatRequest, clitest.Emit)
		code fault.Code
	}{
		"error event": {func(_ context.Context, _ client.ChatRequest, emit clitest.Emit) {
			emit("error", error(fault.New(fault.ModelFailed, "x")))
		}, fault.ModelFailed},
		"named error event": {func(_ context.Context, _ client.ChatRequest, emit clitest.Emit) {
			emit("error", map[string]any{"error": map[string]any{"message": "x", "data": map[string]any{"code": "busy"}}})
		}, fault.Busy},
		"broken off": {func(context.Context, client.ChatRequest, clitest.Emit) {}, fault.Unavailable},
	} {
		n := clitest.New(t)
		n.Chat = tt.chat
		if _, err := n.Client().Chat(t.Context(), client.ChatRequest{Message: "x"}, func(client.ChatEvent) {}); !fault.Is(err, tt.code) {
			t.Errorf("%s: %v", name, err)
		}
	}
	n := clitest.New(t)
	n.Methods["assistant.chat"] = func(jsontext.Value) (any, error) { return nil, fault.New(fault.Busy, "a turn runs") }
	if _, err := n.Client().Chat(t.Context(), client.ChatRequest{Message: "x"}, func(client.ChatEvent) {}); !fault.Is(err, fault.Busy) {
		t.Errorf("refused before the stream: %v", err)
	}
}

// C9: a client that gives up ends its request, which is what the node sees.
func TestChatGivesUpAfterItsTime(t *testing.T) {
	n := clitest.New(t)
	gone := make(chan struct{})
	n.Chat = func(ctx context.Context, _ client.ChatRequest, _ clitest.Emit) { <-ctx.Done(); close(gone) }
	c, err := client.New(client.Config{Address: n.URL, ChatTimeout: 50 * time.Millisecond, Session: n.Client().Session()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Chat(t.Context(), client.ChatRequest{Message: "x"}, func(client.ChatEvent) {}); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("%v", err)
	}
	<-gone
}

func TestEvents(t *testing.T) {
	n := clitest.New(t)
	c := n.Client()
	stream, err := c.Events(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	n.Publish("notice", map[string]int{"id": 1})
	ev, err := stream.Next()
	if err != nil || ev.Name != "notice" || ev.ID == "" || string(ev.Data) != `{"id":1}` {
		t.Errorf("%+v, %v", ev, err)
	}
	n.Break()
	if _, err := stream.Next(); err == nil {
		t.Error("a broken stream went on")
	}
	stranger, err := client.New(client.Config{Address: n.URL, ChatTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Events(t.Context(), ""); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("without a session: %v", err)
	}
}
