"""The sentence on top of the report."""

from __future__ import annotations

from trace_analyzer.analyses.study import Study
from trace_analyzer.findings import RankDoc, Steps, Verdict

_PARTS = (
    ("compute_ms", "compute"),
    ("comm_exposed_ms", "communication that no compute hides"),
    ("copy_exposed_ms", "copies that nothing hides"),
    ("idle_ms", "idle"),
)


def verdict_of(study: Study, steps: Steps, ranks: list[RankDoc]) -> Verdict:
    """Say where the step goes: no cause is claimed without a rule that proves it."""
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
        do_next=_next(step.comm_exposed_ms, step.idle_ms, step.step_ms),
        step_ms=length,
    )


def _next(comm_ms: float, idle_ms: float, step_ms: float) -> str:
    if step_ms and max(comm_ms, idle_ms) / step_ms < 0.1:
        return "Compute fills the step: see Kernels for what to make faster."
    if comm_ms >= idle_ms:
        return "See NCCL for which collectives are exposed, and compare the ranks below."
    return "See how idle time divides below: what the host did while the GPU had nothing to do."


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
