package radio

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Messages as the Meshtastic project's own library, version 2.7.11, encodes them.
const (
	goldKey      = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	goldQuestion = "0807126f0dd4c3b2a115443322111802221b08011215486f772066756c6c20697320746865206469736b3f480135efbeadde3d00f15365450000d0404803500160baffffffffffffffff017803820120" + goldKey + "880101"
	goldAck      = "121c0dd4c3b2a11544332211220b080512021800350100feca3509000000"
	goldNak      = "121c0dd4c3b2a11544332211220b080512021809350100feca3509000000"
	goldMyInfo   = "1a0c08c4e6888901400358f8eb01"
	goldNode     = "225208d487cb8d0a12450a092161316232633364341210416e6e61206f6e207468652068696c6c1a04414e4e414220" + goldKey + "2500008040"
	goldLora     = "2a10320e0801380340034801501bba060105"
	goldCustom   = "2a083206183e20092807"
	goldComplete = "38f8acd19101"
	goldRebooted = "4001"
	goldQueue    = "5a0c0809100f1810208180f8d70c"
	goldMetadata = "6a100a0e322e372e31352e35363762386561"
	goldWant     = "18f8acd19101"
	goldBeat     = "3a00"
	goldPart     = "0a2215d4c3b2a11802221208011209312f322048616c662e3defbeadde350100feca5001"
	goldPartPKI  = "0a4615d4c3b2a1221208011209312f322048616c662e3defbeadde350100feca5001820120" + goldKey + "880101"
)

func TestParse(t *testing.T) {
	get := func(s string) fromRadio {
		t.Helper()
		m, err := parse(unhex(t, s))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	p := get(goldQuestion).packet
	if p.from != 0xA1B2C3D4 || p.to != 0x11223344 || p.id != 0xDEADBEEF || p.channel != 2 || !p.pki || p.mqtt || !bytes.Equal(p.key, unhex(t, goldKey)) ||
		p.data.port != textApp || string(p.data.payload) != "How full is the disk?" || p.data.nak != nil {
		t.Errorf("question: %+v, %+v", p, p.data)
	}
	for gold, want := range map[string]uint32{goldAck: 0, goldNak: 9} {
		p := get(gold).packet
		if p.data.port != routingApp || p.data.request != 0xCAFE0001 || p.data.nak == nil || *p.data.nak != want {
			t.Errorf("acknowledgement: %+v, %+v", p, p.data)
		}
	}
	if m := get(goldMyInfo); m.own != 0x11223344 {
		t.Errorf("my_info: %+v", m)
	}
	if n := get(goldNode).node; n.num != 0xA1B2C3D4 || n.name != "Anna on the hill" {
		t.Errorf("node_info: %+v", n)
	}
	if m := get(goldLora).modem; *m != presetOf(0) {
		t.Errorf("lora: %+v", m)
	}
	if m := get(goldCustom).modem; *m != custom(62, 9, 7) {
		t.Errorf("custom: %+v", m)
	}
	if m := get(goldComplete); *m.complete != 0x12345678 {
		t.Errorf("config_complete_id: %x", *m.complete)
	}
	if q := get(goldQueue).queue; *q != (queueStatus{9, 15, 16, 0xCAFE0001}) {
		t.Errorf("queueStatus: %+v", q)
	}
	if !get(goldRebooted).rebooted {
		t.Error("rebooted")
	}
	if get(goldMetadata) != (fromRadio{}) || get("") != (fromRadio{}) {
		t.Error("what is not needed is something")
	}
}

func TestEncode(t *testing.T) {
	p := &packet{to: 0xA1B2C3D4, id: 0xCAFE0001, channel: 2, data: &data{port: textApp, payload: []byte("1/2 Half."), reply: 0xDEADBEEF}}
	pki := *p
	pki.channel, pki.pki, pki.key = 0, true, unhex(t, goldKey)
	for want, got := range map[string][]byte{goldWant: wantConfig(0x12345678), goldBeat: heartbeat(), goldPart: p.send(), goldPartPKI: pki.send()} {
		if hex.EncodeToString(got) != want {
			t.Errorf("%x, want %s", got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, s := range map[string]string{
		"cut off":                  goldQuestion[:len(goldQuestion)-4],
		"two messages in one":      goldMyInfo + goldRebooted,
		"to twice":                 "120a" + "1544332211" + "1544332211",
		"from twice":               "120a" + "0d01000000" + "0d02000000",
		"pki twice":                "1206" + "880101" + "880100",
		"the text twice":           "120a" + "2208" + "0801" + "120161" + "120162",
		"the wrong wire type":      "1202" + "0801",
		"decoded and encrypted":    "1207" + "22020801" + "2a0161",
		"a group":                  "0b0c",
		"field number zero":        "0001",
		"more than 32 bits":        "120c" + "18ffffffffff0f" + "0d01000000",
		"no node number":           "1a020800",
		"the node number of all":   "1a0608ffffffff0f",
		"a length beyond the end":  "12ff",
		"a length beyond all":      "12ffffffffffffffffff01",
		"a routing with no number": "120a" + "2208" + "0805" + "12021a00",
	} {
		if m, err := parse(unhex(t, s)); err == nil {
			t.Errorf("%s: %+v", name, m.packet)
		}
	}
}

// M4: a name is bounded, and text.
func TestNameIsBounded(t *testing.T) {
	user := append([]byte{0x12, 0xC8, 0x01}, bytes.Repeat([]byte{0xFF}, 200)...)
	n, err := parseNode(append([]byte{0x08, 0x01, 0x12, 0xCB, 0x01}, user...))
	if err != nil || len(n.name) > 3*maxName || !strings.HasPrefix(n.name, "\uFFFD") {
		t.Errorf("%+v, %v", n, err)
	}
}

func FuzzFromRadio(f *testing.F) {
	for _, s := range []string{goldQuestion, goldAck, goldNak, goldMyInfo, goldNode, goldLora, goldCustom, goldComplete, goldRebooted, goldQueue,
		goldMetadata, "0b0c", "12ffffffffffffffffff01", "1207220208012a0161"} {
		f.Add(unhex(f, s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := parse(in)
		set := 0
		for _, is := range []bool{m.packet != nil, m.own != 0, m.node != nil, m.modem != nil, m.complete != nil, m.rebooted, m.queue != nil} {
			if is {
				set++
			}
		}
		switch {
		case set > 1, err != nil && set > 0:
			t.Fatalf("%d messages in one, %v", set, err)
		case m.node != nil && len(m.node.name) > 3*maxName:
			t.Fatalf("a name of %d bytes", len(m.node.name))
		case m.modem != nil && m.modem.airtime(255) <= 0:
			t.Fatalf("a modem that sends in no time: %+v", m.modem)
		}
	})
}
