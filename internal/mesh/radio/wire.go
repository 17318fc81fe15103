package radio

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// The messages are written by hand with what of them is needed; the numbers are the fields' in the Meshtastic protobufs
// (meshtastic.org, mesh.proto, portnums.proto and config.proto).
const (
	textApp    = 1 // PortNum TEXT_MESSAGE_APP
	routingApp = 5 // PortNum ROUTING_APP
	broadcast  = math.MaxUint32
	keyLen     = 32
	maxName    = 64 // bytes of a node's name that are kept
)

// fromRadio is one message of the device; at most one field is set.
type fromRadio struct {
	packet   *packet
	own      uint32 // my_info.my_node_num
	node     *nodeInfo
	modem    *modem
	complete *uint32 // config_complete_id
	rebooted bool
	queue    *queueStatus
}

// packet is a MeshPacket that the device could decode; data is nil for another.
type packet struct {
	from, to, id uint32
	channel      uint32
	data         *data
	mqtt, pki    bool
	key          []byte // the sender's public key, by which the device decrypted it
}

type data struct {
	port    uint32
	payload []byte
	request uint32 // the packet that this acknowledges
	reply   uint32 // the packet that this answers
	emoji   uint32 // a reaction, no message
	// nak is a routing payload's error_reason; nil where the payload is none.
	nak *uint32
}

type nodeInfo struct {
	num  uint32
	name string
}

type queueStatus struct {
	res       int32
	free, max uint32
	id        uint32
}

// field is one field of a message: a number, or bytes.
type field struct {
	num protowire.Number
	n   uint64
	b   []byte
}

func (f field) u32() (uint32, error) {
	if f.n > math.MaxUint32 {
		return 0, fmt.Errorf("field %d is more than 32 bits", f.num)
	}
	return uint32(f.n), nil
}

// known says which fields of a message are read, and how they are written.
type known map[protowire.Number]protowire.Type

var errWire = errors.New("malformed protobuf")

// walk goes through a message. Fields that are not known are skipped; a known one that is written otherwise, or twice,
// makes the message invalid: the device does neither, and a reader that takes the last and one that takes the first
// would see two different messages.
func walk(b []byte, k known, each func(field) error) error {
	var seen [2]uint64
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errWire
		}
		b = b[n:]
		f := field{num: num}
		want, ours := k[num]
		if ours && want != typ {
			return fmt.Errorf("field %d has wire type %d", num, typ)
		}
		switch typ {
		case protowire.VarintType:
			f.n, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(b)
			f.n = uint64(v)
		case protowire.Fixed64Type:
			f.n, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.b, n = protowire.ConsumeBytes(b)
		default: // groups, which no message has
			return errWire
		}
		if n < 0 {
			return errWire
		}
		b = b[n:]
		if !ours {
			continue
		}
		bit := uint64(1) << (num % 64)
		if seen[num/64]&bit != 0 {
			return fmt.Errorf("field %d comes twice", num)
		}
		seen[num/64] |= bit
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}

// parse reads a FromRadio message.
func parse(b []byte) (out fromRadio, err error) {
	variants := 0
	k := known{2: protowire.BytesType, 3: protowire.BytesType, 4: protowire.BytesType, 5: protowire.BytesType, 7: protowire.VarintType,
		8: protowire.VarintType, 11: protowire.BytesType}
	err = walk(b, k, func(f field) (err error) {
		if variants++; variants > 1 {
			return errors.New("more than one kind of message in one")
		}
		switch f.num {
		case 2:
			out.packet, err = parsePacket(f.b)
		case 3:
			out.own, err = parseOwn(f.b)
		case 4:
			out.node, err = parseNode(f.b)
		case 5:
			out.modem, err = parseConfig(f.b)
		case 7:
			var id uint32
			id, err = f.u32()
			out.complete = &id
		case 8:
			out.rebooted = f.n != 0
		case 11:
			out.queue, err = parseQueue(f.b)
		}
		return err
	})
	if err != nil {
		return fromRadio{}, err
	}
	return out, nil
}

func parsePacket(b []byte) (*packet, error) {
	p := &packet{}
	k := known{1: protowire.Fixed32Type, 2: protowire.Fixed32Type, 3: protowire.VarintType, 4: protowire.BytesType, 5: protowire.BytesType,
		6: protowire.Fixed32Type, 14: protowire.VarintType, 16: protowire.BytesType, 17: protowire.VarintType}
	encrypted := false
	err := walk(b, k, func(f field) (err error) {
		switch f.num {
		case 1:
			p.from = uint32(f.n)
		case 2:
			p.to = uint32(f.n)
		case 3:
			p.channel, err = f.u32()
		case 4:
			p.data, err = parseData(f.b)
		case 5:
			encrypted = true
		case 6:
			p.id = uint32(f.n)
		case 14:
			p.mqtt = f.n != 0
		case 16:
			p.key = append([]byte(nil), f.b...)
		case 17:
			p.pki = f.n != 0
		}
		return err
	})
	if err == nil && encrypted && p.data != nil {
		err = errors.New("a packet that is decoded and encrypted")
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func parseData(b []byte) (*data, error) {
	d := &data{}
	k := known{1: protowire.VarintType, 2: protowire.BytesType, 6: protowire.Fixed32Type, 7: protowire.Fixed32Type, 8: protowire.Fixed32Type}
	err := walk(b, k, func(f field) (err error) {
		switch f.num {
		case 1:
			d.port, err = f.u32()
		case 2:
			d.payload = append([]byte(nil), f.b...)
		case 6:
			d.request = uint32(f.n)
		case 7:
			d.reply = uint32(f.n)
		case 8:
			d.emoji = uint32(f.n)
		}
		return err
	})
	if err != nil || d.port != routingApp {
		return d, err
	}
	return d, walk(d.payload, known{3: protowire.VarintType}, func(f field) error {
		n, err := f.u32()
		d.nak = &n
		return err
	})
}

func parseOwn(b []byte) (own uint32, err error) {
	err = walk(b, known{1: protowire.VarintType}, func(f field) (err error) {
		own, err = f.u32()
		return err
	})
	if err == nil && (own == 0 || own == broadcast) {
		err = errors.New("the device has no node number")
	}
	return own, err
}

func parseNode(b []byte) (*nodeInfo, error) {
	n := &nodeInfo{}
	err := walk(b, known{1: protowire.VarintType, 2: protowire.BytesType}, func(f field) (err error) {
		if f.num == 1 {
			n.num, err = f.u32()
			return err
		}
		return walk(f.b, known{2: protowire.BytesType}, func(f field) error { // User.long_name
			n.name = strings.ToValidUTF8(string(f.b[:min(len(f.b), maxName)]), "\uFFFD")
			return nil
		})
	})
	return n, err
}

// parseConfig reads the modem's settings out of a Config; nil where it is about something else.
func parseConfig(b []byte) (m *modem, err error) {
	err = walk(b, known{6: protowire.BytesType}, func(f field) error {
		var preset bool
		var name, bw, sf, cr uint32
		k := known{1: protowire.VarintType, 2: protowire.VarintType, 3: protowire.VarintType, 4: protowire.VarintType, 5: protowire.VarintType}
		err := walk(f.b, k, func(f field) (err error) {
			switch f.num {
			case 1:
				preset = f.n != 0
			case 2:
				name, err = f.u32()
			case 3:
				bw, err = f.u32()
			case 4:
				sf, err = f.u32()
			case 5:
				cr, err = f.u32()
			}
			return err
		})
		found := custom(bw, sf, cr)
		if preset {
			found = presetOf(name)
		}
		m = &found
		return err
	})
	return m, err
}

func parseQueue(b []byte) (*queueStatus, error) {
	q := &queueStatus{}
	k := known{1: protowire.VarintType, 2: protowire.VarintType, 3: protowire.VarintType, 4: protowire.VarintType}
	err := walk(b, k, func(f field) (err error) {
		switch f.num {
		case 1:
			q.res = int32(f.n) // an int32 on the wire may be negative, in 64 bits
		case 2:
			q.free, err = f.u32()
		case 3:
			q.max, err = f.u32()
		case 4:
			q.id, err = f.u32()
		}
		return err
	})
	return q, err
}

// wantConfig asks the device for its settings, nodes and, from then on, packets.
func wantConfig(id uint32) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), uint64(id))
}

// heartbeat keeps the device from giving its client up; it answers with its queue's state.
func heartbeat() []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), nil)
}

// encode writes the data as it goes on the air.
func (d *data) encode() []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(d.port))
	b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), d.payload)
	return protowire.AppendFixed32(protowire.AppendTag(b, 7, protowire.Fixed32Type), d.reply)
}

// send is a ToRadio message that sends p with want_ack. Its hop limit is left out, which the device takes as its own.
func (p *packet) send() []byte {
	b := protowire.AppendFixed32(protowire.AppendTag(nil, 2, protowire.Fixed32Type), p.to)
	if p.channel != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), uint64(p.channel))
	}
	b = protowire.AppendBytes(protowire.AppendTag(b, 4, protowire.BytesType), p.data.encode())
	b = protowire.AppendFixed32(protowire.AppendTag(b, 6, protowire.Fixed32Type), p.id)
	b = protowire.AppendVarint(protowire.AppendTag(b, 10, protowire.VarintType), 1)
	if p.pki {
		b = protowire.AppendBytes(protowire.AppendTag(b, 16, protowire.BytesType), p.key)
		b = protowire.AppendVarint(protowire.AppendTag(b, 17, protowire.VarintType), 1)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), b)
}
