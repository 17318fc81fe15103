package wallet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/rpc"
	"atoll/internal/secret"
)

// minedTo is an address on regtest whose key nobody here has.
const minedTo = "mipcBbFg9gMiCh81Kj8tqqdgoZub1ZJRfn"

// peer is a real program that a test runs and that ends with the test.
type peer struct {
	t       *testing.T
	program string
	dir     string
	address string // of its RPC server
	args    []string
	ready   string // what it says once it can be asked
	cmd     *exec.Cmd
	ended   chan struct{}
}

func newPeer(t *testing.T, name, ready, skip string, args ...string) *peer {
	program := installed(name)
	if program == "" {
		t.Skip(skip)
	}
	p := &peer{t: t, program: program, dir: t.TempDir(), address: strings.TrimPrefix(closed(t), "http://"), args: args, ready: ready}
	t.Cleanup(p.stop)
	return p
}

func newBtcd(t *testing.T, args ...string) *peer {
	return newPeer(t, "btcd", "RPC server listening on", "btcd is not installed: scripts/test installs it", append([]string{"--notls", "--rpcuser=atoll", "--rpcpass=" + canary,
		"--rpclimituser=lim", "--rpclimitpass=lim", "--nolisten", "--connect=127.0.0.1:1", "--nodnsseed"}, args...)...)
}

// installed finds a program on PATH or where "go install" puts it.
func installed(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	out, err := exec.Command("go", "env", "GOBIN", "GOPATH").Output()
	if err != nil {
		return ""
	}
	bin, root, _ := strings.Cut(strings.TrimSuffix(string(out), "\n"), "\n")
	if bin == "" {
		first, _, _ := strings.Cut(root, string(os.PathListSeparator))
		bin = filepath.Join(first, "bin")
	}
	path := filepath.Join(bin, name)
	if st, err := os.Stat(path); err != nil || st.IsDir() {
		return ""
	}
	return path
}

// start runs the program until it can be asked.
func (p *peer) start(more ...string) {
	p.t.Helper()
	conf := filepath.Join(p.dir, "empty.conf")
	if err := os.WriteFile(conf, nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.cmd = exec.Command(p.program, append(append([]string{"--rpclisten=" + p.address, "--logdir=" + p.dir, "--configfile=" + conf, "--datadir=" + p.dir},
		p.args...), more...)...)
	p.cmd.Env = []string{"HOME=" + p.dir, "PATH=" + os.Getenv("PATH")}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	cmd, ended, ready := p.cmd, make(chan struct{}), make(chan struct{})
	p.ended = ended
	go func() { // ends with the process, and stop waits for both
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), p.ready) {
				close(ready)
				break
			}
		}
		io.Copy(io.Discard, out)
		cmd.Wait()
	}()
	select {
	case <-ready:
		return
	case <-ended:
	case <-time.After(60 * time.Second):
	}
	p.t.Fatalf("%s does not start", filepath.Base(p.program))
}

func (p *peer) stop() {
	if p.cmd == nil {
		return
	}
	p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		p.cmd.Process.Kill()
		<-p.ended
	}
	p.cmd = nil
}

// tell calls a method that Atoll itself cannot.
func (p *peer) tell(method, params string) jsontext.Value {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, "http://"+p.address,
		strings.NewReader(`{"jsonrpc":"1.0","id":1,"method":"`+method+`","params":`+params+`}`))
	if err != nil {
		p.t.Fatal(err)
	}
	req.SetBasicAuth("atoll", canary)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var a struct {
		Result jsontext.Value `json:"result"`
		Error  jsontext.Value `json:"error"`
	}
	raw, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, json.Unmarshal(raw, &a)); err != nil || a.Error.Kind() == '{' {
		p.t.Fatalf("%s: %s, %v", method, raw, err)
	}
	return a.Result
}

func (p *peer) config(log io.Writer) Config {
	return Config{Log: slog.New(slog.NewTextHandler(log, nil)), URL: "http://" + p.address, User: "atoll",
		Password: func() (secret.String, error) { return secret.New(canary), nil }}
}

// Issue 3: the height that Atoll reads is that of a real node with mined blocks, through its stop and its start.
func TestBtcd(t *testing.T) {
	b := newBtcd(t, "--regtest", "--miningaddr="+minedTo)
	b.start()
	var log bytes.Buffer
	r := open(t, b.config(&log))
	s, err := r.Status(t.Context())
	if err != nil || s.Chain != "regtest" || *s.Height != 0 || *s.Synced {
		t.Fatalf("before a block: %+v, %v", s, err)
	}
	b.tell("generate", "[110]")
	r.renew()
	if s, err = r.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	if count := b.tell("getblockcount", "[]"); string(count) != "110" || strconv.FormatInt(*s.Height, 10) != string(count) || *s.Headers != 110 {
		t.Errorf("btcd counts %s, Atoll reads %d of %d", count, *s.Height, *s.Headers)
	}
	if !*s.Synced || *s.Peers != 0 || *s.Pruned || s.Wallet != WalletNotSupported || s.BalanceSat != nil || *s.Version < 260000 ||
		time.Since(s.TipTime).Abs() > time.Hour || len(s.Notes) != 1 || s.Notes[0] != NoteSyncNotTold {
		t.Errorf("%+v", s)
	}
	raw, err := rpc.Marshal(s)
	if err != nil || fence.Facts("wallet_status", s, string(raw)).IsOutside() {
		t.Errorf("%s, %v", raw, err)
	}
	for _, c := range []struct {
		user, password string
		reason         Reason
	}{{"atoll", canary + "x", WrongPassword}, {"nobody", canary, WrongPassword}, {"lim", "lim", Refused}} {
		cfg := b.config(&log)
		cfg.User, cfg.Password = c.user, func() (secret.String, error) { return secret.New(c.password), nil }
		if rep := open(t, cfg).Probe(t.Context()); rep.Reason != c.reason || strings.Contains(rep.Problem, canary) {
			t.Errorf("%s: %+v", c.user, rep)
		}
	}
	if rep := r.Probe(t.Context()); !rep.Reachable || !strings.Contains(strings.Join(rep.Advice, "\n"), "has no wallet") {
		t.Errorf("%+v", rep)
	}
	b.stop()
	r.renew()
	if _, err := r.Status(t.Context()); !fault.Is(err, fault.Unavailable) || !strings.Contains(fault.Of(err).Public, "nothing listens") {
		t.Errorf("stopped: %v", err)
	}
	b.start() // on regtest it begins anew
	b.tell("generate", "[7]")
	r.renew()
	if s, err := r.Status(t.Context()); err != nil || *s.Height != 7 {
		t.Errorf("started again: %+v, %v", s, err)
	}
	if log.Len() > 0 {
		t.Errorf("the log says %s", log.String())
	}
}

// The balance that Atoll reads is that of a real wallet: 105 blocks mined to it, of which the first 6 can be spent.
func TestBtcwallet(t *testing.T) {
	w := newPeer(t, "btcwallet", "Finished rescan for", "btcwallet is not installed: go install github.com/btcsuite/btcwallet@v0.16.10-0.20240718224643-db3a4a2543bd",
		"--simnet", "--noservertls", "--noclienttls", "--username=atoll", "--password="+canary)
	b := newBtcd(t, "--simnet")
	w.args = append(w.args, "--appdata="+w.dir, "--rpcconnect="+b.address)
	b.start()
	w.start("--createtemp")
	var address string
	if err := json.Unmarshal(w.tell("getnewaddress", "[]"), &address); err != nil {
		t.Fatal(err)
	}
	w.stop()
	b.stop()
	b.start("--miningaddr=" + address)
	b.tell("generate", "[105]")
	w.start()
	var log bytes.Buffer
	r := open(t, w.config(&log))
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	again := time.NewTicker(200 * time.Millisecond) // until the wallet has read the blocks
	defer again.Stop()
	for {
		r.renew()
		s, err := r.Status(ctx)
		if err == nil && s.BalanceSat != nil && s.BalanceSat.Confirmed > 0 {
			if s.BalanceSat.Confirmed != 6*50*100_000_000 || *s.Height != 105 || s.Chain != "simnet" || s.Wallet != WalletLoaded || s.BalanceSat.Pending != nil {
				t.Errorf("%+v, %+v", s, *s.BalanceSat)
			}
			break
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("no balance: %+v, %v", s, err)
		}
	}
	if log.Len() > 0 {
		t.Errorf("the log says %s", log.String())
	}
}

// The RPC port is not the only one that answers: the peers' port of a node speaks no HTTP.
func TestPeersPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close() // as Bitcoin Core does with what is no message
		}
	}()
	if rep := open(t, Config{Log: slog.New(slog.DiscardHandler), URL: "http://" + l.Addr().String(), User: "a",
		Password: func() (secret.String, error) { return secret.New(canary), nil }}).Probe(t.Context()); rep.Reason != BrokeOff {
		t.Errorf("%+v", rep)
	}
	l.Close()
	<-done
}
