package node

import (
	"context"
	"fmt"
	"os"

	"atoll/internal/app"
	"atoll/internal/app/docker"
	"atoll/internal/app/process"
	"atoll/internal/app/systemd"
	"atoll/internal/event"
)

// openApps makes the room of the apps with all runtimes that the configuration names. One whose peer is not there shows
// it in the list; the node starts all the same.
func (n *Node) openApps() (err error) {
	s := n.cfg.Settings
	runAs := ""
	if os.Geteuid() == 0 {
		runAs = "root"
	}
	if err := process.WriteSample(n.dir.path, n.cfg.Executable, runAs); err != nil {
		return err
	}
	if n.processes, err = process.New(process.Config{Dir: n.dir.path, Log: n.cfg.Log, StopOnClose: n.cfg.StopApps}); err != nil {
		return err
	}
	runtimes := []app.Runtime{n.processes}
	if s.Apps.Docker != "off" && s.Apps.Docker != "" {
		cfg := dockerConfig(s)
		cfg.Log, cfg.Now = n.cfg.Log, n.cfg.Clock.Now
		if n.containers, err = docker.New(cfg); err != nil {
			return fmt.Errorf("apps.docker: %w", err)
		}
		runtimes = append(runtimes, n.containers)
	}
	if len(s.Apps.SystemdUnits) > 0 {
		cfg := systemdConfig(s)
		cfg.Log, cfg.Now = n.cfg.Log, n.cfg.Clock.Now
		if n.units, err = systemd.New(cfg); err != nil {
			return fmt.Errorf("apps.systemd_units: %w", err)
		}
		runtimes = append(runtimes, n.units)
	}
	n.apps, err = app.New(app.Config{Runtimes: runtimes, Log: n.cfg.Log, OnChange: func(st app.Status) {
		n.bus.Publish(event.Event{Name: "apps", Everyone: true, Data: st})
	}})
	return err
}

// runApps keeps the links to the runtimes' peers and tells what changes.
func (n *Node) runApps() []func(context.Context) {
	runs := []func(context.Context){n.apps.Run}
	if n.containers != nil {
		runs = append(runs, n.containers.Run)
	}
	if n.units != nil {
		runs = append(runs, n.units.Run)
	}
	return runs
}

func dockerConfig(s Settings) docker.Config {
	cfg := docker.Config{Socket: s.Apps.Docker, RuntimeDir: fmt.Sprintf("/run/user/%d", os.Geteuid())}
	if s.Assistant.Backend == "openai" {
		cfg.Model = s.Assistant.BaseURL
	}
	return cfg
}

func systemdConfig(s Settings) systemd.Config { return systemd.Config{Units: s.Apps.SystemdUnits} }
