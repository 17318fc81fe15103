package openai

import (
	"bytes"
	"io"
	"net/http"
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
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3}}\n\ndata: [DONE]\n\n"))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"x\",\"arguments\":\"{\\\"a\\\":\"}}]}}]}\n" +
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"1}\"}},{\"function\":{\"name\":\"y\",\"arguments\":{}}}]},\"finish_reason\":\"tool_calls\"}]}\n"))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":-1,\"id\":7,\"function\":{\"name\":null,\"arguments\":[]}}]},\"finish_reason\":\"length\"}]}\n"))
	f.Add([]byte("{\"error\":{\"message\":\"x\",\"code\":429}}\n"))
	f.Add([]byte(": ping\n\nevent: x\r\ndata:{\"error\":\"y\"}"))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":[{\"text\":\"\xff\"}]}}]}\ndata: \n"))
	wire, err := model.NewWire(model.WireConfig{Host: "test"})
	if err != nil {
		f.Fatal(err)
	}
	word := fence.Words("go")
	req := model.Request{Messages: []model.Message{{Role: model.User, Blocks: []model.Block{{Text: &word}}}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &Client{wire: wire, api: library(body(data), "http://test/v1", secret.New("k"))}
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
			if call.Broken == "" && (a.Stop != model.StopCalls || call.Name == "" || call.ID == "") {
				t.Errorf("stop %d, call %+v is not marked", a.Stop, *call)
			}
		}
	})
}

// BenchmarkRead is what 200 chunks of an answer cost without a network.
func BenchmarkRead(b *testing.B) {
	data := []byte("" + strings.Repeat("data: {\"id\":\"chatcmpl-test\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"},\"finish_reason\":null}]}\n\n", 200) + "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	wire, err := model.NewWire(model.WireConfig{Host: "test"})
	if err != nil {
		b.Fatal(err)
	}
	word := fence.Words("go")
	req := model.Request{Messages: []model.Message{{Role: model.User, Blocks: []model.Block{{Text: &word}}}}}
	c := &Client{wire: wire, api: library(body(data), "http://test/v1", secret.New("k"))}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Stream(b.Context(), req, func(string) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
