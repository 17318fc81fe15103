package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// bitcoin is a real Bitcoin node on a chain of its own.
type bitcoin struct {
	address string
	cmd     *exec.Cmd
}

// bitcoinCmd starts a node or has it find blocks: bitcoin start, bitcoin mine NUMBER. start sets BITCOIN, its address; it
// knows the user atoll by the password in the script's file bitcoin.pw.
func bitcoinCmd(ts *testscript.TestScript, neg bool, args []string) {
	h := houseOf(ts)
	switch {
	case neg || len(args) == 0:
		ts.Fatalf("usage: bitcoin start|mine NUMBER")
	case args[0] == "start":
		h.bitcoin = newBitcoin(ts)
		ts.Setenv("BITCOIN", "http://"+h.bitcoin.address)
	case args[0] == "mine" && len(args) == 2:
		if out := h.bitcoin.ask(ts, `{"jsonrpc":"1.0","id":1,"method":"generate","params":[`+args[1]+`]}`); !strings.Contains(out, `"error":null`) {
			ts.Fatalf("no blocks: %s", out)
		}
	default:
		ts.Fatalf("usage: bitcoin start|mine NUMBER")
	}
}

func newBitcoin(ts *testscript.TestScript) *bitcoin {
	dir := ts.MkAbs("bitcoin")
	ts.Check(os.MkdirAll(dir, 0o700))
	conf := filepath.Join(dir, "empty.conf")
	ts.Check(os.WriteFile(conf, nil, 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	b := &bitcoin{address: l.Addr().String()}
	ts.Check(l.Close())
	program, err := exec.LookPath("btcd")
	ts.Check(err)
	b.cmd = exec.Command(program, "--regtest", "--notls", "--rpcuser=atoll", "--rpcpass="+strings.TrimSpace(ts.ReadFile("bitcoin.pw")), "--rpclisten="+b.address,
		"--nolisten", "--nodnsseed", "--connect=127.0.0.1:1", "--miningaddr=mipcBbFg9gMiCh81Kj8tqqdgoZub1ZJRfn", "--datadir="+dir, "--logdir="+dir, "--configfile="+conf)
	b.cmd.Env = []string{"HOME=" + dir}
	ts.Check(b.cmd.Start())
	poll(ts, often, "the Bitcoin node to listen", func() bool {
		c, err := net.Dial("tcp", b.address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return b
}

func (b *bitcoin) ask(ts *testscript.TestScript, body string) string {
	req, err := http.NewRequest(http.MethodPost, "http://"+b.address, bytes.NewReader([]byte(body)))
	ts.Check(err)
	req.SetBasicAuth("atoll", strings.TrimSpace(ts.ReadFile("bitcoin.pw")))
	res, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	ts.Check(err)
	return string(out)
}

func (b *bitcoin) close() {
	if b != nil {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
	}
}
