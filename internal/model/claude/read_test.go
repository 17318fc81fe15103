package claude

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/model"
	"atoll/internal/secret"
)

// body is a server that answers every request with the same bytes.
type body []byte

func (b body) Do(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(b))}, nil
}

// FuzzStream: whatever a server sends, the client neither panics nor lets a call through that it does not understand.
func FuzzStream(f *testing.F) {
	lines := func(events ...string) []byte {
		var b strings.Builder
		for _, e := range events {
			kind, _, _ := strings.Cut(strings.TrimPrefix(e, `{"type":"`), `"`)
			b.WriteString("event: " + kind + "\ndata: " + e + "\n\n")
		}
		return []byte(b.String())
	}
	f.Add(lines(`{"type":"message_start","message":{"usage":{"input_tokens":3}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`, `{"type":"message_stop"}`))
	f.Add(lines(`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"x","input":{"a":1}}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}`,
		`{"type":"content_block_stop"}`, `{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`, `{"type":"message_stop"}`))
	f.Add(lines(`{"type":"content_block_start","content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","delta":{"type":"signature_delta","signature":"s"}}`, `{"type":"content_block_stop"}`,
		`{"type":"error","error":{"type":"overloaded_error","message":"x"}}`))
	f.Add([]byte("event: content_block_start\ndata: {\"content_block\":7}\n\nevent: message_delta\ndata: []\n\n"))
	f.Add([]byte("data: {\"type\": \x00\xff\n\n"))
	wire, err := model.NewWire(model.WireConfig{Host: "test"})
	if err != nil {
		f.Fatal(err)
	}
	word := fence.Words("go")
	req := model.Request{Messages: []model.Message{{Role: model.User, Blocks: []model.Block{{Text: &word}}}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &Client{wire: wire, messages: service(body(data), &url.URL{Scheme: "http", Host: "test"}, secret.New("k"))}
		var heard strings.Builder
		a, err := c.Stream(t.Context(), req, func(d string) error { heard.WriteString(d); return nil })
		if heard.String() != a.Text() || !utf8.ValidString(a.Text()) || len(a.Text()) > model.MaxText {
			t.Errorf("heard %q, kept %q", heard.String(), a.Text())
		}
		if err != nil && (!fault.Is(err, fault.ModelFailed) || len(a.Calls()) > 0) {
			t.Errorf("got %+v and %v", a, err)
		}
		for _, call := range a.Calls() {
			if v := jsontext.Value(call.Args); call.Broken == "" && len(v) > 0 && (v.Kind() != '{' || !v.IsValid(jsontext.AllowDuplicateNames(true))) {
				t.Errorf("a call with %q is not marked", call.Args)
			}
			if call.Broken == "" && a.Stop != model.StopCalls {
				t.Errorf("a call of an answer that stopped with %d is not marked", a.Stop)
			}
		}
	})
}

// BenchmarkRead is what 200 chunks of an answer cost without a network.
func BenchmarkRead(b *testing.B) {
	data := []byte("event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n" + strings.Repeat("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"word \"}}\n\n", 200) + "event: content_block_stop\ndata: {\"type\":\"content_block_stop\"}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	wire, err := model.NewWire(model.WireConfig{Host: "test"})
	if err != nil {
		b.Fatal(err)
	}
	word := fence.Words("go")
	req := model.Request{Messages: []model.Message{{Role: model.User, Blocks: []model.Block{{Text: &word}}}}}
	c := &Client{wire: wire, messages: service(body(data), &url.URL{Scheme: "http", Host: "test"}, secret.New("k"))}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Stream(b.Context(), req, func(string) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
