package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/eval"
)

const (
	ownerName = "ada"
	password  = "correct horse battery staple"
)

// tally counts answers by what was asked and how it ended.
type tally struct {
	mu     sync.Mutex // guards counts
	counts map[string]int
}

func (t *tally) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[what]++
}

func (t *tally) all() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}

// sum adds up what starts with a prefix.
func (t *tally) sum(prefix string) int {
	n := 0
	for what, count := range t.all() {
		if strings.HasPrefix(what, prefix) {
			n += count
		}
	}
	return n
}

// lines is the table of the counts, sorted.
func (t *tally) lines() string {
	var b strings.Builder
	counts := t.all()
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "  %8d  %s\n", counts[what], what)
	}
	return b.String()
}

// person is one session. It logs in again when its session was taken away.
type person struct {
	name    string
	address string // of its own, as a trusted proxy tells it: logins are limited by address (G4)
	base    string
	client  *http.Client
	tally   *tally

	mu     sync.Mutex // guards the rest
	cookie string
	csrf   string
}

// answer is what came back of a call.
type answer struct {
	status int
	code   string // empty for success
	words  string
	result jsontext.Value
}

// errNoAnswer is a stream that ended without its last event.
var errNoAnswer = errors.New("the stream ended without an answer")

// call calls a method and counts how it ended. The error is the connection's.
func (p *person) call(ctx context.Context, method string, params any) (answer, error) {
	a, cookies, err := p.exchange(ctx, method, params, "application/json", nil)
	p.count(ctx, method, a, err)
	if err == nil && a.code == "" && (method == "auth.login") {
		p.take(a, cookies)
	}
	return a, err
}

// stream is call with server-sent events; each event's name goes to each, which ends the reading with false.
func (p *person) stream(ctx context.Context, method string, params any, each func(eval.Event) bool) (answer, error) {
	a, _, err := p.exchange(ctx, method, params, "text/event-stream", each)
	p.count(ctx, method+" (stream)", a, err)
	return a, err
}

func (p *person) count(ctx context.Context, what string, a answer, err error) {
	switch {
	case err != nil && ctx.Err() != nil:
		p.tally.add(what + ": left")
	case err != nil:
		p.tally.add(what + ": broken")
	case a.status >= 500:
		p.tally.add(fmt.Sprintf("%s: %d", what, a.status))
	case a.code != "":
		p.tally.add(what + ": " + a.code)
	default:
		p.tally.add(what + ": ok")
	}
}

func (p *person) take(a answer, cookies []*http.Cookie) {
	var login struct {
		CSRF string `json:"csrf"`
	}
	if json.Unmarshal(a.result, &login) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.csrf = login.CSRF
	for _, c := range cookies {
		if c.Name == "atoll_session" {
			p.cookie = c.Value
		}
	}
}

// login opens a new session; the old one, if any, is not sent along.
func (p *person) login(ctx context.Context) (answer, error) {
	p.mu.Lock()
	p.cookie, p.csrf = "", ""
	p.mu.Unlock()
	return p.call(ctx, "auth.login", map[string]any{"username": p.name, "password": password})
}

func (p *person) request(ctx context.Context, method string, params any, accept string) (*http.Request, error) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", p.base+"/rpc", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", accept)
	p.sign(req.Header)
	return req, nil
}

// sign puts the session's headers on a request.
func (p *person) sign(h http.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.Set("X-Forwarded-For", p.address)
	h.Set("X-CSRF-Token", p.csrf)
	if p.cookie != "" {
		h.Set("Cookie", "atoll_session="+p.cookie)
	}
}

func (p *person) exchange(ctx context.Context, method string, params any, accept string, each func(eval.Event) bool) (a answer, cookies []*http.Cookie, err error) {
	if params == nil {
		params = struct{}{}
	}
	req, err := p.request(ctx, method, params, accept)
	if err != nil {
		return a, nil, err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return a, nil, err
	}
	defer res.Body.Close()
	a.status = res.StatusCode
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		err := a.follow(res.Body, each)
		return a, nil, err
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return a, nil, err
	}
	var wire struct {
		Result jsontext.Value `json:"result"`
		Error  jsontext.Value `json:"error"`
	}
	if err := json.Unmarshal(body, &wire); err != nil {
		return a, nil, fmt.Errorf("%.200s: %w", body, err)
	}
	a.result = wire.Result
	a.fail(wire.Error)
	return a, res.Cookies(), nil
}

// fail reads an error object; none leaves the answer as it is.
func (a *answer) fail(raw jsontext.Value) {
	var e struct {
		Message string `json:"message"`
		Data    struct {
			Code string `json:"code"`
		} `json:"data"`
	}
	if len(raw) > 0 && json.Unmarshal(raw, &e) == nil {
		a.code, a.words = e.Data.Code, e.Message
	}
}

func (a *answer) follow(body io.Reader, each func(eval.Event) bool) error {
	ended := false
	err := eval.Stream(body, func(e eval.Event) bool {
		switch e.Name {
		case "answer":
			a.result, ended = e.Data, true
		case "error":
			a.fail(e.Data)
			ended = true
		}
		if each != nil && !each(e) {
			ended = true
		}
		return !ended
	})
	if err == nil && !ended {
		err = errNoAnswer
	}
	return err
}
