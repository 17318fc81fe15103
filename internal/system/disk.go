package system

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/disk"

	"atoll/internal/fault"
	"atoll/internal/fence"
)

// DiskStatus is the result of system.disk-status.
type DiskStatus struct {
	Disks       []Disk `json:"disks"`
	WarnPercent int    `json:"warn_percent"`
}

// Disk is one mounted file system. Sizes are bytes; Free is what is left for ordinary users, so that Used and Free need
// not add up to Total, and UsedPercent is rounded up, as df does both.
type Disk struct {
	Mount        fence.Word `json:"mount"`
	Device       fence.Word `json:"device,omitzero"` // left out where it is more than one plain word
	FS           fence.Word `json:"fs"`
	Total        uint64     `json:"total_bytes"`
	Used         uint64     `json:"used_bytes"`
	Free         uint64     `json:"free_bytes"`
	UsedPercent  int        `json:"used_percent"`
	InodePercent int        `json:"inodes_used_percent,omitzero"` // zero where the file system counts none
	ReadOnly     bool       `json:"read_only,omitzero"`
	Warn         bool       `json:"warn"`
	// Unreachable disks did not answer in time or gave an error; their figures are zero.
	Unreachable bool `json:"unreachable,omitzero"`
}

// diskWait bounds how long one call waits for the slowest disk.
const diskWait = 2 * time.Second

// maxDisks bounds the disks looked at, and with them the goroutines that can hang.
const maxDisks = 64

type diskFigures struct {
	mount disk.PartitionStat
	usage disk.UsageStat
}

// Disks reads the disks now. One that hangs is reported as unreachable and does not hold up the others.
func (r *Room) Disks(ctx context.Context) (DiskStatus, error) {
	status := DiskStatus{Disks: []Disk{}, WarnPercent: r.cfg.WarnPercent()}
	mounts, err := r.machine.mounts(ctx)
	if err != nil {
		r.cfg.Log.Warn("the list of mounts cannot be read; only the root is shown", "err", err)
	}
	wait, cancel := context.WithTimeout(ctx, diskWait)
	defer cancel()
	groups := realDisks(mounts)
	probes := make([]*probe[diskFigures], len(groups))
	for i, g := range groups {
		probes[i] = r.disks.start(g[0].Mountpoint, func() (diskFigures, error) { return r.measure(g) })
	}
	for i, g := range groups {
		figures, err := r.disks.wait(wait, probes[i], diskWait)
		if ctx.Err() != nil {
			return DiskStatus{}, ctx.Err()
		}
		switch {
		case errors.Is(err, errNoDirectory):
		case err != nil:
			r.away(g[0].Mountpoint, err)
			d := describe(g[0])
			d.Unreachable = true
			status.Disks = append(status.Disks, d)
		case figures.usage.Total > 0:
			r.away(g[0].Mountpoint, nil)
			status.Disks = append(status.Disks, diskOf(figures, status.WarnPercent))
		}
	}
	if len(status.Disks) == 0 {
		return DiskStatus{}, fault.New(fault.Unavailable, "the disks of this machine cannot be read now")
	}
	slices.SortFunc(status.Disks, func(a, b Disk) int { return cmp.Compare(a.Mount, b.Mount) })
	return status, nil
}

var errNoDirectory = errors.New("no directory")

// measure takes the first of the mounts of one file system that is a directory: a container has single files bound in.
func (r *Room) measure(mounts []disk.PartitionStat) (diskFigures, error) {
	for _, m := range mounts {
		isDir, err := r.machine.isDir(m.Mountpoint)
		if errors.Is(err, fs.ErrNotExist) {
			continue // mounted where this process cannot see it
		}
		if err != nil {
			return diskFigures{}, err
		}
		if !isDir {
			continue
		}
		u, err := r.machine.usage(m.Mountpoint)
		if err != nil {
			return diskFigures{}, err
		}
		return diskFigures{m, u}, nil
	}
	return diskFigures{}, errNoDirectory
}

// away logs that a disk went or came back, once each time.
func (r *Room) away(mount string, err error) {
	r.mu.Lock()
	was := r.gone[mount]
	r.gone[mount] = err != nil
	r.mu.Unlock()
	switch {
	case err != nil && !was:
		r.cfg.Log.Warn("a disk does not answer", "mount", mount, "err", err)
	case err == nil && was:
		r.cfg.Log.Info("a disk answers again", "mount", mount)
	}
}

func describe(m disk.PartitionStat) Disk {
	d := Disk{Mount: fence.Word(m.Mountpoint), Device: fence.Word(m.Device), FS: fence.Word(m.Fstype),
		ReadOnly: slices.Contains(m.Opts, "ro")}
	if !d.Device.Plain() {
		d.Device = "" // a detail, and not worth making the figures another's words
	}
	return d
}

func diskOf(f diskFigures, warn int) Disk {
	d := describe(f.mount)
	d.Total, d.Used, d.Free = f.usage.Total, f.usage.Used, f.usage.Free
	d.UsedPercent = int(math.Ceil(f.usage.UsedPercent))
	d.InodePercent = int(math.Ceil(f.usage.InodesUsedPercent))
	d.Warn = warn > 0 && (d.UsedPercent >= warn || d.InodePercent >= warn)
	return d
}

// realDisks keeps what holds a person's data and puts the mounts of one file system together, the best name first: not
// bound, then the shortest. The root is always there, whatever it is made of (a container's is an overlay).
func realDisks(all []disk.PartitionStat) [][]disk.PartitionStat {
	root := disk.PartitionStat{Mountpoint: "/", Fstype: "rootfs", Device: "rootfs"}
	byKey := map[string][]disk.PartitionStat{}
	for _, m := range all {
		if m.Mountpoint == "/" {
			root = m // the last one mounted there covers the others
		}
	}
	keys := []string{diskKey(root)}
	byKey[keys[0]] = []disk.PartitionStat{root}
	for _, m := range all {
		if m.Mountpoint == "/" || !isReal(m) {
			continue
		}
		key := diskKey(m)
		if byKey[key] == nil {
			keys = append(keys, key)
		}
		byKey[key] = append(byKey[key], m)
	}
	var groups [][]disk.PartitionStat
	for _, key := range keys[:min(len(keys), maxDisks)] {
		g := byKey[key]
		slices.SortStableFunc(g, func(a, b disk.PartitionStat) int {
			return cmp.Or(boolCompare(a.Mountpoint != "/", b.Mountpoint != "/"), boolCompare(isBind(a), isBind(b)),
				cmp.Compare(len(a.Mountpoint), len(b.Mountpoint)), cmp.Compare(a.Mountpoint, b.Mountpoint))
		})
		groups = append(groups, g)
	}
	return groups
}

func diskKey(m disk.PartitionStat) string {
	if strings.HasPrefix(m.Device, "/dev/") {
		return m.Device
	}
	return m.Fstype + " " + m.Device
}

func isBind(m disk.PartitionStat) bool { return slices.Contains(m.Opts, "bind") }

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// isReal tells storage from what the kernel and containers mount for themselves. A block device says it by its name;
// network and pooled file systems have none and are listed.
func isReal(m disk.PartitionStat) bool {
	for _, dir := range [...]string{"/proc", "/sys", "/dev", "/run"} {
		under := m.Mountpoint == dir || strings.HasPrefix(m.Mountpoint, dir+"/")
		if under && !strings.HasPrefix(m.Mountpoint, "/run/media/") {
			return false
		}
	}
	switch m.Fstype {
	case "squashfs", "iso9660", "udf", "erofs", "cramfs", "overlay", "aufs", "tmpfs", "devtmpfs", "ramfs", "nsfs", "proc", "sysfs":
		return false // read-only images are always full; the rest is memory
	case "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "afs", "9p", "virtiofs", "zfs", "bcachefs",
		"fuse.glusterfs", "fuse.sshfs", "fuse.mergerfs", "fuse.rclone", "fuse.ceph", "fuse.unionfs":
		return true
	}
	return strings.HasPrefix(m.Device, "/dev/")
}
