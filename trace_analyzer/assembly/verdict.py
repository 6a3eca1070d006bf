"""The sentence on top of the report."""

from __future__ import annotations

from trace_analyzer.analyses.study import Study
from trace_analyzer.assembly.conclusion import concluded
from trace_analyzer.findings import RankDoc, StepPartition, Steps, Verdict
from trace_analyzer.rules.judge import Diagnosis

# Below this share of the step, exposed communication and idle time are not worth a look first.
WORTH_A_LOOK = 0.1

LEAST_STEPS = 2
_RECORD_AGAIN = (
    "Record again, at least 10 steps, and let the process exit before the file is copied."
)

_PARTS = (
    ("compute_ms", "compute"),
    ("comm_exposed_ms", "communication that no compute hides"),
    ("copy_exposed_ms", "copies that nothing hides"),
    ("idle_ms", "idle"),
)


def verdict_of(
    study: Study, steps: Steps, ranks: list[RankDoc], diagnosis: Diagnosis, left_out: int = 0
) -> Verdict:
    """Say what makes the step slow; where no cause is proven, where it goes."""
    cut = any(rank.truncated for rank in study.run.ranks)
    if not study.ranks and cut:
        return _verdict(
            headline="The trace is cut off before its first GPU operation.",
            proof=_host_only(study),
            do_next=_RECORD_AGAIN,
            step_ms=None,
        )
    if cut and len(study.steady.used) < LEAST_STEPS:
        return _verdict(
            headline="The trace is cut off. Too little is left to say where a step goes.",
            proof=(
                f"Complete steps left: {len(study.steady.used)}, and {LEAST_STEPS} are needed; "
                "sums over what is there stand in the tables."
            ),
            do_next=_RECORD_AGAIN,
            step_ms=steps.profiled_ms,
        )
    if not study.ranks:
        return _verdict(
            headline="No GPU operation was recorded: the GPU part of the step is unknown.",
            proof=_host_only(study),
            do_next=(
                "Record again with ProfilerActivity.CUDA among the activities, in the process "
                "that trains."
            ),
            step_ms=None,
        )
    found = concluded(steps, ranks, diagnosis, left_out)
    return found or _where_it_goes(steps, ranks)


def _where_it_goes(steps: Steps, ranks: list[RankDoc]) -> Verdict:
    slowest = max(
        (rank for rank in ranks if rank.step is not None),
        key=lambda rank: rank.step.step_median_ms if rank.step else 0.0,
        default=None,
    )
    if slowest is None or slowest.step is None:
        return _window_only(ranks)
    step = slowest.step
    values = [(getattr(step, field), text) for field, text in _PARTS]
    shares = ", ".join(
        f"{value:.1f} ms {text}" for value, text in sorted(values, reverse=True) if value >= 0.05
    )
    length, where = (steps.profiled_ms or step.step_median_ms), "in this trace"
    if steps.unprofiled_ms is not None:
        length, where = steps.unprofiled_ms, f"({steps.profiled_ms:.1f} ms in this trace)"
    largest, text = max(values)
    return _verdict(
        headline=(
            f"A step takes {length:.1f} ms {where}. The largest part on rank {slowest.rank} "
            f"is {text}, {100 * largest / step.step_ms:.0f} %."
            if step.step_ms
            else f"A step takes {length:.1f} ms {where}."
        ),
        proof=(
            f"Of the mean step of {step.step_ms:.1f} ms on rank {slowest.rank}: {shares}; "
            f"over {len(steps.used)} of {steps.count} recorded steps, cut at {steps.boundary}."
        ),
        do_next=_next(step),
        step_ms=length,
    )


_HOST = {
    "data_loading": "waited for the data loader",
    "blocking_sync": "waited in blocking CUDA calls",
    "allocator": "allocated or freed device memory",
    "profiler_overhead": "was stopped by the profiler",
    "operators": "was busy launching operators",
    "silent": "ran neither an operator nor a CUDA call",
}


def _next(step: StepPartition) -> str:
    """Say where to look, naming what the numbers name."""
    if step.step_ms and max(step.comm_exposed_ms, step.idle_ms) / step.step_ms < WORTH_A_LOOK:
        return "Compute fills the step: look at the largest kernels for what to make faster."
    if step.comm_exposed_ms >= step.idle_ms:
        return _next_in_communication(step)
    other = step.idle_other_ms or 0.0
    if other > (step.idle_launch_ms or 0.0):
        return (
            f"Look at what the GPU waits for: for {other:.1f} ms a step it is idle although work was "
            "launched in time: an event, another stream, or a call that blocks."
        )
    most = max(
        step.idle_launch_by_host, key=lambda name: step.idle_launch_by_host[name], default=""
    )
    if not most or step.idle_launch_by_host[most] <= 0:
        return "Look at what the idle GPU waits for on the device: no launch came late."
    return (
        f"Look at the host: for {step.idle_launch_by_host[most]:.1f} ms a step the GPU is idle "
        f"because the launching thread {_HOST.get(most, 'did something else')}."
    )


def _next_in_communication(step: StepPartition) -> str:
    wait, transfer = step.comm_exposed_wait_ms, step.comm_exposed_transfer_ms
    if wait is None or transfer is None:
        return "Record all ranks: one alone cannot tell waiting for a peer from moving data."
    if wait > transfer:
        return (
            f"Look at the ranks that this one waits for, {wait:.1f} ms a step: what they did "
            "meanwhile stands under Who is late."
        )
    return f"Look at the collectives: {transfer:.1f} ms a step move data that no compute hides."


def _window_only(ranks: list[RankDoc]) -> Verdict:
    rank = max(
        (item for item in ranks if item.window is not None),
        key=lambda item: item.window.window_ms if item.window else 0.0,
    )
    window = rank.window
    if window is None:  # pragma: no cover - the caller has ranks with GPU operations
        msg = "a rank with GPU operations has a window"
        raise AssertionError(msg)
    busy = window.window_ms - window.idle_ms
    return _verdict(
        headline=f"No step can be told apart in {window.window_ms:.1f} ms of recording.",
        proof=(
            f"On rank {rank.rank} the GPU is busy for {busy:.1f} ms of the window: "
            f"{window.compute_ms:.1f} ms compute, {window.comm_exposed_ms:.1f} ms communication "
            f"and {window.copy_exposed_ms:.1f} ms copies that compute does not hide."
        ),
        do_next=(
            "Call prof.step() once an iteration, or name a range that repeats once a step with "
            "--step-range."
        ),
        step_ms=None,
    )


def _host_only(study: Study) -> str:
    events = sum(len(rank.events) for rank in study.run.ranks)
    calls = sum(len(rank.calls) for rank in study.run.ranks)
    return f"The files hold {events:,} host events and {calls:,} CUDA calls, and no kernel or copy."


def _verdict(*, headline: str, proof: str, do_next: str, step_ms: float | None) -> Verdict:
    return Verdict(
        state="no-verdict",
        headline=headline,
        proof=proof,
        rival="",
        do_next=do_next,
        confidence=None,
        primary=None,
        opportunity=None,
        step_ms=step_ms,
        recoverable_ms=None,
        recoverable_interval_ms=None,
        joint_recoverable_ms=None,
    )
