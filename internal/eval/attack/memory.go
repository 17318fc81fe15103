package attack

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	worldMemory = 400 << 20 // bytes for each world, from where on the collector works as hard as it must
	longRun     = 5000      // cases from which on a run takes all of that from the start
	hugePage    = 2 << 20   // bytes; no smaller mapping holds a large page
)

// giveMemory sets what memory a run may use, since much of the time would be the collector's otherwise. A long one takes it
// at once, up to half of the machine's, and backs it by large pages where the kernel gives them to those who ask: worlds go
// through much memory at random, and inside a virtual machine each miss of the processor's table of pages is dear. What it
// returns puts things back.
func giveMemory(c Config) (back func()) {
	bytes, percent := int64(c.Workers)*worldMemory, 800
	var has unix.Sysinfo_t
	if c.Cases >= longRun && unix.Sysinfo(&has) == nil {
		bytes, percent = min(bytes, int64(uint64(has.Totalram)*uint64(has.Unit)/2)), -1
		// The heap grows once, untouched, so that what is asked for its addresses holds for all that is put there later.
		room := make([]byte, bytes)
		askForHugePages()
		runtime.KeepAlive(room)
		debug.FreeOSMemory()
	}
	percent, bytes = debug.SetGCPercent(percent), debug.SetMemoryLimit(bytes)
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(bytes)
	}
}

// askForHugePages asks for large pages in all of this process's own memory.
func askForHugePages() {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		field := strings.Fields(lines.Text()) // addresses, rights, offset, device, inode, name
		if len(field) != 5 || field[1] != "rw-p" || field[4] != "0" {
			continue
		}
		low, high, _ := strings.Cut(field[0], "-")
		from, errFrom := strconv.ParseUint(low, 16, 64)
		to, errTo := strconv.ParseUint(high, 16, 64)
		if errFrom == nil && errTo == nil && to-from >= hugePage {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_HUGEPAGE) // no more than a wish
		}
	}
}
