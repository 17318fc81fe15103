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

// hugePage is the size from which on a mapping can hold a large page, in bytes.
const hugePage = 2 << 20

// wantHugePages has the next so many bytes of the heap backed by large pages, where the kernel gives them to those who ask.
// Worlds go through much memory at random, and inside a virtual machine each miss of the processor's table of pages is dear.
// The heap is grown once, untouched, so that what is asked for its addresses holds for all that is put there later; a
// machine that has not four times as much is left alone.
func wantHugePages(bytes int) {
	var has unix.Sysinfo_t
	if err := unix.Sysinfo(&has); err != nil || has.Totalram*uint64(has.Unit)/4 < uint64(bytes) {
		return
	}
	room := make([]byte, bytes)
	askForHugePages()
	runtime.KeepAlive(room)
	debug.FreeOSMemory()
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
