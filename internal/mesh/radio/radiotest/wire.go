package radiotest

import (
	"encoding/binary"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// The fields' numbers are those of the Meshtastic protobufs.
const (
	text    = 1
	routing = 5
)

// message builds a protobuf message field by field; a field of value zero is left out.
type message []byte

func (m message) number(n protowire.Number, v uint64) message {
	if v == 0 {
		return m
	}
	return protowire.AppendVarint(protowire.AppendTag(m, n, protowire.VarintType), v)
}

func (m message) fixed(n protowire.Number, v uint32) message {
	if v == 0 {
		return m
	}
	return protowire.AppendFixed32(protowire.AppendTag(m, n, protowire.Fixed32Type), v)
}

func (m message) bytes(n protowire.Number, v []byte) message {
	if len(v) == 0 {
		return m
	}
	return protowire.AppendBytes(protowire.AppendTag(m, n, protowire.BytesType), v)
}

func flag(v bool) uint64 {
	if v {
		return 1
	}
	return 0
}

func framed(body []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0x94, 0xC3}, uint16(len(body))), body...)
}

func myInfo(own uint32) []byte {
	return message{}.bytes(3, message{}.number(1, uint64(own)).number(8, 1).number(11, 30200))
}

func metadata() []byte {
	return message{}.bytes(13, message{}.bytes(1, []byte("2.7.15.0000000")).number(2, 24))
}

func nodeInfo(n Node) []byte {
	id := binary.BigEndian.AppendUint32(nil, n.Num)
	const hex = "0123456789abcdef"
	name := []byte{'!'}
	for _, b := range id {
		name = append(name, hex[b>>4], hex[b&15])
	}
	user := message{}.bytes(1, name).bytes(2, []byte(n.Long)).bytes(3, []byte(n.Short)).number(5, 255).bytes(8, n.Key)
	return message{}.bytes(4, message{}.number(1, uint64(n.Num)).bytes(2, user))
}

// channel is one of the eight: the first is the primary one with the default key, the others are off.
func channel(i int) []byte {
	m := message{}.number(1, uint64(i))
	if i == 0 {
		m = m.bytes(2, message{}.bytes(2, []byte{1}))
	}
	return message{}.bytes(10, append(m, 0x18, byte(flag(i == 0)))) // written even where it is off, so that it is not empty
}

func lora(preset uint32) []byte {
	l := message{}.number(1, 1).number(2, uint64(preset)).number(7, 3).number(8, 3).number(9, 1).number(10, 27)
	return message{}.bytes(5, message{}.bytes(6, l))
}

func complete(id uint32) []byte { return message{}.number(7, uint64(id)) }

func rebooted() []byte { return message{}.number(8, 1) }

func queueState(res int32, id uint32) []byte {
	return message{}.bytes(11, message{}.number(1, uint64(int64(res))).number(2, 15).number(3, 16).number(4, uint64(id)))
}

// routingError is a Routing message; error_reason is written even where it is none, as the device does.
func routingError(reason uint32) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), uint64(reason))
}

func fromPacket(p Packet) []byte {
	if p.Port == 0 {
		p.Port = text
	}
	d := message{}.number(1, uint64(p.Port)).bytes(2, p.Payload).fixed(6, p.Request).fixed(7, p.Reply).fixed(8, p.Emoji).number(9, 1)
	m := message{}.fixed(1, p.From).fixed(2, p.To).number(3, uint64(p.Channel)).bytes(4, d).fixed(6, p.ID).fixed(7, 1_700_000_000).
		number(9, 3).number(10, flag(p.WantAck)).number(14, flag(p.MQTT)).number(15, 3).bytes(16, p.Key).number(17, flag(p.PKI))
	return message{}.number(1, 1).bytes(2, m)
}

// toRadio is one message of a client.
type toRadio struct {
	packet                *Packet
	wantConfig            *uint32
	disconnect, heartbeat bool
}

var errMalformed = errors.New("malformed")

func fields(b []byte, each func(n protowire.Number, v uint64, raw []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		n = protowire.ConsumeFieldValue(num, typ, b)
		if n < 0 {
			return errMalformed
		}
		var v uint64
		var raw []byte
		switch typ {
		case protowire.VarintType:
			v, _ = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			w, _ := protowire.ConsumeFixed32(b)
			v = uint64(w)
		case protowire.BytesType:
			raw, _ = protowire.ConsumeBytes(b)
		}
		if err := each(num, v, raw); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func parseToRadio(b []byte) (out toRadio, err error) {
	err = fields(b, func(n protowire.Number, v uint64, raw []byte) error {
		switch n {
		case 1:
			out.packet = &Packet{}
			return out.packet.parse(raw)
		case 3:
			id := uint32(v)
			out.wantConfig = &id
		case 4:
			out.disconnect = v != 0
		case 7:
			out.heartbeat = true
		}
		return nil
	})
	return out, err
}

func (p *Packet) parse(b []byte) error {
	return fields(b, func(n protowire.Number, v uint64, raw []byte) error {
		switch n {
		case 1:
			p.From = uint32(v)
		case 2:
			p.To = uint32(v)
		case 3:
			p.Channel = uint32(v)
		case 4:
			return fields(raw, func(n protowire.Number, v uint64, raw []byte) error {
				switch n {
				case 1:
					p.Port = uint32(v)
				case 2:
					p.Payload = append([]byte(nil), raw...)
				case 6:
					p.Request = uint32(v)
				case 7:
					p.Reply = uint32(v)
				case 8:
					p.Emoji = uint32(v)
				}
				return nil
			})
		case 6:
			p.ID = uint32(v)
		case 10:
			p.WantAck = v != 0
		case 16:
			p.Key = append([]byte(nil), raw...)
		case 17:
			p.PKI = v != 0
		}
		return nil
	})
}
