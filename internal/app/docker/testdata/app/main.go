// Command app is what runs in the containers of the tests.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM) // first: a process 1 that does not listen yet loses it
	fmt.Println("hello from", strings.Join(os.Args[2:], " "))
	fmt.Fprintln(os.Stderr, "this is stderr")
	switch os.Args[1] {
	case "brief":
		os.Exit(3)
	case "job":
		return
	case "odd":
		fmt.Print("\x1b[31mred\x1b[0m \xff\xfe bell\a\n10%\r20%\n", strings.Repeat("x", 100_000), "\n")
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		time.Sleep(time.Hour)
	case "check":
		if _, err := os.Stat("/tmp/sick"); err == nil {
			os.Exit(1)
		}
		return
	}
	<-end
	fmt.Println("bye")
}
