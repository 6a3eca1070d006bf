"""The sentences of the comparison document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trace_analyzer.comparison_document import (
    CollectiveChange,
    ComparisonVerdict,
    FindingChange,
    KernelChange,
    PartChange,
    RankChange,
    Side,
    StepChange,
)
from trace_analyzer.scaling_document import Difference

_LISTED = 3
_LONGEST_KERNEL = 60
# A kernel is named in the proof where it makes up this share of the change of the step.
_NAMED_KERNEL_SHARE = 0.05
# … and where it does not just run more or less beside communication, which slows every kernel.
_BESIDE = 0.1

PART_WORDS = {
    "compute": "compute",
    "transfer": "transfer that no compute hides",
    "wait": "waiting for late ranks",
    "unsplit": "communication that no compute hides",
    "copy": "copies that nothing hides",
    "latency": "gaps between operations",
    "other": "other idle time",
    "launch": "idle before late launches",
    "launch:data_loading": "idle while the host waits for its data loader",
    "launch:blocking_sync": "idle while the host waits in blocking calls",
    "launch:allocator": "idle while the host allocates or frees device memory",
    "launch:profiler_overhead": "idle while the profiler works",
    "launch:operators": "idle while the host launches operators",
    "launch:silent": "idle while the host runs neither operator nor CUDA call",
}
_NEXT = {
    "compute": "Look at the kernels below: the first ones explain the change.",
    "transfer": "Look at the collectives below: transfers take longer, or are no longer hidden.",
    "wait": "Run `trace-analyzer analyze` on the slower run: it says which rank comes late, and why.",
    "unsplit": "Record every rank: one alone cannot tell waiting for a peer from moving data.",
    "copy": "Look at the copies among the kernels below.",
    "launch:data_loading": "Look at the data loader: its workers, their number, and what they read.",
    "launch:blocking_sync": "Look for what makes the host wait: `.item()`, blocking copies, synchronisation.",
    "launch:allocator": "Look for memory that is allocated anew in every step.",
}
_HOST = (
    "Look at what the slower run's host does before it launches: `trace-analyzer analyze` shows it."
)


_KINDS = {
    "replaced": "in place of another",
    "more-calls": "called more often",
    "fewer-calls": "called less often",
}


def part_words(part: str) -> str:
    """Return what a part of a step is called in a sentence."""
    if part in PART_WORDS:
        return PART_WORDS[part]
    return part.removeprefix("launch:").replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is told apart; `rank` is the one that the other run is looked at."""

    change: StepChange | None
    rank: RankChange | None
    kernels: Sequence[KernelChange]
    collectives: Sequence[CollectiveChange]
    environment: Sequence[Difference]
    findings: Sequence[FindingChange]
    same_recorder: bool
    history: int = 0  # archived runs that stand as the base


def verdict_of(
    sides: tuple[Side, Side], differences: Sequence[Difference], told: Told
) -> ComparisonVerdict:
    """Return the answer."""
    refusing = [item for item in differences if item.refuses]
    if refusing:
        return _refused(sides, refusing)
    change, rank = told.change, told.rank
    details = [
        *_new_findings(told.findings),
        *_parts(rank),
        *_kernels(told.kernels, change),
        *_channels(told.collectives),
        *_settings(told.environment),
    ]
    if not told.same_recorder:
        return ComparisonVerdict(
            state="no-verdict",
            headline=(
                "Two recorders slow a run down each in its own way: step times are not compared."
            ),
            proof=" ".join(details) or "Kernels, copies and transfers are not told apart.",
            do_next="Record both with the same recorder to compare their steps.",
        )
    if change is None:
        return ComparisonVerdict(
            state="no-verdict",
            headline="One of the runs has no complete step to compare.",
            proof=" ".join(details) or "Nothing is told apart.",
            do_next="Record at least 10 steps of each, with prof.step() or one NVTX range a step.",
        )
    proof = " ".join([_interval(sides, change, told.history), *details])
    if change.distinguishable is None:
        return ComparisonVerdict(
            state="no-verdict",
            headline=f"{_times(change)}: too few to tell a difference from chance.",
            proof=proof,
            do_next=(
                "Three comparable runs in the archive tell what runs differ by."
                if told.history
                else "Record at least 10 steps of each."
            ),
        )
    if not change.distinguishable:
        return ComparisonVerdict(
            state="same",
            headline=f"No difference is told: {_times(change)}.",
            proof=proof,
            do_next="",
        )
    slower = change.change_ms > 0
    word = "longer" if slower else "less"
    percent = f"{100 * change.change_share:+.0f} %".replace("-", "−")
    return ComparisonVerdict(
        state="slower" if slower else "faster",
        headline=(
            f"A step takes {abs(change.change_ms):.1f} ms {word}: {change.other_ms:.1f} ms, was "
            f"{change.base_ms:.1f} ms ({percent})."
        ),
        proof=proof,
        do_next=_next(rank, told.findings, slower=slower),
    )


def _refused(sides: tuple[Side, Side], refusing: Sequence[Difference]) -> ComparisonVerdict:
    names = ", ".join(item.what for item in refusing)
    named = " ".join(
        f"{item.what[:1].upper()}{item.what[1:]}: {item.base} against {item.other}."
        for item in refusing
    )
    what = {item.what for item in refusing}
    world = "world size" in what and what <= {"world size", "batch of a rank"}
    times = [f"{side.name}: {side.step_ms:.1f} ms" for side in sides if side.step_ms is not None]
    steps = f" Steps: {', '.join(times)}." if times else ""
    return ComparisonVerdict(
        state="not-comparable",
        headline=f"The runs are not comparable: {names}.",
        proof=f"{named}{steps} Numbers stand side by side; none is called recoverable.",
        do_next=(
            "For the same program on another number of GPUs use `trace-analyzer scaling`."
            if world
            else "Compare runs of the same work on the same kind of GPU."
        ),
    )


def _times(change: StepChange) -> str:
    profiled = " in the traces" if change.basis == "profiled" else ""
    return f"{change.base_ms:.1f} and {change.other_ms:.1f} ms a step{profiled}"


def _interval(sides: tuple[Side, Side], change: StepChange, history: int) -> str:
    bounds = change.change_interval_ms
    known = "" if bounds is None else f" [{bounds[0]:.1f}, {bounds[1]:.1f}]"
    how = "without a profiler" if change.basis == "unprofiled" else "under the profiler"
    difference = f"Difference {change.change_ms:+.1f} ms{known}".replace("-", "−")
    if history:
        spread = "what these differ by is in the interval" if bounds else "too few for an interval"
        runs = f"{history} run{'s' if history > 1 else ''}"
        return f"{difference} against the median of the last {runs} {how}: {spread}."
    return (
        f"{difference}, medians of {sides[0].steps} and {sides[1].steps} steps {how}, one run each."
    )


def _told(rank: RankChange | None) -> list[PartChange]:
    if rank is None:
        return []
    told = [part for part in rank.parts if part.distinguishable]
    return sorted(told, key=lambda part: -abs(part.change_ms))


def _parts(rank: RankChange | None) -> list[str]:
    told = _told(rank)
    if rank is None or not told:
        return []
    listed = [
        f"{part.change_ms:+.1f} ms {part_words(part.part)}".replace("-", "−")
        for part in told[:_LISTED]
    ]
    return [f"In the trace of rank {rank.other_rank}: {', '.join(listed)}."]


def _kernels(kernels: Sequence[KernelChange], change: StepChange | None) -> list[str]:
    if change is None:
        return []
    total = change.change_ms
    named = [
        row
        for row in kernels
        if row.kind != "indistinguishable"
        and row.change_ms * total > 0
        and abs(row.change_ms) >= _NAMED_KERNEL_SHARE * abs(total)
        and abs(row.other_beside - row.base_beside) <= _BESIDE
    ]
    if not named:
        return []
    first = named[0]
    name = first.name
    if len(name) > _LONGEST_KERNEL:
        name = f"{name[: _LONGEST_KERNEL // 2]}…{name[-_LONGEST_KERNEL // 2 :]}"
    word = _KINDS.get(first.kind, first.kind)
    share = f" ({first.change_ms / first.base_ms:+.0%})".replace("%", " %") if first.base_ms else ""
    amount = f"{first.change_ms:+.2f} ms a step{share}".replace("-", "−")
    return [f"Kernels: the largest change is `{name}`, {word}, {amount}."]


def _new_findings(findings: Sequence[FindingChange]) -> list[str]:
    new = [row for row in findings if row.state == "new" and row.kind == "fault"]
    if not new:
        return []
    first = new[0]
    gain = first.other_recoverable_ms
    worth = "" if gain is None else f", {gain:.1f} ms a step"
    return [f"New finding: {first.code} {first.name}{worth}."]


def _channels(collectives: Sequence[CollectiveChange]) -> list[str]:
    changed = [
        row
        for row in collectives
        if row.base_channels and row.other_channels and row.base_channels != row.other_channels
    ]
    if not changed:
        return []
    before, after = changed[0].base_channels, changed[0].other_channels
    return [f"NCCL runs on {after} channel{'s' if after != 1 else ''}, was {before}."]


def _settings(environment: Sequence[Difference]) -> list[str]:
    if not environment:
        return []
    listed = [f"{item.what} ({item.base} → {item.other})" for item in environment[:_LISTED]]
    more = f" and {len(environment) - _LISTED} more" if len(environment) > _LISTED else ""
    return [f"Settings that differ: {', '.join(listed)}{more}."]


def _next(rank: RankChange | None, findings: Sequence[FindingChange], *, slower: bool) -> str:
    if not slower:
        return ""
    new = [row for row in findings if row.state == "new" and row.kind == "fault"]
    if new:
        return f"Run `trace-analyzer analyze` on the slower run: finding {new[0].code} says what to do."
    grown = [part for part in _told(rank) if part.change_ms > 0]
    if not grown:
        return "Run `trace-analyzer analyze` on the slower run."
    return _NEXT.get(grown[0].part, _HOST)
