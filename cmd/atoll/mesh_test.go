package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// island is one node of the mesh test: a real process in a network namespace of its own.
type island struct {
	t       *testing.T
	name    string
	ns      string // empty: on this machine's own network
	dir     string
	home    string
	env     []string
	serve   *exec.Cmd
	ended   chan struct{}
	keyWord string
	key     string
}

// run runs a program to its end and returns what it wrote.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// network makes namespaces with a router between them, each node in a network of its own.
func network(t *testing.T, names ...string) (router string) {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil || os.Getuid() != 0 {
		t.Skip("network namespaces need root and the program ip")
	}
	tag := fmt.Sprintf("atoll%d", os.Getpid())
	router = tag + "r"
	if out, err := exec.Command("ip", "netns", "add", router).CombinedOutput(); err != nil {
		t.Skipf("no network namespace can be made here: %s", out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", router).Run() })
	run(t, "ip", "netns", "exec", router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	for i, name := range names {
		ns := tag + name
		run(t, "ip", "netns", "add", ns)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
		run(t, "ip", "link", "add", "up0", "netns", ns, "type", "veth", "peer", "name", name, "netns", router)
		for _, args := range [][]string{{"-n", ns, "addr", "add", fmt.Sprintf("10.77.%d.2/24", i), "dev", "up0"}, {"-n", ns, "link", "set", "up0", "up"}, {"-n", ns, "link", "set", "lo", "up"},
			{"-n", router, "addr", "add", fmt.Sprintf("10.77.%d.1/24", i), "dev", name}, {"-n", router, "link", "set", name, "up"},
			{"-n", ns, "route", "add", "default", "via", fmt.Sprintf("10.77.%d.1", i)}} {
			run(t, "ip", args...)
		}
	}
	return router
}

func newIsland(t *testing.T, name, router string, env ...string) *island {
	t.Helper()
	dir := t.TempDir()
	n := &island{t: t, name: name, ns: strings.TrimSuffix(router, "r") + name, dir: filepath.Join(dir, "data"), home: filepath.Join(dir, "home")}
	n.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + n.home, "ATOLL_DATA_DIR=" + n.dir, "ATOLL_SOCKET=" + filepath.Join(n.dir, "atoll.sock"), "TZ=UTC",
		"ATOLL_APPS_DOCKER=off", "ATOLL_MESH_ENABLED=1", "ATOLL_MESH_DISCOVER=0"}
	n.env = append(n.env, env...)
	n.atoll("correct horse battery\n", "user", "add", "ada", "--role", "owner", "--password-stdin", "--data-dir", n.dir)
	n.start()
	n.atoll("correct horse battery\n", "login", "--socket", filepath.Join(n.dir, "atoll.sock"), "--username", "ada", "--password-stdin")
	n.atoll("", "settings", "set", "node.name", name)
	var s struct {
		Key      string   `json:"key"`
		KeyWords []string `json:"key_words"`
	}
	n.json(&s, "mesh", "status")
	n.key, n.keyWord = s.Key, strings.Join(s.KeyWords, " ")
	return n
}

// start runs the node until the test ends or stop.
func (n *island) start() {
	n.t.Helper()
	log, err := os.OpenFile(filepath.Join(filepath.Dir(n.dir), "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	defer log.Close()
	n.serve = exec.Command("ip", "netns", "exec", n.ns, "atoll", "serve", "--data-dir", n.dir, "--listen", "127.0.0.1:8420")
	n.serve.Env, n.serve.Stdout, n.serve.Stderr = n.env, log, log
	if err := n.serve.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) { // ends with the process, which stop waits for
		_ = cmd.Wait()
		close(ended)
	}(n.serve, n.ended)
	n.t.Cleanup(func() {
		n.stop()
		if n.t.Failed() {
			raw, _ := os.ReadFile(log.Name())
			n.t.Logf("log of %s:\n%s", n.name, raw[max(0, len(raw)-3000):])
		}
	})
	n.until("ready", func() bool {
		conn, err := net.Dial("unix", filepath.Join(n.dir, "atoll.sock"))
		return err == nil && conn.Close() == nil
	})
}

func (n *island) stop() {
	_ = n.serve.Process.Signal(os.Interrupt)
	<-n.ended
}

func (n *island) try(stdin string, args ...string) (string, error) {
	cmd := exec.Command("atoll", args...)
	cmd.Env, cmd.Stdin = n.env, strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), errors.New(errs.String() + out.String() + err.Error())
	}
	return out.String(), nil
}

func (n *island) atoll(stdin string, args ...string) string {
	n.t.Helper()
	out, err := n.try(stdin, args...)
	if err != nil {
		n.t.Fatalf("%s: atoll %s: %v", n.name, strings.Join(args, " "), err)
	}
	return out
}

func (n *island) json(out any, args ...string) {
	n.t.Helper()
	if err := json.Unmarshal([]byte(n.atoll("", append(args, "--json")...)), out); err != nil {
		n.t.Fatal(err)
	}
}

func (n *island) until(what string, good func() bool) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !good() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			n.t.Fatalf("%s: %s: never", n.name, what)
		}
	}
}

type islandPeer struct {
	Key, State, KeyWords string
	Online, Relayed      bool
	Files                int
}

func (n *island) peer(other *island) islandPeer {
	n.t.Helper()
	var list struct {
		Peers []struct {
			Key      string `json:"key"`
			State    string `json:"state"`
			KeyWords string `json:"key_words"`
			Online   bool   `json:"online"`
			Relayed  bool   `json:"relayed"`
			Shares   struct {
				Files int `json:"files"`
			} `json:"shares"`
		} `json:"peers"`
	}
	n.json(&list, "mesh", "peers")
	for _, p := range list.Peers {
		if p.Key == other.key {
			return islandPeer{p.Key, p.State, p.KeyWords, p.Online, p.Relayed, p.Shares.Files}
		}
	}
	return islandPeer{}
}

// befriend pairs two nodes as their owners would, each comparing the other's words.
func befriend(a, b *island) {
	a.t.Helper()
	var v struct {
		Code string `json:"code"`
	}
	a.json(&v, "mesh", "invite")
	if out, err := b.try("", "mesh", "accept", v.Code, "--key-words", "other words than these here now", "--label", a.name); err == nil {
		a.t.Fatal("accepted with other words: ", out)
	}
	b.atoll("", "mesh", "accept", v.Code, "--key-words", a.keyWord, "--label", a.name)
	if p := a.peer(b); p.State != "asking" || p.KeyWords != b.keyWord {
		a.t.Fatalf("%+v", p)
	}
	a.atoll("", "mesh", "admit", b.key, "--key-words", b.keyWord)
	a.atoll("", "mesh", "rename", b.key, b.name)
}

// TestMesh is three real nodes with a router between them: pairing, a large file over a link that breaks, a question, a
// partition and its healing, a block, and what one node may learn of another through a third (M1, M2, A5, F-F5).
func TestMesh(t *testing.T) {
	router := network(t, "alder", "birch", "cedar")
	a, b, c := newIsland(t, "alder", router), newIsland(t, "birch", router), newIsland(t, "cedar", router)
	befriend(a, b)
	befriend(a, c)
	a.atoll("", "grants", "open", "content", "--for", "forever")
	a.atoll("", "grants", "open", "system", "--for", "forever")
	a.atoll("", "mesh", "allow", "birch", "content", "--folder", "films")
	a.atoll("", "mesh", "allow", "cedar", "system")
	sum := fill(t, filepath.Join(a.dir, "content", "films", "one.mkv"), 200<<20)
	fill(t, filepath.Join(a.dir, "content", "diary"), 1000)
	b.until("the catalogue", func() bool {
		_, err := b.try("", "mesh", "refresh", "alder")
		return err == nil && b.peer(a).Files == 1
	})

	if out := b.atoll("", "mesh", "files", "alder"); !strings.Contains(out, "films/one.mkv") || strings.Contains(out, "diary") {
		t.Error(out)
	}

	// The link breaks in the middle, and the same command goes on from there.
	fetched := make(chan error, 1)
	go func() {
		_, err := b.try("", "mesh", "fetch", "alder", "films/one.mkv", "--json")
		fetched <- err
	}()
	b.until("a part of the file", func() bool { return partial(b) > 20<<20 })
	run(t, "ip", "-n", router, "link", "set", "birch", "down")
	if err := <-fetched; err == nil {
		t.Log("the file was there before the link broke")
	} else if !strings.Contains(err.Error(), "ask again to go on") {
		t.Error("a broken link is told as:", err)
	}
	run(t, "ip", "-n", router, "link", "set", "birch", "up")
	var got struct {
		File    string `json:"file"`
		SHA256  string `json:"sha256"`
		Resumed int64  `json:"resumed_bytes"`
	}
	b.until("the link again", func() bool {
		out, err := b.try("", "mesh", "fetch", "alder", "films/one.mkv", "--json")
		return err == nil && json.Unmarshal([]byte(out), &got) == nil
	})
	if got.SHA256 != sum || got.Resumed < 20<<20 || hashOf(t, got.File) != sum {
		t.Errorf("%+v, want %s", got, sum)
	}
	if out, err := b.try("", "mesh", "fetch", "alder", "diary"); err == nil {
		t.Error("a file that is not shared came: ", out)
	}

	// Questions are answered from what the ceiling opens, and from nothing else.
	if out := b.atoll("", "mesh", "ask", "alder", "what", "is", "shared?"); !strings.Contains(out, "one.mkv") || strings.Contains(out, "diary") {
		t.Error(out)
	}
	for _, q := range []string{"how full is the disk?", "which peers are online?", "restart the sample app", "what does cedar share?"} {
		if out, err := b.try("", "mesh", "ask", "alder", q); err == nil && (strings.Contains(out, "% full") || strings.Contains(out, "cedar:") || strings.Contains(out, "Restarted")) {
			t.Errorf("%s\n%s", q, out)
		}
	}
	if out := c.atoll("", "mesh", "ask", "alder", "how full is the disk?"); !strings.Contains(out, "%") {
		t.Error(out)
	}
	if out, err := c.try("", "mesh", "ask", "alder", "what does birch share?"); err == nil && strings.Contains(out, "one.mkv") {
		t.Error("cedar learns of others through alder:", out)
	}

	// A partition heals by itself.
	run(t, "ip", "-n", router, "link", "set", "cedar", "down")
	c.until("alone", func() bool { return !c.peer(a).Online })
	run(t, "ip", "-n", router, "link", "set", "cedar", "up")
	c.until("together again", func() bool { return c.peer(a).Online })

	a.stop()
	old, err := os.ReadFile(filepath.Join(a.dir, "node.db"))
	if err != nil {
		t.Fatal(err)
	}
	a.start()
	a.atoll("correct horse battery\n", "login", "--socket", filepath.Join(a.dir, "atoll.sock"), "--username", "ada", "--password-stdin")
	a.atoll("", "mesh", "block", "birch")
	if out, err := b.try("", "mesh", "ask", "alder", "what is shared?"); err == nil {
		t.Error("a blocked peer is answered:", out)
	}
	if p := a.peer(b); p.State != "blocked" || p.Online {
		t.Errorf("%+v", p)
	}
	a.atoll("", "audit", "verify")

	// Restored from the copy of before the block, the node is told so by the peer that is left, and serves nobody.
	c.until("called again", func() bool { return c.peer(a).Online })
	c.atoll("", "mesh", "refresh", "alder")
	a.stop()
	if err := os.WriteFile(filepath.Join(a.dir, "node.db"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.atoll("correct horse battery\n", "login", "--socket", filepath.Join(a.dir, "atoll.sock"), "--username", "ada", "--password-stdin")
	a.until("held", func() bool { return strings.Contains(a.atoll("", "mesh", "status"), "Peers get nothing") })
	if out, err := b.try("", "mesh", "ask", "alder", "what is shared?"); err == nil {
		t.Error("a restored node serves whom its owner had blocked:", out)
	}
}

// fill writes a file of random bytes and returns its SHA-256.
func fill(t *testing.T, path string, size int64) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	_, err = io.CopyN(io.MultiWriter(f, h), rand.NewChaCha8([32]byte{7}), size)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func hashOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// partial is how much of a file that is being fetched has arrived.
func partial(n *island) (size int64) {
	files, _ := filepath.Glob(filepath.Join(n.dir, "downloads", "*", "*", "*.atoll-part"))
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			size += info.Size()
		}
	}
	return size
}
