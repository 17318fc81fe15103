package system

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"
	"github.com/shirou/gopsutil/v4/sensors"

	"atoll/internal/fence"
)

// machine is where the figures come from. Those that take no context may hang and run under a guard.
type machine struct {
	mounts       func(context.Context) ([]disk.PartitionStat, error)
	isDir        func(path string) (bool, error)
	usage        func(path string) (disk.UsageStat, error)
	processor    func(context.Context) (busy, all float64, err error)
	memory       func(context.Context) (mem.VirtualMemoryStat, mem.SwapMemoryStat, error)
	load         func(context.Context) (one, five, fifteen float64, err error)
	uptime       func(context.Context) (int64, error)
	temperatures func(context.Context) ([]Temperature, error)
	interfaces   func() []netInterface
	system       func() (os, kernel string)
}

type netInterface struct {
	Name      string
	Addresses []netip.Addr
}

func realMachine() machine {
	return machine{
		mounts: func(ctx context.Context) ([]disk.PartitionStat, error) { return disk.PartitionsWithContext(ctx, true) },
		isDir:  isDir,
		usage: func(path string) (disk.UsageStat, error) {
			u, err := disk.Usage(path)
			if err != nil {
				return disk.UsageStat{}, err
			}
			return *u, nil
		},
		processor: processorTimes,
		memory:    readMemory,
		load: func(ctx context.Context) (float64, float64, float64, error) {
			l, err := load.AvgWithContext(ctx)
			if err != nil {
				return 0, 0, 0, err
			}
			return l.Load1, l.Load5, l.Load15, nil
		},
		uptime: func(ctx context.Context) (int64, error) {
			s, err := host.UptimeWithContext(ctx)
			return int64(s), err
		},
		temperatures: readTemperatures,
		interfaces:   readInterfaces,
		system:       readSystem,
	}
}

func isDir(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return info.IsDir(), nil
}

func processorTimes(ctx context.Context) (busy, all float64, err error) {
	times, err := cpu.TimesWithContext(ctx, false)
	if err != nil {
		return 0, 0, err
	}
	if len(times) == 0 {
		return 0, 0, errors.New("no processor times")
	}
	t := times[0]
	idle := t.Idle + t.Iowait
	busy = t.User + t.System + t.Nice + t.Irq + t.Softirq + t.Steal
	return busy, busy + idle, nil
}

func readMemory(ctx context.Context) (mem.VirtualMemoryStat, mem.SwapMemoryStat, error) {
	m, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return mem.VirtualMemoryStat{}, mem.SwapMemoryStat{}, err
	}
	s, err := mem.SwapMemoryWithContext(ctx)
	if err != nil {
		return *m, mem.SwapMemoryStat{}, nil // a kernel without swap
	}
	return *m, *s, nil
}

func readTemperatures(ctx context.Context) ([]Temperature, error) {
	all, err := sensors.TemperaturesWithContext(ctx)
	out := make([]Temperature, 0, len(all)) // an error may stand beside the sensors that did answer
	for _, t := range all {
		out = append(out, Temperature{fence.Word(t.SensorKey), t.Temperature})
	}
	if len(out) > 0 {
		err = nil
	}
	return out, err
}

func readInterfaces() []netInterface {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var out []netInterface
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			continue // gone since it was listed
		}
		n := netInterface{Name: i.Name}
		for _, a := range addresses {
			if ip, ok := a.(*net.IPNet); ok {
				if addr, ok := netip.AddrFromSlice(ip.IP); ok {
					n.Addresses = append(n.Addresses, addr)
				}
			}
		}
		out = append(out, n)
	}
	return out
}

func readSystem() (system, kernel string) {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		release = nil
	}
	f, err := os.Open("/etc/os-release")
	if err != nil {
		return "linux", plainKernel(string(release))
	}
	defer f.Close()
	fields := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if k, v, ok := strings.Cut(lines.Text(), "="); ok {
			fields[k] = strings.Trim(v, `"'`)
		}
	}
	return plainSystem(fields["ID"], fields["VERSION_ID"]), plainKernel(string(release))
}

// plainSystem names the distribution in one word.
func plainSystem(id, version string) string {
	for _, s := range []string{id + "-" + version, id} {
		if s = strings.Trim(s, "-"); s != "" && fence.Word(s).Plain() {
			return s
		}
	}
	return "linux"
}

// plainKernel keeps the version's digits where the build's name is no plain word ("6.6.31+rpt-rpi-v8").
func plainKernel(release string) string {
	release = strings.TrimSpace(release)
	if fence.Word(release).Plain() {
		return release
	}
	end := strings.IndexFunc(release, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end >= 0 {
		release = release[:end]
	}
	if !fence.Word(release).Plain() {
		return ""
	}
	return release
}
