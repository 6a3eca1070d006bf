"""Reports and timelines to render: built here, not analysed, so that every field can be filled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from trace_analyzer.findings import (
    Check,
    ClockDoc,
    CollectiveDoc,
    EnvironmentDoc,
    Evidence,
    ExcludedStep,
    Finding,
    GroupDoc,
    KernelDoc,
    LinkDoc,
    Percentiles,
    Range,
    RankDoc,
    ReplayDoc,
    Report,
    RunDoc,
    Series,
    SourceDoc,
    StepPartition,
    StepRow,
    Steps,
    Tool,
    Verdict,
    WarningDoc,
    WhatIf,
    WindowPartition,
)
from trace_analyzer.timeline import (
    Lane,
    LaneKind,
    RankTimeline,
    SliceKind,
    Slices,
    StepSpan,
    Timeline,
    WorkDetail,
)

MS = 1_000_000

CUTLASS = (
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>"
    "(int, float, float const*, float const*, float const*, float*, float*, float*)"
)
HOSTILE = "</script><img src=x onerror=alert(1)>\u202egnp.exe\u0000\x1b[31m\u200b"


Document = TypeVar("Document", bound=msgspec.Struct)


def change(item: Document, **fields: Any) -> Document:
    return msgspec.structs.replace(item, **fields)


def partition(
    compute: float,
    transfer: float,
    wait: float,
    copy: float,
    idle: float,
    hidden: float,
    **more: Any,
) -> StepPartition:
    exposed = transfer + wait
    step = compute + exposed + copy + idle
    return StepPartition(
        step_ms=step,
        step_median_ms=more.pop("median", step),
        compute_ms=compute,
        comm_ms=exposed + hidden,
        comm_exposed_ms=exposed,
        copy_exposed_ms=copy,
        idle_ms=idle,
        **more,
    )


def split(step: StepPartition, transfer: float, wait: float) -> StepPartition:
    return change(
        step,
        comm_exposed_transfer_ms=transfer,
        comm_exposed_wait_ms=wait,
        comm_exposed_unsplit_ms=0.0,
        comm_transfer_ms=transfer,
        comm_wait_ms=wait,
    )


def window_of(step: StepPartition, steps: int) -> WindowPartition:
    return WindowPartition(
        window_ms=step.step_ms * steps + 10.0,
        compute_ms=step.compute_ms * steps,
        comm_ms=step.comm_ms * steps,
        comm_exposed_ms=step.comm_exposed_ms * steps,
        copy_exposed_ms=step.copy_exposed_ms * steps,
        idle_ms=step.idle_ms * steps + 10.0,
        head_ms=9.5,
        tail_ms=0.5,
    )


def rows_of(step: StepPartition, first: int = 3, count: int = 5) -> list[StepRow]:
    wobble = (1.03, 0.99, 1.0, 0.985, 0.995)
    return [
        StepRow(
            index=first + k,
            start_ms=9.5 + k * step.step_ms,
            step_ms=step.step_ms * wobble[k % 5],
            compute_ms=step.compute_ms * wobble[k % 5],
            comm_ms=step.comm_ms,
            comm_exposed_ms=step.comm_exposed_ms,
            copy_exposed_ms=step.copy_exposed_ms,
            idle_ms=step.idle_ms,
            steady=True,
        )
        for k in range(count)
    ]


def rank(number: int, step: StepPartition | None, host: str = "node0") -> RankDoc:
    return RankDoc(
        rank=number,
        gpu=f"GPU {number % 8}",
        host=host,
        window=window_of(step, 5) if step is not None else None,
        step=step,
        steps=rows_of(step) if step is not None else [],
        pid=2000 + number,
        rank_basis="content",
    )


def sources(count: int) -> list[SourceDoc]:
    return [
        SourceDoc(
            path=f"rank{r}.pt.trace.json.gz",
            kind="kineto",
            bytes=910_000 + r,
            sha256=f"{r:x}" * 64 if r < 16 else f"{r:064x}",
            ranks=[r],
            gpu_operations=3883 - r,
            tool="torch 2.11.0",
        )
        for r in range(count)
    ]


def nccl_row(size: int, count: float, transfer: float, waits: dict[str, float]) -> CollectiveDoc:
    return CollectiveDoc(
        operation="allreduce",
        group="default_pg",
        ranks=[int(r) for r in waits] or [0, 1],
        dtype="fp32",
        bytes=size,
        count_per_step=count,
        grid=[24, 1, 1],
        block=[544, 1, 1],
        channels=24,
        duration_us=Percentiles(p50=transfer * 1.4, p99=transfer * 9),
        transfer_us=Percentiles(p50=transfer, p99=transfer * 1.1),
        wait_us=waits,
        algbw_gbs=size / transfer / 1e3,
        busbw_gbs=size / transfer / 1e3,
        exposed_ms_per_step=transfer * count / 1e3,
        count=int(count * 10),
        kernel="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        duration_ms_by_rank={r: 5 * count * (transfer + w) / 1e3 for r, w in waits.items()},
    )


def unmatched(row: CollectiveDoc) -> CollectiveDoc:
    """What is known before collectives are matched between ranks."""
    return change(row, transfer_us=None, wait_us={}, exposed_ms_per_step=None)


_KERNELS = (
    ("nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NNT", "matmul", 33, 4.35, 2.98, [2, 66], 384, 168),
    ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTN", "matmul", 16, 2.56, 1.45, [2, 64], 384, 168),
    ("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT", "matmul", 32, 2.26, 2.30, [2, 66], 384, 168),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_6_64x64x64_kernel0_0",
        "attention",
        8,
        1.45,
        1.24,
        [132],
        384,
        168,
    ),
    (
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
            "namespace)::TensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamW>(x)"
        ),
        "optimizer",
        8,
        1.29,
        1.28,
        [320],
        512,
        60,
    ),
    (
        (
            "void (anonymous namespace)::cunn_SoftMaxBackward<8, float, float, float, "
            "LogSoftMaxBackwardEpilogue>(float*, float const*, float const*, long)"
        ),
        "softmax-loss",
        1,
        1.09,
        1.09,
        [8192],
        512,
        56,
    ),
    (
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
            "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
        ),
        "elementwise",
        40,
        1.0,
        0.79,
        [264, 3],
        512,
        25,
    ),
    (
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
            "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)"
        ),
        "elementwise",
        12,
        0.4,
        0.39,
        [8192],
        1024,
        32,
    ),
    (CUTLASS, "normalization", 17, 0.3, 0.3, [8192], 256, 40),
)


def kernels(ranks: int = 2) -> list[KernelDoc]:
    docs = [
        KernelDoc(
            name=name,
            category=kind,
            count=count * 5 * ranks,
            total_ms=(first + second) * 2.5 * ranks,
            mean_us=1e3 * first / count,
            grid=[*grid, 1, 1][:3],
            block=[block, 1, 1],
            registers=registers,
            shared_bytes=212_992 if kind == "matmul" else 2048,
            occupancy=None,
            ranks={str(r): (first, second)[r % 2] for r in range(ranks)},
            count_per_step=float(count),
        )
        for name, kind, count, first, second, grid, block, registers in _KERNELS
    ]
    copies = KernelDoc(
        name="Memcpy DtoD (Device -> Device)",
        category="memcpy",
        count=10 * ranks,
        total_ms=0.3,
        mean_us=30.0,
        grid=None,
        block=None,
        registers=None,
        shared_bytes=None,
        occupancy=None,
        ranks={str(r): 0.03 for r in range(ranks)},
        count_per_step=1.0,
    )
    return [*docs, copies]


def checks() -> list[Check]:
    passed = (
        ("COMM003", "few-channels", "24 channels"),
        ("COMM004", "slow-transport", "NVLink P2P, no fallback"),
        ("DATA001", "dataloader-stall", "fetch 0.05–0.09 ms"),
        ("HOST002", "per-step-sync", "no synchronising call inside a step"),
        ("HOST004", "unfused-optimizer", "fused AdamW"),
        ("MEM001", "allocator-churn", "no cudaMalloc or cudaFree in 5 steps"),
        ("RANK003", "unequal-work", "706 operations on both ranks"),
    )
    done = [
        Check(code=code, state="passed", reason=reason, needs="", name=name)
        for code, name, reason in passed
    ]
    return [
        *done,
        Check(
            code="COMM007",
            state="not-applicable",
            reason="no FSDP or ZeRO collectives",
            needs="",
            name="serial-prefetch",
        ),
        Check(
            code="HOST007",
            state="not-applicable",
            reason="no scheduler events",
            needs="an nsys recording",
            name="cpu-contention",
        ),
        Check(
            code="GPU005",
            state="not-distinguishable",
            reason="0.2 ms [−0.1, 0.4], hidden behind finding 1",
            needs="",
            name="cast-or-layout-copies",
        ),
        Check(
            code="GPU003", state="error", reason="no device limits", needs="", name="low-occupancy"
        ),
    ]


def steps(**fields: Any) -> Steps:
    values: dict[str, Any] = {
        "boundary": "ProfilerStep#N",
        "count": 5,
        "used": [3, 4, 5, 6, 7],
        "excluded": [],
        "profiled_ms": 54.6,
        "profiled_mean_ms": 54.9,
    }
    return Steps(**(values | fields))


def run(name: str, world: int, **fields: Any) -> RunDoc:
    values: dict[str, Any] = {
        "name": name,
        "world_size": world,
        "started": "2026-11-29T12:00:00Z",
        "hosts": ["node0"],
        "gpu": "NVIDIA H200",
        "parallelism": "DDP, bf16",
        "command": None,
        "sources": sources(world),
        "recorded_ranks": list(range(world)),
        "versions": {"torch": "2.11.0+cu130", "nccl": "2.28.9", "cuda": "13.0", "driver": "580.95"},
    }
    return RunDoc(**(values | fields))


def environment(world: int = 2) -> EnvironmentDoc:
    values = {"NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "4", "NCCL_DEBUG": "INFO"}
    return EnvironmentDoc(per_rank={str(r): dict(values) for r in range(world)})


def verdict(state: str = "no-verdict", **fields: Any) -> Verdict:
    values: dict[str, Any] = {
        "state": state,
        "headline": "Of a 54.6 ms step, rank 0 communicates for 26.7 ms that no compute hides.",
        "proof": "Compute fills 27.5 ms of rank 0's step and 23.6 ms of rank 1's.",
        "rival": "",
        "do_next": "Compare rank 1's host between the steps: its GPU is idle for 29.4 ms a step.",
        "confidence": None,
        "primary": None,
        "opportunity": None,
        "step_ms": 54.6,
        "recoverable_ms": None,
        "recoverable_interval_ms": None,
        "joint_recoverable_ms": None,
    }
    return Verdict(**(values | fields))


def bare(name: str = "run", world: int = 2, **fields: Any) -> Report:
    """A report as the first version makes it: partition and tables, no rule, no replay."""
    first = partition(
        27.49,
        2.82,
        23.9,
        0.03,
        0.38,
        15.89,
        idle_launch_ms=0.0,
        idle_latency_ms=0.3,
        idle_other_ms=0.08,
    )
    second = partition(
        23.65,
        1.96,
        0.0,
        0.08,
        29.42,
        0.84,
        idle_launch_ms=28.26,
        idle_latency_ms=0.9,
        idle_other_ms=0.26,
    )
    rows = [
        nccl_row(131_072_000, 1.0, 502, {"0": 20_410, "1": 0.0}),
        nccl_row(33_554_432, 12.0, 144, {"0": 1666, "1": 0.0}),
        nccl_row(147_900_000, 1.0, 513, {"0": 1360, "1": 0.0}),
    ]
    values: dict[str, Any] = {
        "schema_version": 1,
        "tool": Tool(
            name="trace-analyzer",
            version="0.1.0",
            options={"run": f"{name}/", "html": f"{name}.html"},
        ),
        "run": run(name, world),
        "warnings": [],
        "verdict": verdict(),
        "findings": [],
        "checks": [],
        "steps": steps(),
        "ranks": [rank(r, (first, second)[r % 2]) for r in range(world)],
        "collectives": [unmatched(row) for row in rows],
        "kernels": kernels(world),
        "environment": environment(world),
    }
    return Report(**(values | fields))


def late_rank_finding(**fields: Any) -> Finding:
    values: dict[str, Any] = {
        "code": "RANK001",
        "name": "late-rank-host",
        "kind": "fault",
        "status": "stable",
        "title": "Rank 1's host is late",
        "severity": "high",
        "ranks": [1],
        "recoverable_ms": 8.5,
        "recoverable_interval_ms": [7.9, 10.1],
        "ceiling_ms": 15.4,
        "basis": "replay",
        "confidence": "high",
        "confidence_reason": "Replay reproduces the traced steps within 0.3 %; all 70 all-reduces "
        "matched; the unprofiled step time is measured. Ceiling 15.4 ms: the silence itself; part "
        "of it is hidden because rank 0 needs 25.7 ms anyway.",
        "caused_by": None,
        "proof": "Rank 1's GPU has nothing to run until its host wakes up. Rank 0 finishes its half "
        "of the work and spins inside all-reduce until rank 1 arrives.",
        "rival": "Not the network. Transfer takes 2.8 ms a step, and the 147.9 MB all-reduce moves "
        "at 288 GB/s with 24 channels. Only the wait is long.",
        "limits": "A host that is late only under the profiler looks the same. Excluded here: the "
        "delay survives in the unprofiled steps (34.3 ms).",
        "evidence": [
            Evidence(
                title="Per step in this trace: medians, waits as means",
                columns=["Measure", "Rank 0", "Rank 1", "Seen in"],
                rows=[
                    ["Longest silence of all host threads", "0.6 ms", "15.4 ms", "5 of 5"],
                    ["GPU idle because its launch was late", "0.0 ms", "28.3 ms", "5 of 5"],
                    ["Wait for peer inside all-reduce", "41.8 ms", "0.0 ms", "5 of 5"],
                    ["… the same without the profiler's cost", "20.9 ms", "0.0 ms", "replay"],
                    ["Last to arrive, all-reduces", "0 of 70", "70 of 70", "all matched"],
                    ["GPU operations launched", 706, 706, "equal work"],
                ],
                ranges=[
                    Range(rank=1, start_ns=(9 + 55 * k) * MS, end_ns=(24 + 55 * k) * MS)
                    for k in range(5)
                ],
            )
        ],
        "ranges": [
            Range(
                rank=1,
                start_ns=(9 + 55 * k) * MS,
                end_ns=(24 + 55 * k) * MS + MS // 2,
                label="no host activity 15.5 ms",
            )
            for k in range(5)
        ],
        "actions": [
            (
                "Look at what rank 1 runs after the batch is fetched. The silence starts 0.1 ms after "
                "the loader returned, inside your range `data`, and ends with the first operator of "
                "`forward`. Search for code that depends on the rank: logging, checkpoints, metrics, "
                "sleeps."
            ),
            (
                "If the code is the same, look at the machine. CPU affinity, other processes and "
                "clocks of the cores under rank 1."
            ),
            "To get the line of code, record ten steps with stacks: `trace-analyzer collect torch --with-stack`",
            "Expect 25.7 ms a step [24.1, 26.4]. If it stays above 27 ms, the cause was not this one.",
        ],
        "edit": "rank 1's host as fast as rank 0's",
    }
    return Finding(**(values | fields))


def slow_cpu_rank() -> Report:
    """The first worked example of the design: a late host on one of two ranks."""
    report = bare("slow_cpu_rank")
    first, second = (item.step for item in report.ranks)
    assert first is not None
    assert second is not None
    second = change(
        second,
        idle_launch_by_host={"silent host": 14.54, "data loading": 1.2, "python or other": 12.52},
    )
    overlapped = late_rank_finding(
        code="COMM001",
        name="exposed-collective",
        title="Last all-reduce is not overlapped",
        severity="low",
        ranks=[0, 1],
        recoverable_ms=0.9,
        recoverable_interval_ms=[0.6, 1.2],
        ceiling_ms=1.96,
        confidence="medium",
        evidence=[],
        ranges=[],
        rival="",
    )
    slow = Series(
        label="Unprofiled step of rank 0",
        unit="ms",
        values=[34.3, 34.1, 61.2, 34.4, 34.2, None, 60.8, 34.3],
        first=12,
        marked=[14, 18],
    )
    overlapped = change(
        overlapped, evidence=[Evidence(title="Steps", columns=[], rows=[], series=[slow])]
    )
    copies = late_rank_finding(
        code="GPU005",
        name="cast-or-layout-copies",
        title="Dtype and layout copies",
        severity="low",
        ranks=[0, 1],
        recoverable_ms=0.1,
        recoverable_interval_ms=[-0.1, 0.2],
        ceiling_ms=2.3,
        confidence="low",
        evidence=[],
        ranges=[],
    )
    rows = [
        nccl_row(131_072_000, 1.0, 502, {"0": 20_410, "1": 0.0}),
        nccl_row(33_554_432, 12.0, 144, {"0": 1666, "1": 0.0}),
        nccl_row(147_900_000, 1.0, 513, {"0": 1360, "1": 0.0}),
    ]
    late = {"3": 16.7, "4": 18.5, "5": 24.3, "6": 18.7, "7": 23.9}
    return change(
        report,
        verdict=verdict(
            "fault",
            headline="Rank 1's host is late. Fixing it gives back 8.5 of 34.3 ms a step (25 %).",
            proof="In 5 of 5 steps rank 1's Python goes silent for 15.4 ms before the forward pass; "
            "on rank 0 never longer than 0.8 ms. Rank 0 then waits inside all-reduce: rank 1 was "
            "last in 70 of 70.",
            rival="Not the network. Transfer is 2.8 ms a step, at 288 GB/s.",
            do_next="Look at what rank 1 executes between fetching the batch and `model(x)`.",
            confidence="high",
            primary="RANK001",
            step_ms=34.3,
            recoverable_ms=8.5,
            recoverable_interval_ms=[7.9, 10.1],
            joint_recoverable_ms=9.4,
        ),
        warnings=[
            WarningDoc(
                code="TRC006",
                severity="warning",
                message="The ranks' recordings start at different operations: 13 NCCL kernels of "
                "rank 0 and 2 of rank 1 belong to earlier steps",
                effect="and were left out of matching.",
                count=15,
                ranks=[0, 1],
            ),
            WarningDoc(
                code="TRC003",
                severity="warning",
                message="The profiler made steps 59 % longer (54.6 vs 34.3 ms).",
                effect="Waits in the trace are too large: rank 0's 41.8 ms is 20.9 ms without the profiler.",
                count=1,
                ranks=[0, 1],
            ),
        ],
        findings=[late_rank_finding(), overlapped, copies],
        checks=checks(),
        steps=steps(
            unprofiled_ms=34.26,
            unprofiled_basis="measured",
            unprofiled_count=12,
            perturbation=0.59,
            replay_error=0.003,
            bound="host",
        ),
        ranks=[
            change(report.ranks[0], step=split(first, 2.82, 23.9)),
            change(report.ranks[1], step=split(second, 1.96, 0.0)),
        ],
        collectives=rows,
        lateness={step: {"0": 0.0, "1": value} for step, value in late.items()},
        links=[
            LinkDoc(
                src=a,
                dst=1 - a,
                bytes=147_900_000,
                count=5,
                latency_us=None,
                bandwidth_gbs=288.0,
                reference_gbs=370.8,
                basis="pair-group",
            )
            for a in (0, 1)
        ],
        clock=[
            ClockDoc(rank=0, offset_us=0.0, residual_us=0.0),
            ClockDoc(rank=1, offset_us=3.0, residual_us=15.0),
        ],
        replay=ReplayDoc(
            base_ms=34.3,
            joint_ms=24.9,
            what_if=[WhatIf(name="RANK001", ms=25.7, interval_ms=[24.1, 26.4])],
        ),
    )


def nccl_1ch() -> Report:
    report = bare("nccl_1ch")
    finding = late_rank_finding(
        code="COMM003",
        name="few-channels",
        title="NCCL runs on 1 channel",
        ranks=[0, 1],
        recoverable_ms=22.5,
        recoverable_interval_ms=[22.3, 22.6],
        ceiling_ms=33.2,
        edit="24 channels",
        ranges=[],
    )
    rows = [
        change(row, grid=[1, 1, 1], channels=1, busbw_gbs=20.9, algbw_gbs=20.9)
        for row in report.collectives
    ]
    return change(
        report,
        verdict=verdict(
            "fault",
            headline="NCCL runs on 1 channel. Lifting the limit gives back 22.5 of 48.2 ms a step (47 %).",
            proof="All 14 all-reduces of a step run as 1 block of 544 threads: transfer takes "
            "36.1 ms a step, 147.9 MB at 20.9 GB/s. `NCCL_MAX_NCHANNELS=1` is set on both ranks.",
            rival="Not a late rank. Waits are 0.1 ms a step or less.",
            do_next="Remove `NCCL_MAX_NCHANNELS` and `NCCL_MIN_NCHANNELS` from the environment of all ranks.",
            confidence="high",
            primary="COMM003",
            step_ms=48.2,
            recoverable_ms=22.5,
            recoverable_interval_ms=[22.3, 22.6],
        ),
        findings=[finding],
        checks=checks(),
        collectives=rows,
        steps=steps(
            profiled_ms=48.3,
            unprofiled_ms=48.2,
            unprofiled_basis="measured",
            unprofiled_count=12,
            perturbation=0.002,
        ),
    )


def healthy() -> Report:
    report = bare("healthy")
    return change(
        report,
        verdict=verdict(
            "nothing",
            headline="No cause above 3 % of the 25.7 ms step.",
            proof="31 causes: 25 checked, 6 not applicable. The trace shows rank 0 waiting 22.7 ms a "
            "step, but that is the profiler: without it the wait is 0.1 ms.",
            rival="What fills the step. 23.8 ms of compute, 1.7 ms of transfer that compute does not hide.",
            do_next="Nothing to repair; to go faster, change the work (Kernels).",
            step_ms=25.7,
        ),
        findings=[
            late_rank_finding(
                code="HOST001",
                name="launch-bound-step",
                title="Launches are slow",
                kind="opportunity",
                severity="low",
                ranks=[0, 1],
                recoverable_ms=0.4,
                recoverable_interval_ms=[0.1, 0.6],
                ceiling_ms=0.9,
                ranges=[],
            )
        ],
        checks=checks(),
        steps=steps(
            profiled_ms=35.7,
            unprofiled_ms=25.74,
            unprofiled_basis="measured",
            unprofiled_count=12,
            perturbation=0.39,
        ),
    )


def truncated() -> Report:
    """No verdict: the file is cut, one step is left, the other ranks are absent."""
    report = bare("truncated_json", 1)
    return change(
        report,
        run=change(report.run, world_size=2, missing_ranks=[1]),
        verdict=verdict(
            headline="The trace is cut off at 80 %. Too little is left to name a cause.",
            proof="The JSON ends inside an event (TRC001); a verdict needs 2 complete steps.",
            rival="What still holds. Sums over the complete step, marked “partial” below.",
            do_next="Record again: at least 10 steps, all ranks, and let the process exit before copying the file.",
        ),
        warnings=[
            WarningDoc(
                code="TRC002",
                severity="warning",
                message="Rank 1 of 2 has no file.",
                effect="Waiting cannot be told from transfer.",
                count=1,
                ranks=[1],
            ),
            WarningDoc(
                code="TRC001",
                severity="error",
                message="rank0.json ends inside an event at 80 %.",
                effect="Steps after the cut are missing.",
                count=1,
                ranks=[0],
            ),
            WarningDoc(
                code="TRC009",
                severity="note",
                message="2 events without a duration were skipped.",
                effect="",
                count=2,
                ranks=[0],
            ),
        ],
        answers=[
            Check(code="", state="passed", reason="yes", needs="", name="Kernels of step 4"),
            Check(
                code="",
                state="not-distinguishable",
                reason="1 step, partial",
                needs="",
                name="Where a step goes",
            ),
            Check(
                code="",
                state="not-applicable",
                reason="",
                needs="the other ranks",
                name="Late ranks, wait, links",
            ),
            Check(
                code="",
                state="not-applicable",
                reason="",
                needs="2 complete steps",
                name="Recoverable time",
            ),
        ],
        ranks=[change(report.ranks[0], partial=True)],
        steps=steps(count=1, used=[4], excluded=[ExcludedStep(step=5, reason="not complete")]),
    )


def likely() -> Report:
    """A predicted step time, a ceiling instead of a replayed gain, and experimental rules."""
    report = slow_cpu_rank()
    first = change(report.findings[0], confidence="medium")
    second = change(
        report.findings[1],
        basis="ceiling",
        recoverable_ms=None,
        recoverable_interval_ms=None,
        confidence="low",
        status="experimental",
        caused_by="RANK001",
    )
    third = change(
        report.findings[1],
        code="DATA004",
        name="unsharded-data",
        title="Ranks read the same data",
        basis="evidence",
        recoverable_ms=None,
        recoverable_interval_ms=None,
        ceiling_ms=None,
    )
    fourth = change(
        report.findings[1],
        code="GPU001",
        name="no-tensor-cores",
        title="Matrix products run in fp32",
        kind="opportunity",
        recoverable_ms=3.0,
        recoverable_interval_ms=[2.0, 4.0],
    )
    return change(
        report,
        verdict=change(report.verdict, state="likely", confidence="medium"),
        findings=[first, second, third, fourth],
        steps=steps(predicted_unprofiled_ms=34.1, predicted_interval_ms=[31.0, 37.5]),
        warnings=report.warnings[1:],
    )


def world(ranks: int) -> Report:
    """Many ranks: rank 3 is late, its peers wait for it."""
    report = slow_cpu_rank()
    late = min(3, ranks - 1)
    docs = []
    for number in range(ranks):
        jitter = 0.01 * ((number * 37) % 11)
        wait, idle = (0.0, 26.0) if number == late else (22.0 - jitter, 1.5)
        step = partition(
            27.0 + jitter, 2.8, wait, 0.05, idle + (3.0 if number == late else 0.0), 9.0
        )
        docs.append(rank(number, split(step, 2.8, wait), f"node{number // 8}"))
    waits = {str(r): 0.0 if r == late else 1500.0 + r for r in range(ranks)}
    rows = [
        nccl_row(131_072_000, 1.0, 502, waits),
        nccl_row(33_554_432, 12.0, 144, waits),
        change(nccl_row(1_000_000, 2.0, 40, {}), group="tp_0", ranks=[0, 1]),
    ]
    lateness = {
        str(step): {str(r): (18.0 + step) if r == late else 0.1 * (r % 5) for r in range(ranks)}
        for step in range(3, 8)
    }
    links = [
        LinkDoc(
            src=a,
            dst=b,
            bytes=16_777_216,
            count=10,
            latency_us=8.0,
            bandwidth_gbs=131.0 if {a, b} == {2, 5} else 280.0 + (a * b) % 12,
            reference_gbs=371.0,
            basis="p2p",
        )
        for a in range(min(ranks, 8))
        for b in range(min(ranks, 8))
        if a != b
    ]
    different = environment(ranks)
    different.per_rank[str(late)]["OMP_NUM_THREADS"] = "1"
    return change(
        report,
        run=run(f"world{ranks}", ranks, hosts=[f"node{n}" for n in range((ranks + 7) // 8)]),
        ranks=docs,
        collectives=rows,
        kernels=kernels(ranks),
        lateness=lateness,
        links=links if ranks <= 8 else [],
        groups=[
            GroupDoc(
                name="default_pg",
                ranks=list(range(ranks)),
                latency_us=21.0,
                busbw_gbs=230.0,
                reference_gbs=371.0,
                reference_basis="NCCL's path estimate",
            )
        ],
        findings=[
            late_rank_finding(title=f"Rank {late}'s host is late", ranks=[late]),
            *report.findings[1:],
        ],
        verdict=change(
            report.verdict,
            headline=f"Rank {late}'s host is late. Fixing it gives back 8.5 of 34.3 ms a step (25 %).",
        ),
        environment=EnvironmentDoc(
            per_rank=different.per_rank,
            differences=[f"OMP_NUM_THREADS is 1 on rank {late} and 4 on the other ranks"],
        ),
    )


def one_rank() -> Report:
    report = bare("t1", 1)
    return change(
        report,
        collectives=[],
        steps=steps(profiled_ms=43.3, unprofiled_ms=43.31, unprofiled_basis="given"),
    )


def cpu_only() -> Report:
    report = bare("cpu_only", 1)
    return change(
        report,
        run=change(report.run, gpu=None, versions={"torch": "2.13.0"}),
        verdict=verdict(
            headline="The trace holds no GPU work.", proof="", do_next="", step_ms=None
        ),
        ranks=[RankDoc(rank=0, gpu=None, host=None, window=None, step=None, steps=[])],
        steps=steps(profiled_ms=None, profiled_mean_ms=None, count=0, used=[]),
        collectives=[],
        kernels=[],
        environment=EnvironmentDoc(),
    )


def no_steps() -> Report:
    report = bare("no_steps")
    return change(
        report,
        warnings=[
            WarningDoc(
                code="TRC010",
                severity="warning",
                message="No step boundary was found.",
                effect="Totals over the window stand in.",
                count=1,
                ranks=[0, 1],
            )
        ],
        ranks=[change(item, step=None, steps=[]) for item in report.ranks],
        steps=steps(profiled_ms=None, profiled_mean_ms=None, count=0, used=[], boundary=""),
        kernels=[change(item, ranks={}, count_per_step=None) for item in report.kernels],
        collectives=[change(row, count_per_step=None) for row in report.collectives],
    )


def hostile() -> Report:
    """Every string that comes from a trace tries to break out, to hide or to fill the page."""
    report = slow_cpu_rank()
    long = "void " + "ns::" * 600 + "kernel<" + "A, " * 800 + HOSTILE + ">(int)"
    rtl = "\u05e9\u05dc\u05d5\u05dd_kernel_\u0645\u0631\u062d\u0628\u0627"
    many = [HOSTILE, long, rtl, "a|b`c`*d*_e_ @team #1 <!-- -->", "x\ud83d\ude00y", ""]
    docs = [change(report.kernels[0], name=name) for name in many]
    rows = [
        change(report.collectives[0], operation=HOSTILE, group=HOSTILE, dtype=HOSTILE, kernel=long)
    ]
    return change(
        report,
        run=change(
            report.run,
            name=HOSTILE,
            gpu=HOSTILE,
            hosts=[HOSTILE],
            started=HOSTILE,
            parallelism=HOSTILE,
            command=HOSTILE,
            versions={"torch": HOSTILE, HOSTILE: rtl},
            sources=[change(report.run.sources[0], path=HOSTILE, tool=HOSTILE)],
        ),
        kernels=docs,
        collectives=rows,
        warnings=[change(report.warnings[0], message=HOSTILE, effect=long)],
        verdict=change(
            report.verdict, headline=HOSTILE, proof=f"`{HOSTILE}`", rival=HOSTILE, do_next=HOSTILE
        ),
        findings=[
            change(
                report.findings[0],
                title=HOSTILE,
                name=HOSTILE,
                proof=HOSTILE,
                rival=HOSTILE,
                limits=HOSTILE,
                actions=[HOSTILE, f"Expect {HOSTILE}"],
                confidence_reason=HOSTILE,
                edit=HOSTILE,
                evidence=[
                    Evidence(
                        title=HOSTILE,
                        columns=[HOSTILE, "x"],
                        rows=[[HOSTILE, 1.5], [HOSTILE, None]],
                    )
                ],
                ranges=[Range(rank=1, start_ns=0, end_ns=MS, label=HOSTILE)],
            )
        ],
        checks=[Check(code="COMM001", state="error", reason=HOSTILE, needs=HOSTILE, name=HOSTILE)],
        ranks=[change(item, gpu=HOSTILE, host=HOSTILE) for item in report.ranks],
        environment=EnvironmentDoc(
            per_rank={"0": {HOSTILE: HOSTILE}, "1": {}}, differences=[HOSTILE]
        ),
        groups=[GroupDoc(name=HOSTILE, ranks=[0, 1], busbw_gbs=1.0)],
        tool=change(report.tool, options={"run": HOSTILE, "select": [HOSTILE]}),
    )


def not_finite() -> Report:
    """NaN and infinities where numbers are expected."""
    report = slow_cpu_rank()
    nan, inf = float("nan"), float("inf")
    return change(
        report,
        collectives=[
            change(report.collectives[0], algbw_gbs=nan, busbw_gbs=inf, exposed_ms_per_step=nan)
        ],
        steps=change(report.steps, perturbation=nan, replay_error=nan),
        kernels=[change(report.kernels[0], occupancy=nan, mean_us=nan)],
    )


def lane(
    kind: LaneKind,
    label: str,
    slices: Sequence[tuple[float, float, SliceKind, int]],
    waits: Sequence[float | None] | None = None,
    detail: int | None = None,
    size: int | None = None,
) -> Lane:
    """A lane from (start ms, end ms, kind, name) rows; `waits` gives ms of waiting for each.

    With `detail` every slice has that detail, and was launched 2 ms before it began.
    """
    ordered = sorted(slices)
    columns: dict[str, Any] = {
        "start_ns": np.array([int(s * MS) for s, _, _, _ in ordered], dtype=np.int64),
        "end_ns": np.array([int(e * MS) for _, e, _, _ in ordered], dtype=np.int64),
        "kind": np.array([k for _, _, k, _ in ordered], dtype=np.int8),
        "name": np.array([n for _, _, _, n in ordered], dtype=np.int32),
    }
    if waits is not None:
        starts = columns["start_ns"]
        na = np.iinfo(np.int64).min
        columns["transfer_start_ns"] = np.array(
            [na if w is None else int(s + w * MS) for s, w in zip(starts, waits, strict=True)],
            dtype=np.int64,
        )
    if detail is not None:
        columns["detail"] = np.full(len(ordered), detail, dtype=np.int32)
        columns["launch_delay_ns"] = np.full(len(ordered), 2 * MS, dtype=np.int64)
    if size is not None:
        columns["bytes"] = np.full(len(ordered), size, dtype=np.int64)
    return Lane(kind=kind, label=label, slices=Slices.from_columns(len(ordered), **columns))


DETAILS = (
    WorkDetail(grid=(2, 66, 1), block=(384, 1, 1)),
    WorkDetail(
        grid=(24, 1, 1),
        block=(544, 1, 1),
        operation="allreduce",
        group="default_pg, 2 ranks",
        dtype="f32",
        bus_factor=1.0,
    ),
)
NAMES = (
    "nvjet_tst_256x128_64x4",
    "AllReduce",
    "Memcpy HtoD",
    "aten::linear",
    "forward",
    "cudaDeviceSynchronize",
    HOSTILE,
)


def timeline(
    ranks: int = 2, steps_shown: int = 5, late: int = 1, step_ms: float = 55.0
) -> Timeline:
    """Ranks that work alike, but for one whose host is silent for 15.5 ms at the start of a step."""
    built = []
    for number in range(ranks):
        is_late = number == late and ranks > 1
        host, ranges, gpu, comm = [], [], [], []
        waits: list[float | None] = []
        for k in range(steps_shown):
            zero = 9 + k * step_ms
            begin = zero + (15.5 if is_late else 0.2)
            ranges.append((begin, zero + 40, SliceKind.RANGE, 4))
            host += [
                (begin + 0.05 * i, begin + 0.05 * i + 0.03, SliceKind.HOST, 3) for i in range(480)
            ]
            ranges.append((zero + 41, zero + 52, SliceKind.BLOCKED, 5))
            gpu.append((zero, zero + 0.1, SliceKind.COPY, 2))
            gpu += [
                (begin + 0.5 + 0.12 * i, begin + 0.5 + 0.12 * i + 0.11, SliceKind.COMPUTE, 0)
                for i in range(230)
            ]
            start = zero + (31.8 if is_late else 13.0)
            comm.append((start, zero + 32.3, SliceKind.COMM, 1))
            waits.append(0.0 if is_late else zero + 31.8 - start)
            for i in range(12):
                comm.append((zero + 33 + 1.6 * i, zero + 33.15 + 1.6 * i, SliceKind.COMM, 1))
                waits.append(0.0)
        lanes = (
            lane(LaneKind.RANGES, "host · ranges", ranges),
            lane(LaneKind.HOST, "host · main thread", host),
            lane(LaneKind.STREAM, "GPU · stream 7", gpu, detail=0),
            lane(LaneKind.COMM, "NCCL · stream 17", comm, waits, detail=1, size=33_554_432),
        )
        spans = tuple(
            StepSpan(
                index=3 + k,
                start_ns=int((9 + k * step_ms) * MS),
                end_ns=int((9 + (k + 1) * step_ms) * MS),
            )
            for k in range(steps_shown)
        )
        built.append(RankTimeline(rank=number, lanes=lanes, steps=spans, gpu=f"GPU {number}"))
    return Timeline(names=NAMES, ranks=tuple(built), details=DETAILS, shown_step=5)


ALL: dict[str, Callable[[], Report]] = {
    "bare": bare,
    "slow_cpu_rank": slow_cpu_rank,
    "nccl_1ch": nccl_1ch,
    "healthy": healthy,
    "likely": likely,
    "truncated": truncated,
    "one_rank": one_rank,
    "cpu_only": cpu_only,
    "no_steps": no_steps,
    "hostile": hostile,
    "not_finite": not_finite,
    "world8": lambda: world(8),
    "world64": lambda: world(64),
}
