package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// meshDialTime bounds one look at a relay or a radio.
const meshDialTime = 5 * time.Second

// doctorMesh looks whether the relays and the radio that the owner named are there. It makes no libp2p node: the running
// one has the port.
func doctorMesh(ctx context.Context, s Settings) []Finding {
	if !s.Mesh.Enabled {
		return []Finding{{Name: "mesh", OK: true, Detail: "off (mesh.enabled)"}}
	}
	out := []Finding{{Name: "mesh", OK: true, Detail: fmt.Sprintf("on, %d relays", len(s.Mesh.Relays))}}
	for _, r := range s.Mesh.Relays {
		f := Finding{Name: "relay " + r, OK: true, Detail: "answers"}
		if err := dialRelay(ctx, r); err != nil {
			f.OK, f.Detail, f.Fix = false, words(err), "is the relay on, and its address still the same? correct mesh.relays"
		}
		out = append(out, f)
	}
	if s.Mesh.Radio != "" {
		f := Finding{Name: "radio", OK: true, Detail: s.Mesh.Radio + " answers"}
		address := s.Mesh.Radio
		d := net.Dialer{Timeout: meshDialTime}
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			err = conn.Close()
		}
		if err != nil {
			f.OK, f.Detail, f.Fix = false, words(err), "is the device on, and its network interface enabled? correct mesh.radio"
		}
		out = append(out, f)
	}
	return out
}

func dialRelay(ctx context.Context, address string) error {
	transport, _, _ := strings.Cut(address, "/p2p/")
	m, err := ma.NewMultiaddr(transport)
	if err != nil {
		return err
	}
	network, host, err := manet.DialArgs(m)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(network, "tcp") {
		return errors.New("it has no TCP address, so only the running node can try it")
	}
	d := net.Dialer{Timeout: meshDialTime}
	conn, err := d.DialContext(ctx, network, host)
	if err != nil {
		return err
	}
	return conn.Close()
}
