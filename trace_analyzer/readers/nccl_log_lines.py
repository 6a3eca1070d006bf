"""The lines of NCCL's log: who wrote a line, and the forms that hold facts.

Written from the forms that NCCL 2.7 to 2.30 print with NCCL_DEBUG=INFO. A line begins with
`host:pid:tid [device] NCCL INFO`; time stamps, launchers' tags and other programs' output may
stand before it, and processes that share a file write into each other's lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# NCCL prints into a buffer of this size: a longer line ends anywhere.
BUFFER_CHARACTERS = 1023

# Host names end at the first dot and have at most 63 characters, which also bounds the search.
_HEAD = re.compile(
    r"(?P<host>[^\s:\[\]<>|]{1,64}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) \[(?P<device>-?\d{1,5})\] "
    r"(?:\[[^\[\]]{1,60}\] )?(?:[^\[\]]{0,120}? )?"
    r"NCCL (?P<level>INFO|WARN|TRACE|ABORT|ERROR)(?: |$)"
)
BARE_VERSION = re.compile(
    r"(?:^|\s)R?NCCL version (?P<v>\d\S*?)(?:\+(?:cuda|hip)(?P<cuda>[\d.]+))?\s*$"
)

VERSION = re.compile(
    r"(?:NCCL|RCCL) version (?P<v>\S+?)(?:\+(?:cuda|hip)(?P<cuda>[\d.]+))?(?: compiled with .*)?$"
)
INIT = re.compile(
    r"(?:nccl\w+ )?comm (?P<comm>0x[0-9a-f]+) rank (?P<rank>\d+) n[rR]anks (?P<n>\d+)"
    r"(?: cudaDev (?P<cuda>\d+))?(?: nvmlDev (?P<nvml>\d+))?(?: busId (?P<bus>[0-9a-f]+))?"
    r"(?: localSize \d+ used \d+ bytes)?"
    r"(?: parent (?P<parent>0x[0-9a-f]+)(?: splitCount \d+)?"
    r"(?: color (?P<color>-?\d+))?(?: key (?P<key>-?\d+))?)?"
    r"(?: commId (?P<id>0x[0-9a-f]+))?\s*- Init (?P<state>START|COMPLETE)"
)
ENDED = re.compile(r"comm (?P<comm>0x[0-9a-f]+) rank \d+ .*- (?:Destroy|Abort) COMPLETE")
NODES = re.compile(
    r"comm (?P<comm>0x[0-9a-f]+) rank (?P<rank>\d+) nRanks (?P<n>\d+) nNodes (?P<nodes>\d+) "
    r"localRanks (?P<local_ranks>\d+) localRank (?P<local_rank>\d+)(?: MNNVL (?P<mnnvl>\d+))?"
)
NETWORK = re.compile(r"Using network (?P<net>\S(?:.*\S)?)")
DEVICES = re.compile(r"NET/(?P<plugin>[^\s:]+) : Using (?P<devices>.*?)(?:; OOB .*)?\s*$")
DEVICE = re.compile(
    r"\[(?P<index>\d+)\](?P<name>[^\s:;\[\]<>/]+)(?::(?P<port>\d+)/(?P<link>[A-Za-z]+))?"
)
NO_IB_DEVICE = re.compile(r"NET/IB : No device found")
SETTING = re.compile(r"(?P<name>NCCL_\w+) set (?:by environment )?to (?P<value>.*?)\.?\s*$")
_ENDS = r"(?P<a>\d+)\[[0-9a-f]+\] -> (?P<b>\d+)\[[0-9a-f]+\]"
_CHANNEL = r"(?:Channel|Ring) (?P<channel>\d+)(?:/(?P<connection>\d+))? : " + _ENDS
TRANSPORT = re.compile(_CHANNEL + r" via (?P<kind>P2P|SHM|DIRECT)(?P<rest>(?:/\S*(?: \S+)?)?)\s*$")
NET_TRANSPORT = re.compile(
    _CHANNEL + r" (?:\[(?P<direction>send|receive)\] )?via NET/(?P<plugin>[^/\s]+)/(?P<device>\d+)"
    r"(?:\((?P<proxy>\d+)\))?(?P<gdr>/GDRDMA(?:\([^)]*\))?)?(?P<rest>(?:/\S*)?)\s*$"
)
RING = re.compile(r"Channel (?P<channel>\d+)/(?P<n>\d+) ?: +(?P<ranks>\d[\d ]*)$")
RINGS_CONNECTED = re.compile(r"Connected all rings")
TREES = re.compile(r"Trees (?P<trees>\[\d+\] .*)$")
TREE = re.compile(
    r"\[(?P<channel>\d+)\] (?P<down>-?\d+(?:/-?\d+)*)->(?P<rank>-?\d+)->(?P<up>-?\d+)(?=\s|$)"
)
CHANNELS = re.compile(
    r"(?P<coll>\d+) coll channels, (?:\d+ collnet channels, )?(?:(?P<nvls>\d+) nvls channels, )?"
    r"(?P<p2p>\d+) p2p channels, (?P<peer>\d+) p2p channels per peer"
)
NVLS = re.compile(r"NVLS multicast support is (?P<no>not )?available on dev (?P<device>\d+)")
PATTERN = re.compile(
    r"Pattern (?P<pattern>\d+), crossNic (?P<cross>\d+), nChannels (?P<n>\d+), "
    r"(?:bw|speed) (?P<intra>[\d.]+)/(?P<inter>[\d.]+), type (?P<ti>\w+)/(?P<te>\w+)"
)
SYSTEM = re.compile(
    r"=== System : max(?:Bw|Width) (?P<max>[\d.]+) total(?:Bw|Width) (?P<total>[\d.]+) ==="
)
CHOICE = re.compile(
    r"(?P<coll>[A-Za-z]\w*): (?P<bytes>\d+) Bytes -> Algo (?P<algo>[A-Z_0-9]*[A-Z][A-Z_0-9]*) "
    r"proto (?P<proto>[A-Z0-9]+) channel\{Lo\.\.Hi\}=\{(?P<lo>\d+)\.\.(?P<hi>\d+)\}"
)
OLD_CHOICE = re.compile(
    r"(?:(?P<coll>[A-Za-z]\w*): )?(?P<bytes>\d+) Bytes -> Algo (?P<algo>\d+) proto (?P<proto>\d+) "
    r"time [\d.]+"
)
SYMMETRIC_CHOICE = re.compile(
    r"(?P<coll>\w+) \[Symmetric\]: (?P<bytes>\d+) Bytes -> Kernel (?P<kernel>\S+) "
    r"nchannels (?P<channels>\d+) nthreads \d+"
)
COPY_CHOICE = re.compile(r"(?P<coll>\w+) \[Copy Engine\]: (?P<bytes>\d+) Bytes -> cudaMemcpy")
CALL = re.compile(
    r"(?P<coll>\w+): opCount (?P<op>[0-9a-f]+) sendbuff \S+ recvbuff \S+ count (?P<count>\d+) "
    r"datatype (?P<type>\d+) op \d+ root \d+ comm (?P<comm>0x[0-9a-f]+) \[nranks=(?P<n>\d+)\] "
    r"stream \S+"
)
# What the forms above begin with: a line that begins so and fits none of them was damaged.
CHOICE_OR_CALL = re.compile(r"(?:\w+(?: \[[\w ]+\])?: )?(?:\d+ Bytes -> |opCount )")

ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
PROTOCOLS = ("LL", "LL128", "SIMPLE")
PATTERNS = {
    1: "balanced-tree",
    2: "split-tree",
    3: "tree",
    4: "ring",
    5: "nvls",
    6: "collnet-direct",
}
# ncclDataType_t by number, in torch's words as everywhere in the model.
TYPES = (
    "Char",
    "Byte",
    "Int",
    "UInt32",
    "Long",
    "UInt64",
    "Half",
    "Float",
    "Double",
    "BFloat16",
    "Float8_e4m3fn",
    "Float8_e5m2",
)


@dataclass(frozen=True, slots=True)
class Message:
    """What one process said in a line.

    `first` is False where another message stands before it in the line; `interrupted` tells that
    another follows, `full` that NCCL's buffer was: either way the text may end too early.
    """

    host: str
    pid: int
    tid: int
    device: int
    level: str
    text: str
    first: bool
    interrupted: bool
    full: bool


def messages(line: str) -> Iterator[Message]:
    """Yield the messages in a line, usually one; two where processes wrote into each other."""
    heads = []
    head = _HEAD.search(line)
    while head is not None:
        heads.append(head)
        # Looking for a head is what a line costs: nearly always there is no other.
        head = _HEAD.search(line, head.end()) if _mentions_again(line, head.end()) else None
    for position, head in enumerate(heads):
        follows = position + 1 < len(heads)
        end = heads[position + 1].start() if follows else len(line)
        yield Message(
            host=head["host"],
            pid=int(head["pid"]),
            tid=int(head["tid"]),
            device=int(head["device"]),
            level=head["level"],
            text=line[head.end() : end],
            first=position == 0,
            interrupted=follows,
            full=end - head.start() >= BUFFER_CHARACTERS,
        )


def _mentions_again(line: str, position: int) -> bool:
    return line.find("NCCL ", position) >= 0


__all__ = ["Message", "messages"]
