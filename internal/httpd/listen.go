package httpd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// CheckListen says whether the node may listen on a TCP address: beyond loopback only under TLS or where the owner
// allowed plain HTTP (G6). The words say what to do.
func CheckListen(address string, tls, insecure bool) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return fmt.Errorf("listen address %q must be HOST:PORT, like 127.0.0.1:8420", address)
	}
	if loopbackHost(host) || tls || insecure {
		return nil
	}
	return fmt.Errorf("listen address %q can be reached from other machines: give tls_cert and tls_key, or set insecure = true if the network is yours alone", address)
}

// loopbackHost knows only what is loopback for sure; another name may resolve to anything.
func loopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// mayServe holds CheckListen against what was really opened.
func (s *Server) mayServe(l net.Listener) error {
	if l.Addr().Network() == "unix" {
		return nil
	}
	return CheckListen(l.Addr().String(), s.tls != nil, s.cfg.Insecure)
}

// ListenSocket opens the socket in the data directory, for its owner only; it gives no authority by itself. A socket
// that a dead node left is replaced: the caller holds the data directory's lock.
func ListenSocket(path string) (net.Listener, error) {
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s is there and is no socket; move it away", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	// The directory is 0700, so nobody else came in between.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// maxConns bounds the open connections of one listener, so that a flood of them leaves the node its files. An address has
// maxConnsEach of them, so that one of them cannot keep the others waiting; a browser opens six.
const (
	maxConns     = 512
	maxConnsEach = 64
)

// bounded makes a listener that accepts no more than maxConns at once; further clients wait in the kernel's queue. A client
// that has its share already is hung up on, unless it speaks for others: this machine, and trusted proxies.
func (s *Server) bounded(l net.Listener) net.Listener {
	return &boundedListener{Listener: l, many: func(ip netip.Addr) bool { return ip.IsLoopback() || s.trusted(ip) },
		slots: make(chan struct{}, maxConns), done: make(chan struct{}), each: map[string]int{}}
}

type boundedListener struct {
	net.Listener
	many  func(netip.Addr) bool // may have more than its share
	slots chan struct{}
	once  sync.Once
	done  chan struct{}

	mu   sync.Mutex // guards each
	each map[string]int
}

func (b *boundedListener) Accept() (net.Conn, error) {
	select {
	case b.slots <- struct{}{}:
	case <-b.done:
		return nil, net.ErrClosed
	}
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			<-b.slots
			return nil, err
		}
		if leave, ok := b.enter(c.RemoteAddr()); ok {
			return &boundedConn{Conn: c, release: sync.OnceFunc(func() { leave(); <-b.slots })}, nil
		}
		_ = c.Close() // nothing was said on it yet
	}
}

// enter counts a connection of what limits take for one client.
func (b *boundedListener) enter(from net.Addr) (leave func(), ok bool) {
	tcp, isTCP := from.(*net.TCPAddr)
	if !isTCP {
		return func() {}, true
	}
	ip := tcp.AddrPort().Addr().Unmap()
	if b.many(ip) {
		return func() {}, true
	}
	key := limitAddress(ip.WithZone(""))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.each[key] >= maxConnsEach {
		return nil, false
	}
	b.each[key]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.each[key]--; b.each[key] == 0 {
			delete(b.each, key)
		}
	}, true
}

func (b *boundedListener) Close() error {
	b.once.Do(func() { close(b.done) })
	return b.Listener.Close()
}

type boundedConn struct {
	net.Conn
	release func()
}

// CloseWrite lets the server end an answer before it has read a body that is too large, so that the answer arrives.
func (c *boundedConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

func (c *boundedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// tlsConfig reads the key pair, so that a wrong one stops the start and not the first visitor.
func tlsConfig(cert, key string) (*tls.Config, error) {
	if cert == "" && key == "" {
		return nil, nil
	}
	if cert == "" || key == "" {
		return nil, errors.New("tls_cert and tls_key go together; one is missing")
	}
	k := &keyPair{cert: cert, key: key, now: time.Now}
	if _, err := k.get(nil); err != nil {
		return nil, fmt.Errorf("the TLS key pair cannot be used: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: k.get}, nil
}

// recheck is how often the files are looked at: a renewed certificate is in use within this time.
const recheck = time.Minute

// keyPair is a certificate that is read again when its file changes.
type keyPair struct {
	cert, key string
	now       func() time.Time

	mu      sync.Mutex // guards the rest
	pair    *tls.Certificate
	written time.Time
	looked  time.Time
}

// get returns the pair. Files that cannot be read any more leave the last good pair in use.
func (k *keyPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pair != nil && k.now().Sub(k.looked) < recheck {
		return k.pair, nil
	}
	k.looked = k.now()
	st, err := os.Stat(k.cert)
	if err == nil && (k.pair == nil || !st.ModTime().Equal(k.written)) {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(k.cert, k.key); err == nil {
			k.pair, k.written = &pair, st.ModTime()
		}
	}
	if k.pair != nil {
		return k.pair, nil
	}
	return nil, err
}
