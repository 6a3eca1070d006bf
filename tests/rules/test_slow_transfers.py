"""COMM004 and COMM010: slow ways and slow protocols, and how they are told from each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rules.loop import context_of, diagnosed, recoverable_ms
from tests.rules.ranks import Ranks
from tests.rules.recorded import cost_ms, diagnosed_recording
from trace_analyzer.analyses.references import ring_reference
from trace_analyzer.analyses.slow_transfers import Reason, slow_groups
from trace_analyzer.bench_facts import BenchResult, BenchSize
from trace_analyzer.model import Run
from trace_analyzer.nccl_facts import NcclCommunicator, NcclLog, NcclTransport
from trace_analyzer.rules import few_channels, forced_protocol, slow_transport

MB = 1_000_000


def trained(gbs: float, *, gpu: str = "NVIDIA H200", size: int = 64 * MB, **shape: Any) -> Run:
    """Return two ranks that reduce four buckets a step, each after 2 ms of backward."""
    ranks = Ranks(gpu=gpu)
    for _ in range(6):
        ranks.step()
        ranks.kernels(10, 400)
        for _ in range(4):
            ranks.kernels(5, 400)
            ranks.collective(size, gbs, **shape)
        ranks.join()
        ranks.kernels(1, 500, "adam")
    return ranks.run()


def reasons(run: Run) -> list[Reason]:
    context = context_of(run)
    assert context.study.cross is not None
    assert context.transfers is not None
    return [item.reason for item in slow_groups(run, context.study.cross.events, context.transfers)]


def log(kind: str, plugin: str = "", **communicator: Any) -> NcclLog:
    return NcclLog(
        path="nccl.log",
        host="node0",
        pid=1,
        rank=0,
        communicators=(NcclCommunicator(id=1, rank=0, size=2, **communicator),),
        transports=(
            NcclTransport(
                communicator=0,
                source=0,
                destination=1,
                kind=kind,
                detail="",
                channels=(0, 1),
                plugin=plugin,
            ),
        ),
    )


def test_the_reason_is_what_a_channel_delivers_and_the_launch_shape() -> None:
    assert reasons(trained(26.0, channels=4)) == [Reason.TRANSPORT]
    assert reasons(trained(3.0, channels=2)) == [Reason.TRANSPORT]
    assert reasons(trained(42.0, channels=2)) == [Reason.CHANNELS]
    assert reasons(trained(104.0, channels=24, block=512)) == [Reason.PROTOCOL]
    assert reasons(trained(300.0, channels=24, block=512)) == []
    assert reasons(trained(230.0)) == []


def test_host_memory_instead_of_nvlink() -> None:
    run = replace(
        trained(26.0, channels=4),
        nccl_logs=(log("SHM", nodes=1, system_max_gbs=48.0, system_total_gbs=370.8),),
        environment={0: {"NCCL_P2P_DISABLE": "1"}},
    )
    (finding,) = diagnosed(slow_transport.RULE, run).findings
    assert "reach 26 of 323 GB/s over host memory (SHM)" in finding.title
    assert "NCCL_P2P_DISABLE=1 is set." in finding.proof
    assert finding.confidence == "high"
    # Each of the four transfers takes 2.46 ms, of which 2 ms are hidden but for the last one.
    assert finding.recoverable_ms is not None
    assert finding.recoverable_ms > 2.2


def test_without_a_log_the_way_is_not_named() -> None:
    (finding,) = diagnosed(slow_transport.RULE, trained(26.0, channels=4)).findings
    assert "over" not in finding.title
    assert finding.confidence == "medium"


def test_a_protocol_forced_on_large_messages() -> None:
    run = replace(trained(100.0, block=512, size=320 * MB), environment={0: {"NCCL_PROTO": "LL"}})
    (finding,) = diagnosed(forced_protocol.RULE, run).findings
    assert "low-latency protocol" in finding.title
    assert "NCCL_PROTO=LL is set." in finding.proof
    assert diagnosed(slow_transport.RULE, run).findings == []


def test_small_messages_may_use_the_low_latency_protocol() -> None:
    assert diagnosed(forced_protocol.RULE, trained(40.0, block=512, size=1 * MB)).findings == []


def test_a_late_rank_slows_no_transfer() -> None:
    """As users report it: ends and durations of all-reduces differ by 100 ms between ranks."""
    ranks = Ranks()
    for _ in range(6):
        ranks.step()
        ranks.silent(100_000, rank=0)
        ranks.kernels(5, 400)
        ranks.collective(64 * MB, 280.0)
        ranks.join()
        ranks.kernels(1, 500, "adam")
    run = ranks.run()
    assert reasons(run) == []
    assert diagnosed(slow_transport.RULE, run).checks[0].state == "passed"


def test_small_kernels_that_wait_long_are_not_slow() -> None:
    """As users report it: a grid of 1 × 1 × 1 with 64 threads takes 188 ms in training, 0.1 alone."""
    for sized in (True, False):
        ranks = Ranks()
        for _ in range(6):
            ranks.step()
            ranks.kernels(5, 400)
            ranks.silent(188_000, rank=1)
            ranks.collective(8_192, 0.1, channels=1, block=64, sized=sized)
            ranks.join()
            ranks.kernels(5, 400)
        run = ranks.run()
        assert reasons(run) == []
        assert diagnosed(few_channels.RULE, run).findings == []


def test_copies_between_gpus_over_pcie_are_not_called_slow() -> None:
    """As users report it: two GPUs over PCIe gain nothing, and are slower with peer-to-peer copies."""
    run = replace(
        trained(9.0, channels=2, gpu="Quadro RTX 8000"),
        environment={0: {"NCCL_P2P_DISABLE": "1"}},
        nccl_logs=(log("SHM", nodes=1, system_max_gbs=12.0, system_total_gbs=24.0),),
    )
    diagnosis = diagnosed(slow_transport.RULE, run)
    assert diagnosis.findings == []
    assert diagnosis.checks[0].state == "not-applicable"


def test_recorded_without_peer_to_peer_copies() -> None:
    name = "gpt-small-ddp.slow-transport_1.kineto"
    (finding,) = diagnosed_recording(slow_transport.RULE, name).findings
    assert "over host memory (SHM)" in finding.title
    assert "NCCL_P2P_DISABLE=1 is set." in finding.proof
    # 37.2 ms a step: 2 % of them are allowed, and the label's own half-width.
    assert finding.recoverable_ms == pytest.approx(cost_ms(name), abs=1.1)


def test_two_hosts_without_infiniband_use_sockets() -> None:
    """As users report it: two hosts are eight times slower than one, with GPUs at 100 %."""
    run = replace(trained(1.1), nccl_logs=(log("NET", "Socket", nodes=2),))
    (finding,) = diagnosed(slow_transport.RULE, run).findings
    assert "TCP sockets at 1.1 GB/s" in finding.title
    assert finding.basis == "ceiling"
    assert finding.ceiling_ms is not None
    assert finding.ceiling_ms > 100


def test_processes_of_one_host_that_nccl_takes_for_two_nodes() -> None:
    """Symptom: without peer-to-peer copies and shared memory NCCL counts two nodes in one host."""
    run = replace(
        trained(3.0, channels=2),
        nccl_logs=(log("NET", "Socket", nodes=2, system_total_gbs=370.8),),
        environment={0: {"NCCL_SHM_DISABLE": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}},
    )
    (finding,) = diagnosed(slow_transport.RULE, run).findings
    assert finding.basis == "replay"
    assert "3 of 323 GB/s over TCP sockets (NET/Socket)" in finding.title
    assert "NCCL_SHM_DISABLE=1 is set" in finding.proof
    # Started on two hosts, the network has no reference.
    two = replace(run, environment={0: {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}})
    (finding,) = diagnosed(slow_transport.RULE, two).findings
    assert finding.basis == "ceiling"
    assert finding.confidence == "low"


def test_a_benchmark_of_the_machine_is_the_reference() -> None:
    bench = BenchResult(
        path="bench.json",
        kind="allreduce",
        device="cuda",
        backend="nccl",
        ranks=2,
        gpus=("NVIDIA A10G", "NVIDIA A10G"),
        sizes=tuple(
            BenchSize(
                bytes=size,
                time_us=20 + size / 20_000,
                time_interval_us=(0, 0),
                busbw_gbs=size / (20 + size / 20_000) / 1e3,
                busbw_interval_gbs=(0, 0),
            )
            for size in (1 * MB, 8 * MB, 64 * MB)
        ),
    )
    run = replace(trained(8.0, channels=2, gpu="NVIDIA A10G"), bench=(bench,))
    context = context_of(run)
    assert context.study.cross is not None
    reference = ring_reference(run, context.study.cross.events.groups[0])
    assert reference is not None
    assert reference.measured
    assert context.transfers is not None
    took = reference.transfer_ns(context.transfers.bus_bytes[:1])
    assert float(took[0]) == pytest.approx(3_220_000, rel=0.01)
    assert recoverable_ms(diagnosed(slow_transport.RULE, run)) > 10
