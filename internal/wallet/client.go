package wallet

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// method is a question that may be put to the node. The list is closed and all of it only reads: what is not on it cannot
// be sent, and none takes a parameter. The zero method is none.
type method uint8

const (
	getBlockchainInfo method = iota + 1
	getNetworkInfo
	getInfo // what btcd has instead of getnetworkinfo
	getBalances
	getBalance // what btcwallet has instead of getbalances
	getWalletInfo
	listWallets
	methodEnd
)

func (m method) String() string {
	if m >= methodEnd {
		return ""
	}
	return [...]string{"", "getblockchaininfo", "getnetworkinfo", "getinfo", "getbalances", "getbalance", "getwalletinfo", "listwallets"}[m]
}

const (
	maxBody    = 1 << 20          // bytes of an answer; the largest real one is some kB
	maxHeader  = 64 << 10         // bytes of an answer's header
	dialTime   = 5 * time.Second  // also ends a dial that nobody waits for any more
	idleTime   = 20 * time.Second // below the 30 s after which Bitcoin Core closes
	maxMessage = 160              // bytes of a node's message that are passed on
)

// newHTTP makes a client that goes straight to the node: no proxy of the environment, no redirect, no second protocol.
func newHTTP() *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: dialTime}).DialContext,
			TLSHandshakeTimeout:    dialTime,
			DisableCompression:     true,
			MaxIdleConnsPerHost:    1,
			IdleConnTimeout:        idleTime,
			MaxResponseHeaderBytes: maxHeader,
		},
	}
}

// look is one row of questions with one reading of the secret. It belongs to one goroutine.
type look struct {
	room   *Room
	access access
	reread bool
	id     int64
}

func (r *Room) newLook() (*look, *problem) {
	a, p := r.access()
	return &look{room: r, access: a}, p
}

// ask puts a question. Where the node refuses the secret, it is read once more: a node that was restarted has a new
// cookie.
func (l *look) ask(ctx context.Context, m method) (jsontext.Value, *problem) {
	result, p := l.send(ctx, m)
	if p == nil || p.reason != WrongPassword || l.reread {
		return result, p
	}
	l.reread = true
	a, other := l.room.access()
	switch {
	case other != nil:
		return nil, other
	case a.same(l.access):
		return nil, p
	}
	l.access = a
	return l.send(ctx, m)
}

// wireRequest is JSON-RPC 1.0, which every version of Bitcoin Core, btcd and btcwallet takes.
type wireRequest struct {
	Version string   `json:"jsonrpc"`
	ID      int64    `json:"id"`
	Method  string   `json:"method"`
	Params  []string `json:"params"`
}

type wireAnswer struct {
	ID     *int64         `json:"id"`
	Result jsontext.Value `json:"result"`
	Error  *wireError     `json:"error"`
}

type wireError struct {
	Code    int64  `json:"code"`
	Message string `json:"message"`
}

func (l *look) send(ctx context.Context, m method) (jsontext.Value, *problem) {
	if m.String() == "" {
		return nil, notBitcoin(nil) // unreachable: the constants are the only methods
	}
	l.id++
	body, err := json.Marshal(wireRequest{Version: "1.0", ID: l.id, Method: m.String(), Params: []string{}})
	if err != nil {
		return nil, notBitcoin(err) // unreachable: the value is plain
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.room.url, bytes.NewReader(body))
	if err != nil {
		return nil, notBitcoin(err) // unreachable: New has checked the address
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header["X-Idempotency-Key"] = nil // not sent: tells net/http that a connection closed meanwhile is no reason to fail
	req.SetBasicAuth(l.access.user, l.access.password.Reveal())
	resp, err := l.room.http.Do(req)
	if err != nil {
		return nil, transport(ctx, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		return nil, l.room.wrongPassword()
	case resp.StatusCode == http.StatusForbidden:
		return nil, notAllowed(m)
	case err != nil:
		return nil, transport(ctx, err)
	case len(raw) > maxBody:
		return nil, tooLarge()
	}
	return l.read(resp.StatusCode, raw)
}

// read takes an answer apart. Bitcoin Core answers errors with status 404 or 500 and a JSON body, or with 200 where it
// speaks JSON-RPC 2.0.
func (l *look) read(status int, raw []byte) (jsontext.Value, *problem) {
	var a wireAnswer
	err := json.Unmarshal(raw, &a) // refuses names that occur twice
	switch {
	case status == http.StatusServiceUnavailable, status == http.StatusInternalServerError && bytes.HasPrefix(raw, []byte("Work queue")):
		return nil, busy()
	case status == http.StatusBadRequest && bytes.Contains(raw, []byte("HTTP request to an HTTPS server")):
		return nil, wantsTLS()
	case err != nil, a.ID == nil, *a.ID != l.id, a.Error == nil && (status != http.StatusOK || len(a.Result) == 0):
		return nil, notBitcoinStatus(status)
	case a.Error != nil:
		return nil, refusedBy(a.Error)
	}
	return a.Result, nil
}

// decode reads a result into v; members that Atoll does not know are left out, since every version adds some.
func decode(raw jsontext.Value, v any) bool {
	return raw.Kind() == '{' && json.Unmarshal(raw, v) == nil
}
