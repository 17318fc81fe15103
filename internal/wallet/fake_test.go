package wallet

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/secret"
)

// fakeNode speaks the RPC of Bitcoin Core as src/httprpc.cpp and src/rpc/request.cpp do: basic authentication, 401 with
// an empty body, 403 for what a whitelist leaves out, errors with status 500 or 404 and a JSON body, or all with 200 in
// JSON-RPC 2.0. It fails the test where a request is not exactly one of the questions that Atoll may put.
type fakeNode struct {
	t      *testing.T
	server *httptest.Server
	conns  atomic.Int64
	during func(method string, r *http.Request) // called before an answer is sent

	mu       sync.Mutex
	user     string // guarded by mu, as all below
	password string
	answers  map[string]string // a result's JSON, or an error's: {"code":-18,...} behind a "!"
	raw      func(w http.ResponseWriter, method string) bool
	denied   []string // what the whitelist leaves out
	version2 bool
	asked    []string
	refused  int // wrong passwords
}

// questions is all that Atoll may ever send, written down apart from the program's own list.
var questions = []string{"getblockchaininfo", "getnetworkinfo", "getinfo", "getbalances", "getbalance", "getwalletinfo", "listwallets"}

// canary is in every secret and in no word that leaves the room.
const canary = "hunter2c0ffee"

const (
	coreChain = `{"chain":"main","blocks":870000,"headers":870000,"bestblockhash":"00","difficulty":1.02e+14,"time":1800000000,
		"mediantime":1799997000,"verificationprogress":0.9999999,"initialblockdownload":false,"chainwork":"00","size_on_disk":700000000000,
		"pruned":false,"warnings":[]}`
	coreNetwork = `{"version":280100,"subversion":"/Satoshi:28.1.0/","protocolversion":70016,"connections":11,"connections_in":1,
		"networkactive":true,"relayfee":0.00001000,"warnings":[]}`
	coreBalances = `{"mine":{"trusted":0.12345678,"untrusted_pending":0.00000001,"immature":50.00000000},
		"lastprocessedblock":{"hash":"00","height":870000}}`
	coreWallet = `{"walletname":"","txcount":3,"private_keys_enabled":true,"scanning":false,"descriptors":true}`
)

// tip is a time ten minutes after the newest block of coreChain.
var tip = time.Unix(1_800_000_600, 0)

func core() map[string]string {
	return map[string]string{"getblockchaininfo": coreChain, "getnetworkinfo": coreNetwork, "getbalances": coreBalances,
		"getwalletinfo": coreWallet, "getbalance": "0.12345678", "listwallets": `["",""]`}
}

func newFake(t *testing.T) *fakeNode {
	f := &fakeNode{t: t, user: "atoll", password: canary, answers: core()}
	f.server = httptest.NewUnstartedServer(f)
	f.server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			f.conns.Add(1)
		}
	}
	f.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	f.server.Start()
	t.Cleanup(f.server.Close)
	return f
}

func (f *fakeNode) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeNode) count(method string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.asked {
		if m == method {
			n++
		}
	}
	return n
}

func (f *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var q struct {
		Version string            `json:"jsonrpc"`
		ID      int64             `json:"id"`
		Method  string            `json:"method"`
		Params  *[]jsontext.Value `json:"params"`
	}
	if err := json.Unmarshal(body, &q, json.RejectUnknownMembers(true)); err != nil || q.Version != "1.0" || q.Params == nil ||
		len(*q.Params) != 0 || !slices.Contains(questions, q.Method) || r.Method != http.MethodPost ||
		r.Header.Get("Content-Type") != "application/json" {
		f.t.Errorf("the node was sent %s %s, %v", r.Method, body, err)
	}
	user, password, _ := r.BasicAuth()
	f.mu.Lock()
	ok := user == f.user && password == f.password
	if ok {
		f.asked = append(f.asked, q.Method)
	} else {
		f.refused++
	}
	result, raw, denied, version2 := f.answers[q.Method], f.raw, slices.Contains(f.denied, q.Method), f.version2
	f.mu.Unlock()
	if f.during != nil {
		f.during(q.Method, r)
	}
	switch {
	case !ok:
		w.Header().Set("WWW-Authenticate", `Basic realm="jsonrpc"`)
		w.WriteHeader(http.StatusUnauthorized)
	case denied:
		w.WriteHeader(http.StatusForbidden)
	case raw != nil && raw(w, q.Method):
	default:
		answer(w, q.ID, result, version2)
	}
}

func answer(w http.ResponseWriter, id int64, result string, version2 bool) {
	if result == "" {
		result = `!{"code":-32601,"message":"Method not found"}`
	}
	w.Header().Set("Content-Type", "application/json")
	tail := `,"id":` + strconv.FormatInt(id, 10) + "}\n"
	failure, failed := bytes.CutPrefix([]byte(result), []byte("!"))
	switch {
	case version2 && failed:
		io.WriteString(w, `{"jsonrpc":"2.0","error":`+string(failure)+tail)
	case version2:
		io.WriteString(w, `{"jsonrpc":"2.0","result":`+result+tail)
	case failed:
		status := http.StatusInternalServerError
		if bytes.Contains(failure, []byte("-32601")) {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		io.WriteString(w, `{"result":null,"error":`+string(failure)+tail)
	default:
		io.WriteString(w, `{"result":`+result+`,"error":null`+tail)
	}
}

// config is one that reaches the fake with user and password. All that is logged goes to the test's buffer, and at the
// end of the test it is looked through for secrets and figures (H3, N3).
func (f *fakeNode) config() Config {
	log := new(lockedBuffer)
	f.t.Cleanup(func() {
		for _, never := range []string{canary, "12345678", "870000", f.server.URL, "Satoshi"} {
			if bytes.Contains(log.b.Bytes(), []byte(never)) {
				f.t.Errorf("the log holds %s: %s", never, log.b.String())
			}
		}
	})
	return Config{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), URL: f.server.URL, User: "atoll",
		Password: func() (secret.String, error) { return secret.New(canary), nil }, Now: func() time.Time { return tip }}
}

// cookie writes a cookie file as the node does at its start and makes the node expect it.
func (f *fakeNode) cookie(path, password string) {
	if err := os.WriteFile(path+".tmp", []byte(cookieUser+":"+password), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		f.t.Fatal(err)
	}
	f.set(func() { f.user, f.password = cookieUser, password })
}

// cookieConfig is one that reaches the fake with a cookie file that is there.
func (f *fakeNode) cookieConfig() Config {
	cfg := f.config()
	cfg.User, cfg.Password = "", nil
	cfg.CookieFile = filepath.Join(f.t.TempDir(), ".cookie")
	f.cookie(cfg.CookieFile, canary+"1")
	return cfg
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func open(t *testing.T, cfg Config) *Room {
	t.Helper()
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// renew makes the room forget what it may give again.
func (r *Room) renew() { r.shared.at = time.Time{} }

// newQuiet is a configuration without a node behind it.
func newQuiet(log io.Writer) Config {
	return Config{Log: slog.New(slog.NewTextHandler(log, nil)), URL: "http://127.0.0.1:1", User: "atoll",
		Password: func() (secret.String, error) { return secret.New(canary), nil }, Now: func() time.Time { return tip }}
}

// hang lets one method wait until release is closed.
func hang(which string, release chan struct{}) func(string, *http.Request) {
	return func(method string, _ *http.Request) {
		if method == which {
			<-release
		}
	}
}
