package radiotest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

const patience = 2 * time.Minute

// python runs testdata/client.py against an address, with the Meshtastic project's own client. Where that cannot be
// installed, the test is skipped with the reason.
func python(t *testing.T, addr string) (lines *bufio.Scanner, release func()) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("the Meshtastic client needs python3, which is not installed: not tried")
	}
	script, err := filepath.Abs("../../../../scripts/peers/meshtastic")
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.UserCacheDir()
	if err != nil {
		home = os.TempDir()
	}
	env := append(os.Environ(), "MESHTASTIC_HOME="+filepath.Join(home, "atoll-tests", "meshtastic"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	try := exec.CommandContext(ctx, script, "-c", "import meshtastic.tcp_interface")
	try.Env = env
	if said, err := try.CombinedOutput(); err != nil {
		t.Skipf("the Meshtastic client cannot be installed here (%v): %.500s", err, strings.TrimSpace(string(said)))
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(ctx, script, "testdata/client.py", host, port)
	c.Env = env
	var said bytes.Buffer
	c.Stderr = &said
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = c.Wait()
		if t.Failed() {
			t.Logf("the client said: %s", said.Bytes())
		}
	})
	return bufio.NewScanner(out), func() { _, _ = in.Write([]byte("\n")) }
}

// step is a line of client.py.
type step struct {
	Step     string            `json:"step"`
	Own      uint32            `json:"own"`
	Preset   uint32            `json:"preset"`
	Firmware string            `json:"firmware"`
	Channels int               `json:"channels"`
	Nodes    map[uint32]string `json:"nodes"`
	ID       uint32            `json:"id"`
	Sender   uint32            `json:"sender"`
	To       uint32            `json:"to"`
	Text     string            `json:"text"`
	PKI      bool              `json:"pki"`
	Key      string            `json:"key"`
	Reply    uint32            `json:"reply"`
	Request  uint32            `json:"request"`
	Error    string            `json:"error"`
}

func next(t *testing.T, lines *bufio.Scanner, want string) step {
	t.Helper()
	if !lines.Scan() {
		t.Fatalf("the client ended before %q: %v", want, lines.Err())
	}
	var s step
	if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
		t.Fatalf("%s: %v", lines.Bytes(), err)
	}
	if s.Step != want {
		t.Fatalf("the client said %s, want %s", lines.Bytes(), want)
	}
	return s
}

// Issue 5, point 8: the radio of the tests is taken for a device by the Meshtastic project's own client. It reads the
// settings and nodes through noise, sends direct texts and is told what became of them, and hears what comes.
func TestPeerTakesItForADevice(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	r := New(Config{Preset: 4, Nodes: []Node{{Num: 0xA1B2C3D4, Long: "Anna on the hill", Short: "ANNA", Key: key}},
		Answer: func(n int, p Packet) Answer {
			if n == 1 {
				return Answer{}
			}
			return Answer{Error: 5}
		}})
	t.Cleanup(r.Close)
	addr, err := r.Listen()
	if err != nil {
		t.Fatal(err)
	}
	lines, release := python(t, addr)

	got := next(t, lines, "nodes")
	if got.Own != 0x11223344 || got.Preset != 4 || got.Channels != 8 || got.Firmware == "" ||
		len(got.Nodes) != 2 || got.Nodes[0xA1B2C3D4] != "Anna on the hill" {
		t.Errorf("the client read %+v", got)
	}
	r.Say([]byte("DEBUG | 12:00:00 noise\r\n\x94\x94\xc3\xff\xff"))

	var ids []uint32
	acks := map[uint32]step{}
	for len(ids)+len(acks) < 4 { // an acknowledgement may come before the client has said what it sent
		if !lines.Scan() {
			t.Fatalf("the client ended: %v", lines.Err())
		}
		var s step
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		switch s.Step {
		case "sent":
			ids = append(ids, s.ID)
		case "ack":
			acks[s.Request] = s
		default:
			t.Fatalf("the client said %s", lines.Bytes())
		}
	}
	for i, want := range []string{"first", "second"} {
		p := <-r.Sent()
		if string(p.Payload) != want || p.To != 0xA1B2C3D4 || p.Port != text || !p.WantAck || p.ID != ids[i] {
			t.Errorf("the radio was given %+v", p)
		}
	}
	if a := acks[ids[0]]; a.Error != "NONE" || a.Sender != 0xA1B2C3D4 {
		t.Errorf("the first text was acknowledged with %+v", a)
	}
	if a := acks[ids[1]]; a.Error != "MAX_RETRANSMIT" || a.Sender != 0x11223344 {
		t.Errorf("the second text was refused with %+v", a)
	}

	r.Deliver(Packet{From: 0xA1B2C3D4, Payload: []byte("hello, grüße")})
	r.Deliver(Packet{From: 0xA1B2C3D4, Payload: []byte("secret"), PKI: true, Key: key, Reply: 77})
	if s := next(t, lines, "heard"); s.Sender != 0xA1B2C3D4 || s.To != 0x11223344 || s.Text != "hello, grüße" || s.PKI || s.Key != "" {
		t.Errorf("the client heard %+v", s)
	}
	if s := next(t, lines, "heard"); s.Text != "secret" || !s.PKI || s.Key != base64.StdEncoding.EncodeToString(key) || s.Reply != 77 {
		t.Errorf("the client heard %+v", s)
	}
	release()
	next(t, lines, "end")
	if _, beats := r.Seen(); beats == 0 {
		t.Error("the heartbeat did not come")
	}
}
