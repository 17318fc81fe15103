package soak

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/node"
)

var (
	fuzzer   = flag.String("schemathesis", "", "the program schemathesis; without it TestAPIFuzz is skipped")
	examples = flag.Int("examples", 30, "how many cases of each method TestAPIFuzz lets it generate")
)

// checks are those of the fuzzer's that hold for this surface: no 5xx, answers as rpc.discover describes them, and what
// the description forbids refused.
const checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection"

// An outside fuzzer goes through every method as owner, as member, as viewer and as a stranger, driven by what
// rpc.discover says: no 5xx, no answer that the description does not know, no secret in any answer, and the node is
// afterwards what it was (G1, G5, section 6).
func TestAPIFuzz(t *testing.T) {
	if *fuzzer == "" {
		t.Skip("needs the program schemathesis: make apifuzz")
	}
	f := newFuzz(t)
	f.warm()
	f.soak.quiet()
	before, files := f.soak.srv.ask("collect"), f.soak.srv.files()
	for _, role := range []string{"stranger", "viewer", "member", "owner"} {
		f.run(role)
	}
	raw, err := os.ReadFile(f.soak.srv.log.Name())
	if err != nil || bytes.Contains(raw, []byte("panic")) {
		t.Errorf("the node's log tells of a panic: %v", err)
	}
	f.scan("the node's log", raw)
	f.soak.baseline, f.soak.baseFiles = before, files
	f.soak.settle()
	if err := f.soak.srv.stop(); err != nil {
		t.Errorf("the node did not stop in order: %v", err)
	}
	if rep, err := node.AuditVerify(t.Context(), f.soak.srv.dir, ""); err != nil || !rep.OK {
		t.Errorf("audit: %+v %v", rep, err)
	}
	for what, n := range f.soak.tally.all() {
		if strings.Contains(what, ": 5") || strings.HasSuffix(what, " failed") {
			t.Errorf("%d times %s", n, what)
		}
	}
	fmt.Printf("%s%d calls in all, %d answers scanned for %d secrets\n", f.soak.tally.lines(), f.calls, f.scanned, len(f.secrets))
}

// fuzz is a node with secrets planted, and the doors to it that the fuzzer is given.
type fuzz struct {
	t       *testing.T
	soak    *soak
	doc     document
	people  map[string][]*person // by role; several, since what a session may ask is limited
	secrets map[string]string    // what must stand in no answer → what it is

	mu      sync.Mutex // guards the rest
	calls   int
	scanned int
	next    int
}

// document is what rpc.discover tells of the methods.
type document struct {
	Methods []struct {
		Name    string `json:"name"`
		Summary string `json:"summary"`
		Params  []struct {
			Name     string         `json:"name"`
			Required bool           `json:"required"`
			Schema   jsontext.Value `json:"schema"`
		} `json:"params"`
		Result struct {
			Schema jsontext.Value `json:"schema"`
		} `json:"result"`
		Role    string `json:"x-role"`
		Streams bool   `json:"x-streams"`
	} `json:"methods"`
}

// patience is how long an answer may take.
const patience = time.Minute

// sessionsEach is how many sessions, each of its own account, the fuzzer has in one role.
const sessionsEach = 4

func newFuzz(t *testing.T) *fuzz {
	t.Helper()
	s := &soak{t: t, brain: &brain{}, tally: &tally{}}
	s.models = httptest.NewServer(s.brain)
	t.Cleanup(func() { s.models.CloseClientConnections(); s.models.Close() })
	s.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	s.srv = startServer(t, s.models.URL, "[mesh]\nenabled = true\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\ndiscover = false\n")
	s.owner = s.enter(ownerName)
	f := &fuzz{t: t, soak: s, people: map[string][]*person{}, secrets: map[string]string{}}
	if err := json.Unmarshal(s.must(s.owner, "rpc.discover", nil), &f.doc); err != nil || len(f.doc.Methods) < 50 {
		t.Fatalf("rpc.discover tells of %d methods: %v", len(f.doc.Methods), err)
	}
	grants := map[string]any{}
	for _, c := range []string{"apps", "system", "content", "settings", "files", "wallet", "mesh"} {
		grants[c] = map[string]any{"granted": true}
	}
	s.must(s.owner, "assistant.grants-set", map[string]any{"grants": grants})
	for _, role := range []string{"viewer", "member", "owner"} {
		for i := range sessionsEach {
			name := fmt.Sprintf("%s-%d", role, i)
			s.must(s.owner, "users.add", map[string]any{"username": name, "role": role, "password": password})
			f.people[role] = append(f.people[role], s.enter(name))
		}
	}
	f.people["stranger"] = []*person{{name: "stranger", address: "10.9.0.1", base: s.owner.base, client: s.client, tally: s.tally}}
	f.plant()
	return f
}

// warm has everybody chat once and look around, so that what is opened lazily is open before the first measurement.
func (f *fuzz) warm() {
	for _, list := range f.people {
		for _, p := range list {
			for _, method := range []string{"assistant.conversations", "audit.list", "mesh.peers", "content.list"} {
				_, _ = p.call(f.t.Context(), method, nil)
			}
			_, _ = p.call(f.t.Context(), "assistant.chat", map[string]any{"message": "hello"})
		}
	}
}

// plant collects what no answer may hold.
func (f *fuzz) plant() {
	f.secrets[password] = "a password"
	f.secrets["$argon2id$"] = "a password's hash"
	f.secrets["goroutine "] = "a stack"
	f.secrets["runtime error"] = "a crash's words"
	f.secrets[f.soak.srv.dir] = "the data directory's path"
	f.secrets[modelKey] = "the model's key"
	for _, list := range f.people {
		for _, p := range list {
			if p.cookie != "" {
				f.secrets[p.cookie] = "a session's token"
				f.secrets[p.csrf] = "a session's CSRF token"
			}
		}
	}
	err := filepath.WalkDir(f.soak.srv.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(filepath.Base(path), "key") {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil || len(raw) < 16 {
			return err
		}
		// Of a key in any coding, one that does not begin on its first byte shows too.
		f.secrets[hex.EncodeToString(raw[:16])] = path
		f.secrets[base64.StdEncoding.EncodeToString(raw[:15])] = path
		f.secrets[string(raw[:16])] = path
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if len(f.secrets) < 20 {
		f.t.Fatalf("only %d secrets are known", len(f.secrets))
	}
}

// scan looks for secrets in what came out.
func (f *fuzz) scan(where string, body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scanned++
	for secret, what := range f.secrets {
		if bytes.Contains(body, []byte(secret)) && !(where == "the node's log" && what == "the data directory's path") {
			f.t.Errorf("%s holds %s", where, what)
		}
	}
}

// run lets the fuzzer loose on one role's door.
func (f *fuzz) run(role string) {
	door := httptest.NewServer(f.door(role))
	defer door.Close()
	ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, *fuzzer, "run", door.URL+"/openapi.json", "--checks", checks, "--max-examples", fmt.Sprint(*examples),
		"--seed", fmt.Sprint(*seed), "--phases", "examples,coverage,fuzzing", "--workers", "2", "--request-timeout", fmt.Sprint(patience.Seconds()), "--continue-on-failure",
		"--suppress-health-check", "all", "--warnings", "off", "--no-color")
	cmd.Dir = f.t.TempDir()
	f.mu.Lock()
	was := f.calls
	f.mu.Unlock()
	out, err := cmd.CombinedOutput()
	if *outDir != "" {
		if err := os.WriteFile(filepath.Join(*outDir, "apifuzz-"+role+".txt"), out, 0o600); err != nil {
			f.t.Error(err)
		}
	}
	if err != nil {
		f.t.Errorf("as %s: %v\n%s", role, err, out[max(0, len(out)-6000):])
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Printf("as %s: %d calls\n", role, f.calls-was)
	if f.calls-was < len(f.doc.Methods)*10 {
		f.t.Errorf("as %s only %d calls were made", role, f.calls-was)
	}
}

// door maps one path a method to POST /rpc, in one role.
func (f *fuzz) door(role string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.MarshalWrite(w, f.openAPI(), json.Deterministic(true))
	})
	mux.HandleFunc("POST /m/{method}", func(w http.ResponseWriter, r *http.Request) {
		params, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		f.pass(w, role, r.PathValue("method"), params)
	})
	return mux
}

// pass takes one call to the node, and its answer back.
func (f *fuzz) pass(w http.ResponseWriter, role, method string, params []byte) {
	var res *http.Response
	var body []byte
	for try := range 2 * sessionsEach {
		p := f.pick(role)
		var err error
		if res, body, err = f.send(p, method, params); err != nil {
			f.t.Errorf("%s as %s: the node does not answer: %v; parameters %.300s", method, role, err, params)
			http.Error(w, "no answer", http.StatusBadGateway)
			return
		}
		wrong := method == "auth.login"                                                           // where 401 is the password's, and each try waits longer (G4)
		if res.StatusCode == http.StatusUnauthorized && role != "stranger" && !wrong && try < 2 { // it logged itself out, say
			f.again(p)
			continue
		}
		if res.StatusCode != http.StatusTooManyRequests || role == "stranger" {
			break
		}
	}
	f.scan(method+" as "+role, body)
	f.answer(w, role, method, res, body)
}

// again opens a new session for somebody whose session the fuzzer ended.
func (f *fuzz) again(p *person) {
	f.mu.Lock()
	p.mu.Lock()
	p.address = f.elsewhere()
	p.mu.Unlock()
	f.mu.Unlock()
	a, err := p.login(f.t.Context())
	if err != nil || a.code != "" {
		f.t.Errorf("%s cannot log in again: %s %v", p.name, a.words, err)
	}
}

// elsewhere is an address that nobody had: the limits by address are not what is tried here. f.mu is held.
func (f *fuzz) elsewhere() string {
	return fmt.Sprintf("10.%d.%d.%d", 16+f.calls>>16, f.calls>>8&255, f.calls&255)
}

// pick is the next session of a role.
func (f *fuzz) pick(role string) *person {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.next++
	return f.people[role][f.next%len(f.people[role])]
}

func (f *fuzz) send(p *person, method string, params []byte) (*http.Response, []byte, error) {
	if method == "users.remove" || method == "users.set-role" || method == "auth.passwd" { // it learns names from users.list; these are still needed
		for role := range f.people {
			params = bytes.ReplaceAll(params, []byte(role+"-"), []byte("former-"))
		}
	}
	name, _ := jsontext.AppendQuote(nil, method)
	text := `{"jsonrpc":"2.0","id":1,"method":` + string(name)
	if len(params) > 0 {
		text += `,"params":` + string(params)
	}
	// A wrong password waits up to half a minute (G4); a stream that follows a log has no end of its own.
	limit, accept := patience, "application/json"
	if method == "apps.follow" {
		limit, accept = time.Second, "text/event-stream"
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", p.base+"/rpc", strings.NewReader(text+"}"))
	if err != nil {
		return nil, nil, err
	}
	p.sign(req.Header)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", accept)
	if p.name == "stranger" {
		f.mu.Lock()
		req.Header.Set("X-Forwarded-For", f.elsewhere())
		f.mu.Unlock()
	}
	res, err := p.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if accept == "text/event-stream" && ctx.Err() != nil {
		err = nil
	}
	return res, body, err
}

// answer turns the wire's answer into one that has a status of its own for an application's error.
func (f *fuzz) answer(w http.ResponseWriter, role, method string, res *http.Response, body []byte) {
	var wire struct {
		Result jsontext.Value `json:"result"`
		Error  jsontext.Value `json:"error"`
	}
	status, out, how := res.StatusCode, jsontext.Value("{}"), "ok"
	if res.Header.Get("Content-Type") != "text/event-stream" {
		if err := json.Unmarshal(body, &wire); err != nil {
			f.t.Errorf("%s as %s: the answer is no JSON: %v %.200q", method, role, err, body)
		}
		out = wire.Result
	}
	if len(wire.Error) > 0 {
		var a answer
		a.fail(wire.Error)
		if out, how = wire.Error, a.code; status == http.StatusOK {
			status = http.StatusUnprocessableEntity
		}
	}
	f.soak.tally.add(fmt.Sprintf("as %s: %d %s", role, res.StatusCode, how))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(out)
}

// openAPI describes the door by what rpc.discover tells: one path a method.
func (f *fuzz) openAPI() map[string]any {
	problem := map[string]any{"description": "an error", "content": content(jsontext.Value(
		`{"type":"object","required":["code","message","data"],"properties":{"code":{"type":"integer"},"message":{"type":"string","minLength":1},"data":{"type":"object","required":["code"],"properties":{"code":{"type":"string"}}}}}`))}
	paths := map[string]any{}
	for _, m := range f.doc.Methods {
		properties, required := map[string]any{}, []string{}
		for _, p := range m.Params {
			properties[p.Name] = p.Schema
			if p.Required {
				required = append(required, p.Name)
			}
		}
		params := map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
		result := m.Result.Schema
		if m.Name == "apps.follow" {
			result = jsontext.Value("{}")
		}
		responses := map[string]any{"200": map[string]any{"description": "the result", "content": content(result)}}
		for _, status := range []string{"400", "401", "403", "404", "413", "422", "429"} {
			responses[status] = problem
		}
		paths["/m/"+m.Name] = map[string]any{"post": map[string]any{"operationId": m.Name, "summary": m.Summary,
			"requestBody": map[string]any{"required": len(required) > 0, "content": content(params)}, "responses": responses}}
	}
	return map[string]any{"openapi": "3.1.0", "info": map[string]any{"title": "Atoll", "version": "test"}, "paths": paths}
}

func content(schema any) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": schema}}
}
