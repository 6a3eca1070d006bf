"""What each form of NCCL's log lines adds to its process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from re import Match

from trace_analyzer.nccl_facts import (
    NcclDevice,
    NcclGraph,
    NcclRing,
    NcclTransport,
    NcclTree,
)
from trace_analyzer.readers import nccl_log_lines as lines
from trace_analyzer.readers.nccl_log_choices import choice_or_call
from trace_analyzer.readers.nccl_log_lines import Message
from trace_analyzer.readers.nccl_process import Process

# True where a fact was taken, False where the line does not end like the form it begins like,
# None where it holds nothing that is kept.
Reading = Callable[[Process, Message], bool | None]


def take_fact(process: Process, message: Message) -> bool | None:
    """Read a message of level INFO into its process."""
    reading = _reading(message.text)
    return None if reading is None else reading(process, message)


def _reading(text: str) -> Reading | None:
    """Return how a message is read, from what it begins with."""
    word = text.split(" ", 1)[0]
    if word in _BY_WORD:
        return _BY_WORD[word]
    if lines.CHOICE_OR_CALL.match(text):
        return choice_or_call
    for start, reading in _BY_START:
        if word.startswith(start):
            return reading
    return _channels if " coll channels, " in text else None


def _version(process: Process, message: Message) -> bool | None:
    match = lines.VERSION.match(message.text)
    if match is not None:
        process.version, process.cuda = match["v"], match["cuda"] or ""
        return True
    return False if message.text.startswith("NCCL version") else None


def _communicator(process: Process, message: Message) -> bool | None:
    text = message.text
    if match := lines.INIT.match(text):
        _init(process, message, match)
        return True
    if match := lines.NODES.match(text):
        building = process.named(match["comm"], message.tid, starts=False)
        building.rank, building.size = int(match["rank"]), int(match["n"])
        building.facts |= {
            name: int(match[name]) for name in ("nodes", "local_ranks", "local_rank")
        }
        if match["mnnvl"] is not None:
            building.facts["mnnvl"] = match["mnnvl"] != "0"
        return True
    if match := lines.ENDED.match(text):
        process.ended(match["comm"])
        return True
    damaged = text.endswith(("- Init START", "- Init COMPLETE")) or " nNodes " in text
    return False if damaged else None


def _init(process: Process, message: Message, match: Match[str]) -> None:
    starts = match["state"] == "START"
    building = process.named(match["comm"], message.tid, starts=starts)
    building.rank, building.size = int(match["rank"]), int(match["n"])
    if match["cuda"] is not None:
        building.device = int(match["cuda"])
    if match["id"] is not None and int(match["id"], 16):
        building.number = int(match["id"], 16)
    facts = building.facts
    if match["nvml"] is not None:
        facts["nvml_device"] = int(match["nvml"])
    if match["bus"] is not None:
        facts["bus_id"] = _bus_id(match["bus"])
    if match["parent"] is not None:
        facts["is_split"] = True
        building.parent = process.live.get(match["parent"])
        facts |= {key: int(match[key]) for key in ("color", "key") if match[key] is not None}
    if not starts:
        process.completed(building, message.tid)


def _bus_id(text: str) -> str:
    """Return a PCI address: `31000` is domain 0, bus 31, device 0, function 0."""
    number = int(text, 16)
    return f"{number >> 20:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}.{number & 0xF:x}"


def _network(process: Process, message: Message) -> bool | None:
    match = lines.NETWORK.match(message.text)
    if match is None:
        return False if message.text.startswith("Using network") else None
    if match["net"] not in process.networks:
        process.networks.append(match["net"])
    return True


def _net(process: Process, message: Message) -> bool | None:
    if lines.NO_IB_DEVICE.match(message.text):
        process.no_ib_device = True
        return True
    match = lines.DEVICES.match(message.text)
    if match is not None:
        for device in lines.DEVICE.finditer(match["devices"]):
            index = int(device["index"])
            process.devices[match["plugin"], index] = NcclDevice(
                plugin=match["plugin"],
                index=index,
                name=device["name"],
                port=None if device["port"] is None else int(device["port"]),
                link=device["link"] or "",
            )
    return None if match is None else True


def _setting(process: Process, message: Message) -> bool | None:
    match = lines.SETTING.match(message.text)
    if match is not None:
        process.settings[match["name"]] = match["value"]
        return True
    return False if " set by environment" in message.text else None


def _channel(process: Process, message: Message) -> bool | None:
    text = message.text
    if match := lines.TRANSPORT.match(text):
        route = _route(match, match["kind"], match["rest"].lstrip("/"))
    elif match := lines.NET_TRANSPORT.match(text):
        route = replace(
            _route(match, "NET", text.split(" via NET/", 1)[1].strip()),
            direction=match["direction"] or "",
            plugin=match["plugin"],
            device=int(match["device"]),
            proxy=None if match["proxy"] is None else int(match["proxy"]),
            gdrdma=match["gdr"] is not None,
        )
    elif match := lines.RING.match(text):
        return _ring(process, message, match)
    else:
        # "Ring 00 : 1 -> 0 -> 1" repeats the rings from this rank's place.
        return None if text.startswith("Ring ") and " via " not in text else False
    building = process.owner(message.tid, message.device, (route.source, route.destination))
    building.routes.setdefault(route, set()).add(int(match["channel"]))
    return True


def _route(match: Match[str], kind: str, detail: str) -> NcclTransport:
    return NcclTransport(
        communicator=None,
        source=int(match["a"]),
        destination=int(match["b"]),
        kind=kind,
        detail=detail,
        channels=(),
        connection=None if match["connection"] is None else int(match["connection"]),
    )


def _ring(process: Process, message: Message, match: Match[str]) -> bool | None:
    ranks = tuple(int(rank) for rank in match["ranks"].split())
    if message.full or sorted(ranks) != list(range(len(ranks))):
        return False  # long rings do not fit in NCCL's line
    building = process.owner(message.tid, message.device)
    if building.size is not None and len(ranks) != building.size:
        return False
    channel = int(match["channel"])
    building.rings[channel] = NcclRing(channel=channel, ranks=ranks)
    return True


def _trees(process: Process, message: Message) -> bool | None:
    match = lines.TREES.match(message.text)
    trees = list(lines.TREE.finditer(match["trees"])) if match else []
    if message.full:
        trees = trees[:-1]
    building = process.owner(message.tid, message.device)
    for tree in trees:
        channel, up = int(tree["channel"]), int(tree["up"])
        down = (int(rank) for rank in tree["down"].split("/"))
        building.trees[channel] = NcclTree(
            channel=channel,
            parent=None if up < 0 else up,
            children=tuple(rank for rank in down if rank >= 0),
        )
    return bool(trees)


def _connected(process: Process, message: Message) -> bool | None:
    if lines.RINGS_CONNECTED.match(message.text):
        process.owner(message.tid, message.device).facts["rings_connected"] = True
        return True
    return None


def _channels(process: Process, message: Message) -> bool | None:
    match = lines.CHANNELS.match(message.text)
    if match is None:
        return False
    facts = process.owner(message.tid, message.device).facts
    facts["coll_channels"] = int(match["coll"])
    facts["p2p_channels"] = int(match["p2p"])
    facts["p2p_channels_per_peer"] = int(match["peer"])
    if match["nvls"] is not None:
        facts["nvls_channels"] = int(match["nvls"])
    return True


def _nvls(process: Process, message: Message) -> bool | None:
    match = lines.NVLS.match(message.text)
    if match is not None:
        owner = process.owner(message.tid, message.device)
        owner.facts["nvls_available"] = match["no"] is None
        return True
    return False if message.text.startswith("NVLS multicast") else None


def _pattern(process: Process, message: Message) -> bool | None:
    match = lines.PATTERN.match(message.text)
    if match is None:
        return False
    number = int(match["pattern"])
    building = process.owner(message.tid, message.device)
    building.graphs.append(
        NcclGraph(
            pattern=number,
            name=lines.PATTERNS.get(number, ""),
            channels=int(match["n"]),
            intra_gbs=float(match["intra"]),
            inter_gbs=float(match["inter"]),
            intra_type=match["ti"],
            inter_type=match["te"],
            cross_nic=int(match["cross"]),
        )
    )
    return True


def _system(process: Process, message: Message) -> bool | None:
    match = lines.SYSTEM.match(message.text)
    if match is not None:
        facts = process.owner(message.tid, message.device).facts
        facts["system_max_gbs"] = float(match["max"])
        facts["system_total_gbs"] = float(match["total"])
        return True
    return False if "System" in message.text else None


_BY_WORD: dict[str, Reading] = {
    "NCCL": _version,
    "RCCL": _version,
    "comm": _communicator,
    "Using": _network,
    "Channel": _channel,
    "Ring": _channel,
    "Trees": _trees,
    "Connected": _connected,
    "NVLS": _nvls,
    "Pattern": _pattern,
    "===": _system,
}
_BY_START: tuple[tuple[str, Reading], ...] = (
    ("NCCL_", _setting),
    ("ncclComm", _communicator),
    ("NET/", _net),
)


__all__ = ["take_fact"]
