package soak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// crowd is who behaves badly: slow, silent, greedy, or talking nonsense. It speaks raw TCP and has sessions of its own.
type crowd struct {
	addr  string
	leech *person
	tally *tally
}

// longest is how long one of them holds a connection; the node is to end most of them earlier.
const longest = 50 * time.Second

// run lets one of the crowd misbehave, time after time, until ctx ends.
func (c *crowd) run(ctx context.Context, n int) {
	rng := rand.New(rand.NewPCG(*seed, 1<<32+uint64(n)))
	acts := []struct {
		name string
		do   func(context.Context, net.Conn, *rand.Rand) string
	}{
		{"header dribbled", dribbleHeader}, {"body never finished", c.halfBody}, {"body dribbled", c.dribbleBody},
		{"silent", silent}, {"events never read", c.deafEvents}, {"answer never read", c.deafChat}, {"nonsense", nonsense},
		{"body too large", c.flood}, {"left in the middle", c.half}, {"many at once", c.pipeline},
	}
	for pause(ctx, rand.N(500*time.Millisecond)) {
		act := acts[rng.IntN(len(acts))]
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.addr)
		if err != nil {
			c.tally.add("hostile, " + act.name + ": no connection")
			continue
		}
		_ = conn.(*net.TCPConn).SetReadBuffer(2048)
		held, cancel := context.WithTimeout(ctx, longest)
		stop := context.AfterFunc(held, func() { _ = conn.Close() })
		how := act.do(held, conn, rng)
		if held.Err() != nil {
			how = "left"
		}
		stop()
		cancel()
		_ = conn.Close()
		c.tally.add("hostile, " + act.name + ": " + how)
	}
}

// ending reads what the node says to it, until it closes: the first status, or why there was none.
func ending(conn net.Conn) string {
	status := "closed"
	in := bufio.NewReader(conn)
	if res, err := http.ReadResponse(in, nil); err == nil {
		status = fmt.Sprint(res.StatusCode)
		_, _ = io.Copy(io.Discard, res.Body)
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		status = "waited"
	}
	return status
}

// head is the beginning of a signed request, without its last line.
func (c *crowd) head(line, more string) string {
	h := http.Header{}
	c.leech.sign(h)
	var b strings.Builder
	_ = h.Write(&b)
	return line + " HTTP/1.1\r\nHost: " + c.addr + "\r\nContent-Type: application/json\r\n" + b.String() + more
}

func dribble(ctx context.Context, conn net.Conn, text string, every time.Duration) {
	for i := range len(text) {
		if _, err := conn.Write([]byte{text[i]}); err != nil || !pause(ctx, every) {
			return
		}
	}
}

func dribbleHeader(ctx context.Context, conn net.Conn, _ *rand.Rand) string {
	go dribble(ctx, conn, "POST /rpc HTTP/1.1\r\nX-Long: "+strings.Repeat("x", 4000), 300*time.Millisecond)
	return ending(conn)
}

func silent(_ context.Context, conn net.Conn, _ *rand.Rand) string { return ending(conn) }

func (c *crowd) halfBody(_ context.Context, conn net.Conn, _ *rand.Rand) string {
	_, _ = io.WriteString(conn, c.head("POST /rpc", "Content-Length: 5000\r\n\r\n")+`{"jsonrpc":`)
	return ending(conn)
}

func (c *crowd) dribbleBody(ctx context.Context, conn net.Conn, _ *rand.Rand) string {
	_, _ = io.WriteString(conn, c.head("POST /rpc", "Transfer-Encoding: chunked\r\n\r\n"))
	go dribble(ctx, conn, strings.Repeat("1\r\n \r\n", 5000), 100*time.Millisecond)
	return ending(conn)
}

// deaf sends a request and reads its header, and then nothing more.
func deaf(ctx context.Context, conn net.Conn, request string) string {
	if _, err := io.WriteString(conn, request); err != nil {
		return "closed"
	}
	res, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
	if err != nil {
		return "closed"
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		pause(ctx, 30*time.Second)
	}
	return fmt.Sprint(res.StatusCode)
}

func (c *crowd) deafEvents(ctx context.Context, conn net.Conn, _ *rand.Rand) string {
	return deaf(ctx, conn, c.head("GET /events", "\r\n"))
}

func (c *crowd) deafChat(ctx context.Context, conn net.Conn, rng *rand.Rand) string {
	kind := [...]string{"fault:endless", "say", "look", "fault:longline"}[rng.IntN(4)]
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"assistant.chat","params":{"message":"[%s leech-%d] go on"}}`, kind, rng.Uint32())
	return deaf(ctx, conn, c.head("POST /rpc", fmt.Sprintf("Accept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(body), body)))
}

func nonsense(_ context.Context, conn net.Conn, rng *rand.Rand) string {
	raw := make([]byte, 1+rng.IntN(4000))
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	if rng.IntN(2) == 0 {
		copy(raw, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03") // the beginning of TLS
	}
	raw = append(raw, "\r\n\r\n"...)
	_, _ = conn.Write(raw)
	return ending(conn)
}

func (c *crowd) flood(_ context.Context, conn net.Conn, _ *rand.Rand) string {
	go func() {
		_, _ = io.WriteString(conn, c.head("POST /rpc", "Content-Length: 4000000\r\n\r\n"))
		_, _ = io.WriteString(conn, strings.Repeat("[", 4000000))
	}()
	return ending(conn)
}

func (c *crowd) half(ctx context.Context, conn net.Conn, rng *rand.Rand) string {
	body := `{"jsonrpc":"2.0","id":1,"method":"system.info"}`
	text := c.head("POST /rpc", fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
	_, _ = io.WriteString(conn, text[:rng.IntN(len(text))])
	pause(ctx, rand.N(time.Second))
	return "gone"
}

// pipeline sends many calls before it reads one answer.
func (c *crowd) pipeline(_ context.Context, conn net.Conn, _ *rand.Rand) string {
	body := `{"jsonrpc":"2.0","id":1,"method":"assistant.conversations"}`
	text := c.head("POST /rpc", fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
	go func() { _, _ = io.WriteString(conn, strings.Repeat(text, 20)) }()
	in := bufio.NewReader(conn)
	last := "closed"
	for range 20 {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			break
		}
		_, _ = io.Copy(io.Discard, res.Body)
		last = fmt.Sprint(res.StatusCode)
	}
	return last
}
