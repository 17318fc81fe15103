package httpd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atoll/internal/caller"
)

func dialer(path string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
}

// G6: beyond loopback only under TLS or by the owner's word.
func TestCheckListen(t *testing.T) {
	for address, loopback := range map[string]bool{"127.0.0.1:8420": true, "127.9.9.9:1": true, "[::1]:8420": true, "localhost:0": true,
		"[::ffff:127.0.0.1]:1": true, "0.0.0.0:8420": false, ":8420": false, "[::]:8420": false, "192.168.1.2:8420": false,
		"home.example:8420": false, "localhost.evil.example:1": false, "[fe80::1%eth0]:1": false} {
		if err := CheckListen(address, false, false); (err == nil) != loopback {
			t.Errorf("%s: %v", address, err)
		}
		if CheckListen(address, true, false) != nil || CheckListen(address, false, true) != nil {
			t.Errorf("%s is refused in spite of TLS or insecure", address)
		}
	}
	for _, bad := range []string{"", "8420", "127.0.0.1", "127.0.0.1:", "a:b:c"} {
		if CheckListen(bad, true, true) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// Run holds what was opened to the same rule and closes it.
func TestRunRefusesTheOpenNetwork(t *testing.T) {
	g := newRig(t, nil)
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Run(t.Context(), l); err == nil || !strings.Contains(err.Error(), "insecure = true") {
		t.Fatal(err)
	}
	if _, err := l.Accept(); err == nil {
		t.Fatal("still open")
	}
}

func TestListenSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "atoll.sock")
	l, err := ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatal(st.Mode(), err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as a killed node leaves it
	l.Close()
	l, err = ListenSocket(path)
	if err != nil {
		t.Fatal("the dead node's socket:", err)
	}
	l.Close()
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenSocket(path); err == nil {
		t.Fatal("a file was replaced")
	}
	if b, _ := os.ReadFile(path); string(b) != "mine" {
		t.Fatal("the file is gone")
	}
}

// A flood of connections waits outside; a place that is left is taken.
func TestConnectionsAreBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := new(Server).bounded(inner).(*boundedListener)
	for range cap(b.slots) {
		b.slots <- struct{}{}
	}
	client, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	accepted := make(chan net.Conn)
	refused := make(chan error, 2)
	accept := func() {
		c, err := b.Accept()
		if err != nil {
			refused <- err
			return
		}
		accepted <- c
	}
	go accept()
	select {
	case <-accepted:
		t.Fatal("one too many")
	case <-time.After(50 * time.Millisecond):
	}
	<-b.slots
	c := <-accepted
	c.Close()
	c.Close() // frees one place only
	if len(b.slots) != cap(b.slots)-1 {
		t.Fatal(len(b.slots))
	}
	b.slots <- struct{}{}
	go accept()
	b.Close()
	if err := <-refused; err == nil {
		t.Fatal("accepted after Close")
	}
}

// One address has its share and no more, an IPv6 network counts as one, and a place that is left is taken again. This
// machine and trusted proxies speak for many.
func TestAnAddressHasItsShare(t *testing.T) {
	s := &Server{cfg: Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32")}}}
	b := s.bounded(nil).(*boundedListener)
	fill := func(from func(i int) string) (in int, leave func()) {
		for i := range maxConnsEach + 9 {
			l, ok := b.enter(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from(i))))
			if ok {
				in, leave = in+1, l
			}
		}
		return in, leave
	}
	one := func(int) string { return "192.0.2.8:1000" }
	in, leave := fill(one)
	if in != maxConnsEach {
		t.Errorf("%d of one address", in)
	}
	leave()
	if in, _ := fill(one); in != 1 {
		t.Errorf("%d where one left", in)
	}
	for from, want := range map[string]int{"[::ffff:192.0.2.8]:1000": 0, "192.0.2.9:1000": maxConnsEach, "192.0.2.7:1": maxConnsEach + 9, "127.0.0.1:1": maxConnsEach + 9,
		"[::1]:1": maxConnsEach + 9} {
		if in, _ := fill(func(int) string { return from }); in != want {
			t.Errorf("%s: %d, want %d", from, in, want)
		}
	}
	if in, _ := fill(func(i int) string { return fmt.Sprintf("[2001:db8::%x]:1", i) }); in != maxConnsEach {
		t.Errorf("%d of one network", in)
	}
}

// writePair makes a self-signed certificate for 127.0.0.1 with the serial number.
func writePair(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "atoll"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	pk, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pk}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// G6: under TLS the cookie is Secure; streams work over HTTP/2 too, longer than one write may take.
func TestTLS(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), 1)
	g := newRig(t, func(c *Config) {
		c.TLSCert, c.TLSKey, c.Times = cert, key, Times{Write: 100 * time.Millisecond, KeepAlive: 90 * time.Millisecond, Grace: 200 * time.Millisecond}
	})
	g.add(t, "ada", caller.Owner)
	pool := x509.NewCertPool()
	pem, _ := os.ReadFile(cert)
	pool.AppendCertsFromPEM(pem)
	p := g.stranger()
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	p.http = &http.Client{Transport: tr}
	a := p.call(t, "auth.login", `{"username":"ada","password":"`+password+`"}`)
	if a.status != 200 || !a.cookies[0].Secure {
		t.Fatal(a.status, a.cookies)
	}
	p.take(t, a)
	res, err := p.http.Do(p.request(t, http.MethodGet, "/events", nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	if res.ProtoMajor != 2 {
		t.Fatal(res.Proto)
	}
	st := &sse{res: res, events: make(chan sseEvent, 64), done: make(chan struct{})}
	go st.read()
	defer st.close()
	st.expect(t, "synced", `{"events":0}`)
	for range 4 {
		st.expect(t, "comment", "still here")
	}
}

func TestTLSFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := writePair(t, dir, 1)
	for _, bad := range [][2]string{{cert, ""}, {"", key}, {key, cert}, {cert, filepath.Join(dir, "none")}} {
		if _, err := tlsConfig(bad[0], bad[1]); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	now := time.Now()
	k := &keyPair{cert: cert, key: key, now: func() time.Time { return now }}
	serial := func() int64 {
		t.Helper()
		pair, err := k.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.SerialNumber.Int64()
	}
	if serial() != 1 {
		t.Fatal("not the first")
	}
	writePair(t, dir, 2)
	if err := os.Chtimes(cert, now.Add(time.Hour), now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if serial() != 1 {
		t.Fatal("looked at too soon")
	}
	now = now.Add(recheck)
	if serial() != 2 {
		t.Fatal("the renewed pair is not in use")
	}
	if err := os.WriteFile(cert, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(recheck)
	if serial() != 2 {
		t.Fatal("a broken file took the good pair away")
	}
}
