package mesh

import (
	"context"
	"strings"
	"time"

	"atoll/internal/mesh/link"
)

// Limits of what peers may do, each peer by itself (M2).
const (
	burst       = 20 // refusals of one peer in burstWindow that the owner hears of
	burstWindow = 5 * time.Minute
)

// protocols are what other nodes can ask of this one. All but pair and hello are for paired nodes only.
func (r *Room) protocols() []link.Protocol {
	small, idle := 16<<10, 20*time.Second
	return []link.Protocol{
		{Name: "pair", Version: 1, Open: true, MaxFrame: small, Concurrent: 1, Rate: link.Rate{Max: 10, Window: 5 * time.Minute}, Idle: idle, Total: time.Minute, Serve: r.servePair},
		{Name: "hello", Version: 1, Open: true, MaxFrame: small, Concurrent: 2, Rate: link.Rate{Max: 30, Window: time.Minute}, Idle: idle, Total: time.Minute, Serve: r.serveHello},
		{Name: "status", Version: 1, MaxFrame: small, Concurrent: 2, Rate: link.Rate{Max: 60, Window: time.Minute}, Idle: idle, Total: time.Minute, Serve: r.serveStatus},
		{Name: "catalogue", Version: 1, MaxFrame: 1 << 20, Concurrent: 2, Rate: link.Rate{Max: 30, Window: 5 * time.Minute}, Idle: idle, Total: 5 * time.Minute, Serve: r.serveCatalogue},
		{Name: "fetch", Version: 1, Direct: true, MaxFrame: small, Concurrent: 2, Rate: link.Rate{Max: 240, Window: 10 * time.Minute}, Idle: time.Minute, Total: fetchTime, Serve: r.serveFetch},
		{Name: "ask", Version: 1, MaxFrame: small, Concurrent: 2, Rate: link.Rate{Max: 10, Window: 5 * time.Minute}, Idle: askTime, Total: askTime, Serve: r.serveAsk},
	}
}

// onRefused is told by the host of what it did not serve: a frame too large, too many at once, a flood. Strangers count
// as one, so that many keys make no more noise than one.
func (r *Room) onRefused(key, why string) {
	if p := r.peer(key); p == nil || p.state == blocked {
		key = ""
	}
	if r.bursts.Allow(key).Soft {
		r.flooded(context.Background(), key, "much of what it sends is refused ("+plainWhy(why)+")")
	}
}

// plainWhy keeps the host's reason short and on one line.
func plainWhy(why string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, why[:min(len(why), 80)])
}

// flooded tells the owner once that a peer misbehaves.
func (r *Room) flooded(ctx context.Context, key, what string) {
	n := Notice{Security: true, Key: "mesh-burst:" + key, What: "Nodes that are not paired with this one keep trying: " + what + ".",
		Do: "Nothing was served. If it goes on, close the port to them."}
	if p := r.peer(key); p != nil {
		n.What, n.Do = "The peer "+p.called()+" misbehaves: "+what+".", "Ask its owner, or block it: atoll mesh block "+key+"."
	}
	r.cfg.Raise(context.WithoutCancel(ctx), n)
}
