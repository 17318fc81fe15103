package docker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"atoll/internal/app/docker/socket"
)

// Report is what a look at the engine found, for doctor. Where none is there, Problem says where was looked.
type Report = Link

// Probe looks once for the engine that a configuration means. It changes nothing. The error is one of the configuration.
func Probe(ctx context.Context, cfg Config) (Report, error) {
	sockets, auto, err := socket.Paths(cfg.Socket, cfg.RuntimeDir)
	if err != nil {
		return Report{}, err
	}
	now := time.Now
	if cfg.Now != nil {
		now = cfg.Now
	}
	found, others := socket.Search(ctx, sockets)
	if found.Client != nil {
		defer found.Client.Close()
	}
	r := linkOf(found, others, auto, now())
	if r.Absent {
		r.Problem = fmt.Sprintf("no container engine was found (looked for %s); where one listens elsewhere, set docker under [apps] in config.toml",
			strings.Join(sockets, ", "))
	}
	return r, nil
}

// linkOf puts a search into words.
func linkOf(found socket.Finding, others []socket.Finding, auto bool, since time.Time) Link {
	l := Link{Since: since, Socket: found.Path}
	for _, o := range others {
		if o.Reach == socket.Denied {
			l.Besides = append(l.Besides, o.Problem(since))
		}
	}
	switch found.Reach {
	case socket.Answers:
		l.Up, l.Engine = true, found.Engine()
		l.Version, l.API = fmt.Sprintf(brief, found.Version.Version), fmt.Sprintf(brief, found.Version.APIVersion)
		l.isPodman = l.Engine == "Podman"
	case socket.Absent:
		if l.Absent = auto; auto {
			l.Socket = ""
			break
		}
		fallthrough
	default:
		l.Problem = found.Problem(since)
	}
	return l
}
