# client.py HOST PORT: what an app on a phone does with a device, a line of JSON for each step.
import json
import queue
import sys

from meshtastic.tcp_interface import TCPInterface
from pubsub import pub

packets = queue.Queue()


def heard(packet, interface):
    packets.put(packet)


def say(**step):
    print(json.dumps(step), flush=True)


def ended(packet):
    decoded = packet["decoded"]
    say(step="ack", sender=packet["from"], request=decoded["requestId"], error=decoded["routing"].get("errorReason", ""))


pub.subscribe(heard, "meshtastic.receive.text")
radio = TCPInterface(hostname=sys.argv[1], portNumber=int(sys.argv[2]), timeout=30)
say(step="nodes", own=radio.myInfo.my_node_num, preset=radio.localNode.localConfig.lora.modem_preset,
    firmware=radio.metadata.firmware_version, channels=len(radio.localNode.channels),
    nodes={n["num"]: n["user"]["longName"] for n in radio.nodes.values()})

for word in ("first", "second"):
    sent = radio.sendData(word.encode(), destinationId=0xA1B2C3D4, portNum=1, wantAck=True, onResponse=ended, onResponseAckPermitted=True)
    say(step="sent", id=sent.id)

for _ in range(2):
    packet = packets.get(timeout=30)
    say(step="heard", sender=packet["from"], to=packet["to"], text=packet["decoded"]["text"], pki=packet.get("pkiEncrypted", False),
        key=packet.get("publicKey", ""), reply=packet["decoded"].get("replyId", 0))
radio.sendHeartbeat()
sys.stdin.readline()  # until the test has seen it all
radio.close()
say(step="end")
