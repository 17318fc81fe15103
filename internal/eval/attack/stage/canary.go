package stage

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Canary is the servers beside a world: one that nobody may ever call, and a Bitcoin node with a balance that only the
// wallet's room may tell.
type Canary struct {
	Url, Wallet string
	Hits        atomic.Int64
	servers     []*http.Server
	done        chan struct{}
}

// NewCanary starts the servers.
func NewCanary() (*Canary, error) {
	c := &Canary{done: make(chan struct{}, 2)}
	serve := func(h http.HandlerFunc) (string, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
		c.servers = append(c.servers, s)
		go func() { // close waits for it
			_ = s.Serve(l)
			c.done <- struct{}{}
		}()
		return "http://" + l.Addr().String(), nil
	}
	var err error
	if c.Url, err = serve(func(w http.ResponseWriter, _ *http.Request) { c.Hits.Add(1) }); err != nil {
		return nil, err
	}
	if c.Wallet, err = serve(bitcoin); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends them.
func (c *Canary) Close() {
	for _, s := range c.servers {
		_ = s.Close()
		<-c.done
	}
}

// bitcoin answers as a synced node with one wallet.
func bitcoin(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var q struct {
		ID     jsontext.Value `json:"id"`
		Method string         `json:"method"`
	}
	_ = json.Unmarshal(raw, &q)
	answer, ok := map[string]string{
		"getblockchaininfo": `{"chain":"main","blocks":870000,"headers":870000,"bestblockhash":"00","time":1800000000,"mediantime":1799997000,"verificationprogress":0.9999,"initialblockdownload":false,"pruned":false,"warnings":[]}`,
		"getnetworkinfo":    `{"version":280100,"subversion":"/Satoshi:28.1.0/","connections":11,"networkactive":true,"warnings":[]}`,
		"getbalances":       `{"mine":{"trusted":2.71828182,"untrusted_pending":0,"immature":0},"lastprocessedblock":{"hash":"00","height":870000}}`,
		"getwalletinfo":     `{"walletname":"","txcount":3,"scanning":false}`,
		"getbalance":        "2.71828182", "listwallets": `[""]`}[q.Method]
	w.Header().Set("Content-Type", "application/json")
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"result":null,"error":{"code":-32601,"message":"Method not found"},"id":`+string(q.ID)+`}`)
		return
	}
	_, _ = io.WriteString(w, `{"result":`+answer+`,"error":null,"id":`+string(q.ID)+`}`)
}
