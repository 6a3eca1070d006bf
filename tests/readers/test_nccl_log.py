"""NCCL's log: every form of line, whose facts they are, and what damaged files give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builder import RankBuilder
from tests.traces import real_trace
from trace_analyzer.analyses.nccl_settings import differing_settings
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.nccl_facts import (
    NcclCall,
    NcclChoice,
    NcclCommunicator,
    NcclDevice,
    NcclLog,
    NcclTransport,
)
from trace_analyzer.readers.discovery import open_run
from trace_analyzer.readers.nccl_log import read, with_ranks

START = (
    "ncclCommInitRank comm 0x564531f27c80 rank 2 nranks 3 cudaDev 0 nvmlDev 0 busId 31000 "
    "commId 0x9ca74fa6e40df7f4 - Init START"
)
COMPLETE = START.replace("START", "COMPLETE")


def said(message: str, *, host: str = "node0", pid: int = 7, tid: int = 7, device: int = 0) -> str:
    return f"{host}:{pid}:{tid} [{device}] NCCL INFO {message}"


def parsed(tmp_path: Path, text: str | bytes) -> list[NcclLog]:
    path = tmp_path / "nccl_7.log"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read(path, display="nccl_7.log")


def log_of(tmp_path: Path, *lines: str) -> NcclLog:
    """Return the log of one process that says these things."""
    (log,) = parsed(tmp_path, "".join(said(line) + "\n" for line in lines))
    return log


def communicator_of(tmp_path: Path, *lines: str) -> NcclCommunicator:
    (found,) = log_of(tmp_path, START, *lines, COMPLETE).communicators
    return found


def transport_of(tmp_path: Path, line: str) -> NcclTransport:
    log = log_of(tmp_path, line)
    assert log.lines.used == 1
    (transport,) = log.transports
    return transport


# --- forms ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "version", "cuda"),
    [
        ("NCCL version 2.28.9+cuda13.0", "2.28.9", "13.0"),
        ("NCCL version 2.21.5+cuda12.4 compiled with CUDA 12.4", "2.21.5", "12.4"),
        ("NCCL version 2.7.8", "2.7.8", ""),
        ("RCCL version 2.20.5+hip6.2", "2.20.5", "6.2"),
    ],
)
def test_version(tmp_path: Path, line: str, version: str, cuda: str) -> None:
    log = log_of(tmp_path, line)
    assert (log.version, log.cuda) == (version, cuda)


def test_a_version_without_prefix_is_that_of_all_processes(tmp_path: Path) -> None:
    text = f"NCCL version 2.18.3+cuda12.1\n{said('x', pid=1)}\n{said('x', pid=2)}\n"
    assert [log.version for log in parsed(tmp_path, text)] == ["2.18.3", "2.18.3"]


def test_init(tmp_path: Path) -> None:
    found = communicator_of(tmp_path)
    assert found == NcclCommunicator(
        id=0x9CA74FA6E40DF7F4,
        rank=2,
        size=3,
        cuda_device=0,
        nvml_device=0,
        bus_id="0000:31:00.0",
        complete=True,
    )
    assert found.id == 11288078569236723700


def test_init_that_did_not_end(tmp_path: Path) -> None:
    (found,) = log_of(tmp_path, START).communicators
    assert not found.complete


def test_init_of_2_7_names_neither_bus_nor_id(tmp_path: Path) -> None:
    (found,) = log_of(
        tmp_path, "comm 0x7f2e rank 1 nranks 4 cudaDev 1 nvmlDev 1 - Init COMPLETE"
    ).communicators
    assert (found.rank, found.size, found.id, found.bus_id) == (1, 4, None, "")
    assert found.complete


def test_split(tmp_path: Path) -> None:
    split = (
        "ncclCommSplit comm 0x55 rank 1 nranks 2 cudaDev 0 nvmlDev 1 busId 47000 parent "
        "0x564531f27c80 splitCount 1 color 0 key 1- Init START"
    )
    done = "ncclCommSplit comm 0x55 rank 1 nranks 2 cudaDev 0 nvmlDev 1 busId 47000 commId 0x0 - Init COMPLETE"
    first, second = log_of(tmp_path, START, COMPLETE, split, done).communicators
    assert (second.parent, second.color, second.key, second.is_split) == (0, 0, 1, True)
    assert second.id is None
    assert not first.is_split
    assert second.complete


def test_nodes(tmp_path: Path) -> None:
    found = communicator_of(
        tmp_path, "comm 0x564531f27c80 rank 2 nRanks 3 nNodes 3 localRanks 1 localRank 0 MNNVL 0"
    )
    assert (found.nodes, found.local_ranks, found.local_rank, found.mnnvl) == (3, 1, 0, False)


def test_network_in_use(tmp_path: Path) -> None:
    log = log_of(tmp_path, "Using network IBext_v8", "Using network Socket", "Using network Socket")
    assert log.networks == ("IBext_v8", "Socket")


def test_network_devices_without_their_addresses(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        "NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:2/RoCE [RO]; OOB ib0:192.0.2.9<0>",
        "NET/Socket : Using [0]eth0:192.0.2.2<0>",
    )
    assert log.devices == (
        NcclDevice(plugin="IB", index=0, name="mlx5_0", port=1, link="IB"),
        NcclDevice(plugin="IB", index=1, name="mlx5_1", port=2, link="RoCE"),
        NcclDevice(plugin="Socket", index=0, name="eth0"),
    )
    assert "192.0.2" not in repr(log)
    assert not log.no_ib_device


def test_no_ib_device(tmp_path: Path) -> None:
    log = log_of(
        tmp_path, "NET/IB : No device found.", "NET/IB : Using [RO]; OOB eth0:192.0.2.2<0>"
    )
    assert log.no_ib_device
    assert log.devices == ()


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("NCCL_P2P_LEVEL set by environment to LOC", "NCCL_P2P_LEVEL", "LOC"),
        ("NCCL_MAX_NCHANNELS set by environment to 1.", "NCCL_MAX_NCHANNELS", "1"),
        ("NCCL_NET_PLUGIN set to none", "NCCL_NET_PLUGIN", "none"),
        ("NCCL_TOPO_FILE set by environment to /home/me/topo.xml", "NCCL_TOPO_FILE", "topo.xml"),
    ],
)
def test_settings(tmp_path: Path, line: str, name: str, value: str) -> None:
    assert log_of(tmp_path, line).settings == {name: value}


def test_secret_settings_are_not_kept(tmp_path: Path) -> None:
    log = log_of(tmp_path, "NCCL_PRIVATE_TOKEN set by environment to abc")
    assert log.settings == {}
    assert "abc" not in repr(log)


@pytest.mark.parametrize(
    ("line", "kind", "detail", "ends", "connection"),
    [
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "P2P", "CUMEM", (0, 1), 0),
        ("Channel 00/1 : 0[0] -> 1[1] via P2P/CUMEM/read", "P2P", "CUMEM/read", (0, 1), 1),
        ("Channel 00/0 : 3[3] -> 2[2] via P2P/IPC", "P2P", "IPC", (3, 2), 0),
        ("Channel 00/0 : 3[3] -> 2[2] via P2P/MNNVL", "P2P", "MNNVL", (3, 2), 0),
        ("Channel 00 : 0[4000] -> 1[c1000] via SHM/direct/direct", "SHM", "direct/direct", (0, 1), None),
        ("Channel 00 : 1[c1000] -> 0[4000] via direct shared memory", None, "", (), None),
        ("Channel 01 : 0[4000] -> 1[c1000] via P2P/direct pointer", "P2P", "direct pointer", (0, 1), None),
        ("Channel 02/0 : 0[0] -> 1[1] via P2P/indirect/2[2]", "P2P", "indirect/2[2]", (0, 1), 0),
        ("Ring 00 : 0[0] -> 1[1] via P2P/IPC", "P2P", "IPC", (0, 1), None),
    ],
)  # fmt: skip
def test_transports_inside_a_node(
    tmp_path: Path,
    line: str,
    kind: str | None,
    detail: str,
    ends: Sequence[int],
    connection: int | None,
) -> None:
    if kind is None:
        log = log_of(tmp_path, line)
        assert log.transports == ()
        assert log.lines.malformed == 1
        return
    found = transport_of(tmp_path, line)
    assert (found.kind, found.detail, found.connection) == (kind, detail, connection)
    assert (found.source, found.destination) == ends
    assert (found.plugin, found.gdrdma, found.direction) == ("", None, "")


def test_transport_through_a_nic(tmp_path: Path) -> None:
    found = transport_of(tmp_path, "Channel 03/0 : 7[7] -> 8[0] [send] via NET/IB/3(6)/GDRDMA")
    assert (found.source, found.destination, found.channels) == (7, 8, (3,))
    assert (found.kind, found.plugin, found.device, found.proxy) == ("NET", "IB", 3, 6)
    assert found.gdrdma is True
    assert found.direction == "send"
    assert found.detail == "IB/3(6)/GDRDMA"


def test_transport_through_a_nic_and_the_host(tmp_path: Path) -> None:
    found = transport_of(tmp_path, "Channel 00/0 : 1[0] -> 2[0] [receive] via NET/IBext_v8/1")
    assert (found.plugin, found.device, found.proxy) == ("IBext_v8", 1, None)
    assert found.gdrdma is False
    assert found.direction == "receive"


def test_transport_of_shared_connections(tmp_path: Path) -> None:
    found = transport_of(tmp_path, "Channel 00/1 : 1[0] -> 2[0] [send] via NET/Socket/0/Shared")
    assert (found.plugin, found.gdrdma) == ("Socket", False)


def test_channels_that_go_the_same_way_are_one_transport(tmp_path: Path) -> None:
    lines = [f"Channel {number:02d}/0 : 0[0] -> 1[1] via P2P/CUMEM" for number in (2, 0, 1, 1)]
    (found,) = log_of(
        tmp_path,
        *lines,
    ).transports
    assert found.channels == (0, 1, 2)


def test_rings_connected(tmp_path: Path) -> None:
    assert communicator_of(tmp_path, "Connected all rings, use ring PXN 0 GDR 1").rings_connected
    assert communicator_of(tmp_path, "Connected all rings").rings_connected
    assert not communicator_of(tmp_path, "Connected all trees").rings_connected


def test_trees(tmp_path: Path) -> None:
    found = communicator_of(tmp_path, "Trees [0] 1/-1/-1->2->0 [1] -1/-1/-1->2->0")
    assert [(tree.channel, tree.parent, tree.children) for tree in found.trees] == [
        (0, 0, (1,)),
        (1, 0, ()),
    ]
    root = communicator_of(tmp_path, "Trees [0] 1/2/-1->0->-1").trees[0]
    assert (root.parent, root.children) == (None, (1, 2))


@pytest.mark.parametrize("line", ["Channel 00/01 : 0 1 2", "Channel 00/02 :    0   1   2"])
def test_rings(tmp_path: Path, line: str) -> None:
    (ring,) = communicator_of(tmp_path, line).rings
    assert (ring.channel, ring.ranks) == (0, (0, 1, 2))


def test_a_ring_without_all_ranks_is_not_one(tmp_path: Path) -> None:
    log = log_of(tmp_path, START, "Channel 00/01 : 0 1", "Channel 01/01 : 0 1 3", COMPLETE)
    assert log.communicators[0].rings == ()
    assert log.lines.malformed == 2


@pytest.mark.parametrize(
    ("line", "coll", "nvls", "p2p", "peer"),
    [
        ("2 coll channels, 2 p2p channels, 2 p2p channels per peer", 2, None, 2, 2),
        (
            "16 coll channels, 16 collnet channels, 8 nvls channels, 32 p2p channels, 4 p2p channels per peer",
            16,
            8,
            32,
            4,
        ),
    ],
)
def test_channel_counts(
    tmp_path: Path, line: str, coll: int, nvls: int | None, p2p: int, peer: int
) -> None:
    found = communicator_of(tmp_path, line)
    assert (found.coll_channels, found.nvls_channels) == (coll, nvls)
    assert (found.p2p_channels, found.p2p_channels_per_peer) == (p2p, peer)


@pytest.mark.parametrize(
    ("line", "available"),
    [
        ("NVLS multicast support is not available on dev 3", False),
        ("NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)", True),
        ("NVLS comm 0x1 headRank 0 nHeads 8", None),
    ],
)
def test_nvls(tmp_path: Path, line: str, available: bool | None) -> None:
    assert communicator_of(tmp_path, line).nvls_available is available


@pytest.mark.parametrize("word", ["bw", "speed"])
def test_graph_search(tmp_path: Path, word: str) -> None:
    (graph,) = communicator_of(
        tmp_path,
        f"Pattern 4, crossNic 0, nChannels 16, {word} 20.000000/10.500000, type NVL/PIX, "
        "sameChannels 1",
    ).graphs
    assert (graph.name, graph.pattern, graph.channels) == ("ring", 4, 16)
    assert (graph.intra_gbs, graph.inter_gbs) == (20.0, 10.5)
    assert (graph.intra_type, graph.inter_type, graph.cross_nic) == ("NVL", "PIX", 0)


@pytest.mark.parametrize(
    "line",
    ["=== System : maxBw 24.0 totalBw 96.0 ===", "=== System : maxWidth 24.0 totalWidth 96.0 ==="],
)
def test_model_of_the_machine(tmp_path: Path, line: str) -> None:
    found = communicator_of(tmp_path, line)
    assert (found.system_max_gbs, found.system_total_gbs) == (24.0, 96.0)


def choice(**values: object) -> NcclChoice:
    base = NcclChoice(communicator=None, operation="allreduce", bytes=4718592, algorithm="RING")
    return replace(base, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "AllReduce: 4718592 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..3}",
            choice(protocol="SIMPLE", channels=4),
        ),
        (
            "AllReduce: 4718592 Bytes -> Algo NVLS_TREE proto LL128 channel{Lo..Hi}={2..2}",
            choice(algorithm="NVLS_TREE", protocol="LL128", channels=1),
        ),
        (
            "AllReduce: 4718592 Bytes -> Algo 1 proto 2 time 12.345000",
            choice(protocol="SIMPLE"),
        ),
        (
            "4718592 Bytes -> Algo 0 proto 0 time 12.345000",
            choice(operation="", algorithm="TREE", protocol="LL"),
        ),
        (
            "AllGather [Symmetric]: 65536 Bytes -> Kernel AllGather_ST nchannels 8 nthreads 512 nWorks 1",
            choice(
                operation="allgather",
                bytes=65536,
                algorithm="SYMMETRIC",
                channels=8,
                kernel="AllGather_ST",
            ),
        ),
        (
            "AllGather [Copy Engine]: 65536 Bytes -> cudaMemcpy",
            choice(operation="allgather", bytes=65536, algorithm="COPY_ENGINE"),
        ),
    ],
)
def test_choices(tmp_path: Path, line: str, expected: NcclChoice) -> None:
    assert log_of(tmp_path, line).choices == (expected,)
    assert log_of(tmp_path, line, line, line).choices == (replace(expected, count=3),)


def test_calls(tmp_path: Path) -> None:
    line = (
        "AllReduce: opCount 139d sendbuff 0x78d056200000 recvbuff 0x78d056200000 count 7382228 "
        "datatype 7 op 0 root 0 comm 0x564531f27c80 [nranks=3] stream 0x78d07125e5e0"
    )
    log = log_of(tmp_path, START, COMPLETE, line, line.replace("139d", "139e"))
    assert log.calls == (
        NcclCall(
            communicator=0, operation="allreduce", elements=7382228, dtype="Float", size=3, count=2
        ),
    )


# --- prefixes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before",
    [
        "",
        "[rank2]: ",
        "[1,0]<stdout>:",
        "2: ",
        "2025-01-01T00:00:00Z stdout F ",
        "[2025-03-12 10:11:12] ",
    ],
)
def test_what_launchers_put_before_a_line(tmp_path: Path, before: str) -> None:
    (log,) = parsed(tmp_path, before + said(START) + "\r\n")
    assert (log.host, log.pid, log.communicators[0].rank) == ("node0", 7, 2)


def test_warnings_are_counted(tmp_path: Path) -> None:
    text = (
        said("x")
        + "\n\n[2025-03-12 10:11:12] node0:7:9 [0] misc/socket.cc:484 NCCL WARN socketPollConnect\n"
        + "node0:7:9 [0] 12.5 enqueue.cc:1 NCCL TRACE call\n"
    )
    (log,) = parsed(tmp_path, text)
    assert (log.lines.warnings, log.lines.unused, log.lines.used) == (1, 2, 0)


# --- whose facts ----------------------------------------------------------------------------


def init(address: str, *, rank: int, size: int, device: int = 0, state: str = "START") -> str:
    return (
        f"ncclCommInitRank comm {address} rank {rank} nranks {size} cudaDev {device} "
        f"nvmlDev {device} busId 60 commId 0x1 - Init {state}"
    )


def test_lines_of_several_processes(tmp_path: Path) -> None:
    lines = []
    for pid, device in ((11, 0), (12, 1)):
        lines += [
            said(init("0xa", rank=device, size=2, device=device), pid=pid, tid=pid, device=device),
            said(f"{4 + device} coll channels, 2 p2p channels, 2 p2p channels per peer", pid=pid, tid=pid, device=device),
        ]  # fmt: skip
    first, second, third, fourth = lines
    logs = parsed(tmp_path, f"{first}\n{third}\nstep 3 loss 2.1\n{second}\n{fourth}\n")
    assert [(log.pid, log.communicators[0].rank) for log in logs] == [(11, 0), (12, 1)]
    assert [log.communicators[0].coll_channels for log in logs] == [4, 5]


def test_one_process_with_two_devices(tmp_path: Path) -> None:
    text = "".join(
        said(line, tid=tid, device=device) + "\n"
        for line, tid, device in [
            (init("0xa", rank=0, size=2, device=0), 20, 0),
            (init("0xb", rank=1, size=2, device=1), 21, 1),
            ("8 coll channels, 2 p2p channels, 2 p2p channels per peer", 21, 1),
            ("4 coll channels, 2 p2p channels, 2 p2p channels per peer", 20, 0),
            (init("0xb", rank=1, size=2, device=1, state="COMPLETE"), 21, 1),
            (init("0xa", rank=0, size=2, device=0, state="COMPLETE"), 20, 0),
            ("Channel 00/0 : 1[1] -> 0[0] via P2P/direct pointer", 30, 1),
        ]
    )
    (log,) = parsed(tmp_path, text)
    assert [item.coll_channels for item in log.communicators] == [4, 8]
    assert [item.communicator for item in log.transports] == [1]


def test_a_line_that_fits_two_communicators_is_of_neither(tmp_path: Path) -> None:
    two = [
        init("0xa", rank=0, size=4),
        init("0xa", rank=0, size=4, state="COMPLETE"),
        init("0xb", rank=1, size=2),
        init("0xb", rank=1, size=2, state="COMPLETE"),
    ]
    log = log_of(
        tmp_path,
        *two,
        "Channel 00/0 : 0[0] -> 3[3] via P2P/IPC",  # of the first: the second has two ranks
        "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC",  # of either
        "AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}",
    )
    assert [(item.destination, item.communicator) for item in log.transports] == [(3, 0), (1, None)]
    assert log.choices[0].communicator is None


def test_an_address_that_comes_again_is_another_communicator(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        init("0xa", rank=0, size=2),
        init("0xa", rank=0, size=2, state="COMPLETE"),
        "comm 0xa rank 0 nranks 2 cudaDev 0 busId 60 - Destroy COMPLETE",
        init("0xa", rank=1, size=4),
        init("0xa", rank=1, size=4, state="COMPLETE"),
        "Channel 00/0 : 1[1] -> 0[0] via P2P/IPC",
    )
    assert [(item.rank, item.size) for item in log.communicators] == [(0, 2), (1, 4)]
    assert log.transports[0].communicator == 1


def test_older_versions_name_the_communicator_at_the_end(tmp_path: Path) -> None:
    def older(address: str, rank: int) -> list[str]:
        return [
            f"Channel 00/0 : {rank}[1000] -> 0[2000] via P2P/IPC",
            f"{4 + rank} coll channels, 8 p2p channels, 8 p2p channels per peer",
            f"comm {address} rank {rank} nranks 4 cudaDev 0 busId 1000 - Init COMPLETE",
        ]

    one = log_of(tmp_path, *older("0xa", 1), "Channel 00/1 : 1[1000] -> 2[2000] via SHM")
    assert one.communicators[0].coll_channels == 5
    assert [item.communicator for item in one.transports] == [0, 0]
    two = log_of(
        tmp_path,
        *older("0xa", 1),
        "Channel 00/1 : 1[1000] -> 2[2000] via SHM/direct/direct",
        *older("0xb", 2),
    )
    assert [item.coll_channels for item in two.communicators] == [5, 6]
    assert [(item.kind, item.communicator) for item in two.transports] == [
        ("P2P", 0),
        ("P2P", 1),
        ("SHM", None),
    ]


# --- damage ---------------------------------------------------------------------------------


def test_lines_written_into_each_other(tmp_path: Path) -> None:
    lines = [
        said("x", pid=11, tid=11),
        said("x", pid=12, tid=12, host="node1"),
        said("Channel 00/0 : 0[0] -> 1[1] via P2P/CUM", pid=11, tid=11)
        + said("NCCL version 2.28.9+cuda13.0", pid=12, tid=12, host="node1"),
        "EM",
        "",
    ]
    first, second = parsed(tmp_path, "\n".join(lines))
    assert (first.host, first.pid, first.transports) == ("node0", 11, ())
    assert first.lines.interleaved == first.lines.not_understood == 1
    assert (second.host, second.pid, second.version) == ("node1", 12, "2.28.9")


def test_a_host_with_the_rest_of_a_line_before_it(tmp_path: Path) -> None:
    lines = [said("x"), "P2P/CUMEM" + said("x"), said("x"), ""]
    (log,) = parsed(tmp_path, "\n".join(lines))
    assert (log.host, log.lines.interleaved, log.lines.unused) == ("node0", 1, 2)


@pytest.mark.parametrize(
    "line",
    [
        "Channel 00/0 : 0[0] -> 1[",
        "Pattern 4, crossNic 0, nChan",
        "=== System : maxBw 24.0 tot",
        "2 coll channels, 2 p2p cha",
        "comm 0x5 rank 2 nRanks 3 nNodes 3 local",
        "AllReduce: 4718592 Bytes -> Algo RING pro",
        "AllReduce: opCount 139d sendbuff 0x78d0562",
        "NVLS multicast support is",
        "NCCL_P2P_LEVEL set by environment",
        "Trees [0",
        "Using network",
    ],
)
def test_cut_lines_are_counted(tmp_path: Path, line: str) -> None:
    log = log_of(tmp_path, line)
    assert (log.lines.malformed, log.lines.used) == (1, 0)


def test_the_last_line_without_an_end_gives_no_fact(tmp_path: Path) -> None:
    whole = said("x") + "\n" + said(init("0xa", rank=0, size=16))
    (log,) = parsed(tmp_path, whole)
    assert log.communicators == ()
    assert log.lines.interleaved == 1


def test_a_line_as_long_as_the_buffer_may_end_too_early(tmp_path: Path) -> None:
    trees = " ".join(f"[{number}] -1/-1/-1->2->0" for number in range(60))
    line = said("Trees " + trees)[:1023]
    (log,) = parsed(tmp_path, said(START) + "\n" + line + "\n")
    assert line.endswith("[49] -1/-1/-1->2->0 [50")
    assert len(log.communicators[0].trees) == 49  # channel 49 is whole, but nothing shows it


def test_other_bytes_do_no_harm(tmp_path: Path) -> None:
    noise = b"\xff\xfe NCCL \x00 \n" + b"A" * (3 << 20) + b"\n" + b"a:" * (1 << 19) + b" NCCL \n"
    (log,) = parsed(tmp_path, noise + said(START).encode() + b"\n")
    assert log.communicators[0].rank == 2


def test_refused_without_a_line_of_nccl(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInputError, match="no line of NCCL's log") as caught:
        parsed(tmp_path, "hello\nNCCL is mentioned\n")
    assert str(caught.value).startswith("nccl_7.log: ")
    with pytest.raises(UnreadableInputError, match="no such file"):
        read(tmp_path / "absent.log")


def test_many_different_choices_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trace_analyzer.readers.nccl_process.MAX_DIFFERENT", 3)
    lines = [
        f"AllReduce: {size} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..0}}"
        for size in range(5)
    ]
    log = log_of(tmp_path, *lines, lines[0])
    assert [item.count for item in log.choices] == [2, 1, 1]
    assert log.lines.beyond_limit == 2


# --- joined to ranks ------------------------------------------------------------------------


def test_the_process_id_joins_a_log_to_its_rank(tmp_path: Path) -> None:
    log = log_of(tmp_path, "x")
    ranks = [replace(RankBuilder(rank=number).build(), pid=6 + number) for number in range(2)]
    assert [item.rank for item in with_ranks([log], ranks, 2)] == [1]


def test_the_host_decides_between_equal_process_ids(tmp_path: Path) -> None:
    log = log_of(tmp_path, "x")
    ranks = [
        replace(RankBuilder(rank=number).build(), pid=7, host=f"node{1 - number}.cluster")
        for number in range(2)
    ]
    assert [item.rank for item in with_ranks([log], ranks, 2)] == [1]
    unknown = [replace(rank, host=None) for rank in ranks]
    assert [item.rank for item in with_ranks([log], unknown, 2)] == [None]


def test_a_communicator_of_the_whole_world_tells_the_rank(tmp_path: Path) -> None:
    log = log_of(tmp_path, START, COMPLETE)
    assert [item.rank for item in with_ranks([log], [], 3)] == [2]
    assert [item.rank for item in with_ranks([log], [], 4)] == [None]
    assert [item.rank for item in with_ranks([log], [], None)] == [None]


def test_settings_that_differ_between_ranks(tmp_path: Path) -> None:
    base = log_of(tmp_path, "NCCL_ALGO set by environment to Ring")
    logs = [
        replace(base, rank=0),
        replace(base, rank=1, settings={"NCCL_ALGO": "Tree"}),
        replace(base, rank=2, settings={"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}),
        replace(base, rank=3, settings={}),
    ]
    found = differing_settings(logs)
    assert [(item.name, dict(item.ranks)) for item in found] == [
        ("NCCL_ALGO", {"Ring": (0, 2), "Tree": (1,)}),
        ("NCCL_PROTO", {None: (0, 1), "LL": (2,)}),
    ]


# --- real logs ------------------------------------------------------------------------------

RUNS = {  # run → process ids of ranks 0 and 1, channels, lines
    "healthy": (2033, 2034, 24, 277, 252),
    "item_sync": (2217, 2218, 24, 277, 252),
    "nccl_1ch": (2694, 2695, 1, 118, 116),
    "slow_cpu_rank": (2422, 2423, 24, 277, 252),
    "slow_loader": (2101, 2102, 24, 277, 252),
}


@pytest.mark.parametrize("run", RUNS)
def test_real_logs(run: str) -> None:
    *pids, channels, lines0, lines1 = RUNS[run]
    for rank, (pid, lines) in enumerate(zip(pids, (lines0, lines1), strict=True)):
        (log,) = read(real_trace(f"h200-ddp/{run}/nccl_{pid}.log"))
        assert (log.host, log.pid, log.version, log.cuda) == ("node0", pid, "2.28.9", "13.0")
        (found,) = log.communicators
        assert (found.rank, found.size, found.cuda_device, found.complete) == (rank, 2, rank, True)
        assert (found.nodes, found.local_ranks, found.local_rank) == (1, 2, rank)
        assert found.bus_id == f"0000:00:0{6 + rank}.0"
        assert found.coll_channels == channels
        assert found.p2p_channels == (32 if channels == 24 else 1)
        assert found.nvls_channels == 0
        assert (found.system_max_gbs, found.system_total_gbs) == (370.8, 370.8)
        assert [(graph.name, graph.channels, graph.intra_gbs) for graph in found.graphs] == [
            ("ring", 12, 30.0),
            ("balanced-tree", 12, 60.0),
        ]
        assert len(found.trees) == channels
        assert [ring.ranks for ring in found.rings] == ([(0, 1)] * channels if rank == 0 else [])
        (transport,) = log.transports
        assert (transport.source, transport.destination) == (rank, 1 - rank)
        assert (transport.kind, transport.detail, transport.communicator) == ("P2P", "CUMEM", 0)
        assert transport.channels == tuple(range(channels))
        assert log.networks == ("Socket",)
        assert log.no_ib_device
        assert log.lines.not_understood == log.lines.warnings == 0
        assert log.lines.used + log.lines.unused == lines


def test_real_settings() -> None:
    (few,) = read(real_trace("h200-ddp/nccl_1ch/nccl_2694.log"))
    assert few.settings == {
        "NCCL_MAX_NCHANNELS": "1",
        "NCCL_MIN_NCHANNELS": "1",
        "NCCL_NVLS_ENABLE": "0",
    }
    (healthy,) = read(real_trace("h200-ddp/healthy/nccl_2033.log"))
    assert healthy.settings == {"NCCL_NVLS_ENABLE": "0"}
    assert healthy.communicators[0].id == 2632764429996179760


def test_a_real_run_holds_its_logs() -> None:
    run = open_run(str(real_trace("h200-ddp/slow_loader")))
    assert [(log.rank, log.pid) for log in run.nccl_logs] == [(0, 2101), (1, 2102)]
    assert [rank.pid for rank in run.ranks] == [2101, 2102]
    assert [(item.rank, len(item.entries)) for item in run.flight] == [(0, 358), (1, 358)]
    assert differing_settings(run.nccl_logs) == ()
