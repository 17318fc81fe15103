package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// homes makes an "internet" of public addresses (which exist in these namespaces only, since a hole is punched to public
// addresses alone): a server at 45.79.0.2, and each home behind a router that translates addresses and lets nothing in.
func homes(t *testing.T, server string, names ...string) (internet string) {
	t.Helper()
	for _, program := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(program); err != nil || os.Getuid() != 0 {
			t.Skip("home routers need root and the programs ip and iptables")
		}
	}
	tag := fmt.Sprintf("atoll%dh", os.Getpid())
	internet = tag + "r"
	space := func(ns string) {
		if out, err := exec.Command("ip", "netns", "add", ns).CombinedOutput(); err != nil {
			t.Skipf("no network namespace can be made here: %s", out)
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
		run(t, "ip", "-n", ns, "link", "set", "lo", "up")
	}
	in := func(ns string, args ...string) { run(t, "ip", append([]string{"netns", "exec", ns}, args...)...) }
	wire := func(ns, dev, other, otherDev, addr string) {
		run(t, "ip", "link", "add", dev, "netns", ns, "type", "veth", "peer", "name", otherDev, "netns", other)
		run(t, "ip", "-n", other, "link", "set", otherDev, "up")
		run(t, "ip", "-n", ns, "addr", "add", addr, "dev", dev)
		run(t, "ip", "-n", ns, "link", "set", dev, "up")
	}
	space(internet)
	run(t, "ip", "-n", internet, "link", "add", "net", "type", "bridge")
	run(t, "ip", "-n", internet, "link", "set", "net", "up")
	space(tag + server)
	wire(tag+server, "up0", internet, server, "45.79.0.2/24")
	run(t, "ip", "-n", internet, "link", "set", server, "master", "net")
	for i, name := range names {
		router := tag + name + "gw"
		space(router)
		wire(router, "wan", internet, name, fmt.Sprintf("45.79.0.%d/24", 10+i))
		run(t, "ip", "-n", internet, "link", "set", name, "master", "net")
		space(tag + name)
		wire(tag+name, "up0", router, "lan", fmt.Sprintf("192.168.%d.2/24", i+1))
		run(t, "ip", "-n", router, "addr", "add", fmt.Sprintf("192.168.%d.1/24", i+1), "dev", "lan")
		run(t, "ip", "-n", tag+name, "route", "add", "default", "via", fmt.Sprintf("192.168.%d.1", i+1))
		in(router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
		if out, err := exec.Command("ip", "netns", "exec", router, "iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "wan", "-j", "MASQUERADE").CombinedOutput(); err != nil {
			t.Skipf("this kernel translates no addresses: %s", out)
		}
		for _, chain := range []string{"INPUT", "FORWARD"} {
			in(router, "iptables", "-A", chain, "-i", "wan", "-m", "conntrack", "!", "--ctstate", "ESTABLISHED,RELATED", "-j", "DROP")
		}
	}
	return internet
}

// Two nodes behind home routers that let nothing in meet by a relay that both know, and from then on directly: the relay
// goes, and they still talk.
func TestHomeRouters(t *testing.T) {
	internet := homes(t, "relay", "dune", "elm")
	relay := newIsland(t, "relay", internet, "ATOLL_MESH_RELAY=true")
	a, b := newIsland(t, "dune", internet), newIsland(t, "elm", internet)
	befriend(relay, a)
	befriend(relay, b)
	for _, n := range []*island{a, b} {
		n.stop()
		n.env = append(n.env, "ATOLL_MESH_RELAYS=/ip4/45.79.0.2/tcp/8421/p2p/"+relay.key+",/ip4/45.79.0.2/udp/8421/quic-v1/p2p/"+relay.key)
		n.start()
		n.atoll("correct horse battery\n", "login", "--socket", filepath.Join(n.dir, "atoll.sock"), "--username", "ada", "--password-stdin")
		n.until("the relay", func() bool { return strings.Contains(n.atoll("", "mesh", "status"), "p2p-circuit") })
	}
	befriend(a, b)
	a.atoll("", "grants", "open", "system", "--for", "forever")
	a.atoll("", "mesh", "allow", "elm", "system")
	b.until("a direct way", func() bool { p := b.peer(a); return p.Online && !p.Relayed })
	relay.stop()
	b.until("the relay is gone", func() bool { return !b.peer(relay).Online })
	if out := b.atoll("", "mesh", "ask", "dune", "how full is the disk?"); !strings.Contains(out, "%") {
		t.Error(out)
	}
}
