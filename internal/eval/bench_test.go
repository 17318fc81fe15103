package eval

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"atoll/internal/model"
	"atoll/internal/model/openai"
)

// chunks is how many pieces the benchmark's answer comes in.
const chunks = 200

// zeroModel answers at once: with a call of system_info, and, once it is given the result, with 200 chunks of text.
func zeroModel(b *testing.B) *httptest.Server {
	piece := func(delta string) string {
		return `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}` + "\n\n"
	}
	end := func(reason string) string {
		return `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}` + "\n\ndata: [DONE]\n\n"
	}
	call := []byte(piece(`{"role":"assistant","tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"system_info","arguments":"{}"}}]}`) + end("tool_calls"))
	word := []byte(piece(`{"content":"twenty characters ok "}`))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		if i := bytes.LastIndex(body, []byte(`"role":"`)); !bytes.HasPrefix(body[i:], []byte(`"role":"tool"`)) {
			_, _ = w.Write(call)
			return
		}
		f := w.(http.Flusher)
		for range chunks {
			_, _ = w.Write(word)
			f.Flush()
		}
		_, _ = w.Write([]byte(end("stop")))
	}))
	b.Cleanup(srv.Close)
	return srv
}

// bareServer is a hand-written loop over the same model with no policy at all: what any assistant over HTTP must do.
// It is the line that the node is measured against.
func bareServer(b *testing.B, modelURL string) *httptest.Server {
	type message struct {
		Role      string `json:"role"`
		Content   string `json:"content,omitempty"`
		ToolCalls []any  `json:"tool_calls,omitempty"`
		ToolID    string `json:"tool_call_id,omitempty"`
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Params struct {
				Message string `json:"message"`
			} `json:"params"`
		}
		if json.UnmarshalRead(r.Body, &in) != nil {
			http.Error(w, "bad", 400)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		messages := []message{{Role: "user", Content: in.Params.Message}}
		answer := ""
		for {
			body, _ := json.Marshal(map[string]any{"model": "m", "stream": true, "messages": messages})
			res, err := http.Post(modelURL+"/v1/chat/completions", "application/json", bytes.NewReader(body))
			if err != nil {
				return
			}
			called := false
			for sc := bufio.NewScanner(res.Body); sc.Scan(); {
				data, ok := strings.CutPrefix(sc.Text(), "data: ")
				if !ok || data == "[DONE]" {
					continue
				}
				var c struct {
					Choices []struct {
						Delta struct {
							Content   string `json:"content"`
							ToolCalls []any  `json:"tool_calls"`
						} `json:"delta"`
					} `json:"choices"`
				}
				if json.Unmarshal([]byte(data), &c) != nil || len(c.Choices) == 0 {
					continue
				}
				d := c.Choices[0].Delta
				if len(d.ToolCalls) > 0 {
					called = true
					messages = append(messages, message{Role: "assistant", ToolCalls: d.ToolCalls})
				}
				if d.Content != "" {
					answer += d.Content
					ev, _ := json.Marshal(map[string]string{"delta": d.Content})
					_, _ = fmt.Fprintf(w, "event: text\ndata: %s\n\n", ev)
					w.(http.Flusher).Flush()
				}
			}
			_ = res.Body.Close()
			if !called {
				break
			}
			messages = append(messages, message{Role: "tool", ToolID: "a", Content: `{"load1":0.5,"cpus":2}`})
		}
		ev, _ := json.Marshal(map[string]string{"answer": answer})
		_, _ = fmt.Fprintf(w, "event: answer\ndata: %s\n\n", ev)
	}))
	b.Cleanup(srv.Close)
	return srv
}

// turnClient sends one streamed chat and returns when the first text came and when the answer did.
type turnClient struct {
	base, cookie, csrf, conv string
	http                     *http.Client
}

func (c *turnClient) turn() (first, whole time.Duration, err error) {
	start := time.Now()
	body := `{"jsonrpc":"2.0","id":1,"method":"assistant.chat","params":{"conversation":"` + c.conv + `","message":"how is the machine?"}}`
	req, err := http.NewRequest("POST", c.base+"/rpc", strings.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("X-CSRF-Token", c.csrf)
	req.AddCookie(&http.Cookie{Name: "atoll_session", Value: c.cookie})
	res, err := c.http.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != 200 {
		msg, _ := io.ReadAll(res.Body)
		return 0, 0, fmt.Errorf("status %d: %s", res.StatusCode, msg)
	}
	answered := false
	in := bufio.NewReader(res.Body)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			break
		}
		switch {
		case first == 0 && bytes.HasPrefix(line, []byte("event: text")):
			first = time.Since(start)
		case bytes.HasPrefix(line, []byte("event: answer")):
			answered = true
		case bytes.HasPrefix(line, []byte("event: error")):
			rest, _ := io.ReadAll(in)
			return 0, 0, fmt.Errorf("error: %s", rest)
		}
	}
	if !answered {
		return 0, 0, fmt.Errorf("no answer")
	}
	return first, time.Since(start), nil
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure runs turns from some clients at once and reports what the issue asks for.
func measure(b *testing.B, clients []*turnClient, between func(turn int)) {
	b.Helper()
	var mu sync.Mutex
	var firsts, wholes []time.Duration
	for _, c := range clients { // connections and caches
		if _, _, err := c.turn(); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	start, used := time.Now(), cpu()
	n := 0
	var group sync.WaitGroup
	for _, c := range clients {
		group.Go(func() {
			for {
				mu.Lock()
				if n >= b.N {
					mu.Unlock()
					return
				}
				n++
				between(n)
				mu.Unlock()
				first, whole, err := c.turn()
				if err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				firsts, wholes = append(firsts, first), append(wholes, whole)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	took, spent := time.Since(start), cpu()-used
	b.StopTimer()
	slices.Sort(firsts)
	slices.Sort(wholes)
	at := func(d []time.Duration, q float64) float64 {
		return float64(d[int(q*float64(len(d)-1))].Microseconds()) / 1000
	}
	b.ReportMetric(at(wholes, 0.5), "ms/turn-p50")
	b.ReportMetric(at(wholes, 0.99), "ms/turn-p99")
	b.ReportMetric(at(firsts, 0.5), "ms/first-token")
	b.ReportMetric(float64(spent.Microseconds())/1000/float64(len(wholes)), "ms-cpu/turn")
	b.ReportMetric(float64(len(wholes))/took.Seconds(), "turns/s")
	b.ReportMetric(0, "ns/op")
}

func transport() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DialContext: (&net.Dialer{}).DialContext}}
}

// BenchmarkTurn compares a turn of the node, everything on, with the bare loop: one tool call and a 200-chunk streamed
// answer over HTTP, zero-latency model.
func BenchmarkTurn(b *testing.B) {
	zero := zeroModel(b)
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprintf("bare/clients=%d", clients), func(b *testing.B) {
			srv := bareServer(b, zero.URL)
			list := make([]*turnClient, clients)
			for i := range list {
				list[i] = &turnClient{base: srv.URL, http: transport()}
			}
			measure(b, list, func(int) {})
		})
		b.Run(fmt.Sprintf("node/clients=%d", clients), func(b *testing.B) {
			h := Open(b, Options{Model: openaiAt(b, zero.URL)})
			p := h.Owner()
			p.Grant("system")
			list := make([]*turnClient, clients)
			for i := range list { // each client is a person of its own
				name := fmt.Sprintf("user%d", i)
				p.Call("users.add", map[string]any{"username": name, "password": password, "role": "member"})
				h.Advance(6 * time.Minute)
				q := h.Login(name)
				list[i] = &turnClient{base: h.Base, cookie: q.cookie, csrf: q.csrf, http: transport()} // a new conversation a turn: the bare loop keeps none
			}
			h.Advance(6 * time.Minute)
			written := procIO(b, "write_bytes")
			measure(b, list, func(n int) {
				if n%30 == 0 {
					h.Advance(6 * time.Minute) // the limits are on, and a person would have waited
				}
			})
			b.ReportMetric(float64(procIO(b, "write_bytes")-written)/float64(b.N)/1024, "KiB-written/turn")
		})
	}
}

// BenchmarkLength is a turn in a conversation of 10 turns and in one of 5,000.
func BenchmarkLength(b *testing.B) {
	zero := zeroModel(b)
	for _, length := range []int{10, 5000} {
		b.Run(fmt.Sprintf("turns=%d", length), func(b *testing.B) {
			h := Open(b, Options{Model: openaiAt(b, zero.URL)})
			p := h.Owner()
			p.Grant("system")
			c := &turnClient{base: h.Base, cookie: p.cookie, csrf: p.csrf, conv: p.Chat("", "begin").Conversation, http: transport()}
			for i := range length {
				if i%30 == 0 {
					h.Advance(6 * time.Minute)
				}
				if _, _, err := c.turn(); err != nil {
					b.Fatal(err)
				}
			}
			measure(b, []*turnClient{c}, func(n int) {
				if n%30 == 0 {
					h.Advance(6 * time.Minute)
				}
			})
		})
	}
}

func openaiAt(b *testing.B, url string) model.Client {
	b.Helper()
	c, err := openai.New(openai.Config{BaseURL: url + "/v1", Model: "m"})
	if err != nil {
		b.Fatal(err)
	}
	return model.Retry(c, model.RetryConfig{})
}

// procIO reads one of the kernel's counts of what this process did: write_bytes is what went towards the disk.
func procIO(b *testing.B, field string) int64 {
	b.Helper()
	raw, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Skip("no /proc/self/io here")
	}
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, field+": "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n
		}
	}
	return 0
}
