// Command atoll is one node of a mesh of home servers, and the command line to it.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"atoll/internal/app/process"
	"atoll/internal/cli"
)

// version is set by the release build.
var version = "dev"

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] { // what the node starts itself by, no commands for people
		case process.LaunchArg:
			os.Exit(process.Launch())
		case process.SampleArg:
			os.Exit(process.Sample(os.Args[2:], os.Stdout, os.Stderr))
		}
	}
	debug.SetGCPercent(50) // a home server's memory is dearer than its processor
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	os.Exit(cli.Main(ctx, os.Args[1:], deps(log)))
}
