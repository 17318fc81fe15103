package system

import (
	"net/netip"
	"testing"

	"atoll/internal/caller"
)

// A peer sees figures: no name of the machine, no version of its kernel, no address and no device.
func TestWhatAPeerSees(t *testing.T) {
	peer, owner := caller.Peer("k", "n"), caller.Operator(1, "ada", caller.Owner, "s", "")
	i := Info{Hostname: "reef", Kernel: "6.1", Addresses: []netip.Addr{netip.MustParseAddr("192.168.1.5")}, Load1: 2}
	d := DiskStatus{Disks: []Disk{{Mount: "/", Device: "/dev/sda1", UsedPercent: 40}}}
	if got := i.forCaller(peer); got.Hostname != "" || got.Kernel != "" || len(got.Addresses) != 0 || got.Load1 != 2 {
		t.Errorf("%+v", got)
	}
	if got := d.forCaller(peer); got.Disks[0].Device != "" || got.Disks[0].UsedPercent != 40 || d.Disks[0].Device == "" {
		t.Errorf("%+v, %+v", got, d)
	}
	if got := i.forCaller(owner); got.Hostname != "reef" || len(got.Addresses) != 1 || d.forCaller(owner).Disks[0].Device == "" {
		t.Errorf("the owner sees less: %+v", got)
	}
}
