"""`steps_rank{r}.jsonl`: the steps that a step timer took, and which of them count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from trace_analyzer.before_after import Unlike, unlike
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.model import DataWarning, Severity, UnprofiledSteps

MAX_STEP_MS = 1e9
_MAX_LINE_BYTES = 1 << 20
_SCHEMA_VERSION = 1


class _Line(msgspec.Struct):
    kind: str = ""
    phase: str = ""
    step_ms: float | None = None
    rank: int | None = None
    schema_version: int | None = None
    memory_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """What a step file holds.

    `unprofiled_ms` are the unprofiled steps in order, `before` how many of them come before the
    first profiled one, `unreadable` the lines that are left out. `memory_peak_bytes` is the largest
    peak of any step, of whatever phase; None where no line has one.
    """

    rank: int
    unprofiled_ms: tuple[float, ...]
    before: int
    unreadable: int
    memory_peak_bytes: int | None = None


def read(path: Path, rank: int | None = None, *, display: str | None = None) -> StepTimes:
    """Read a step file; `rank` counts where its header does not tell.

    Raises `UnreadableInputError` for a newer schema and where there are no steps.
    """
    shown = display or str(path)
    decoder = msgspec.json.Decoder(_Line)
    times: list[float] = []
    before: int | None = None
    peak: int | None = None
    unreadable = steps = 0
    for text in _lines(path, shown):
        try:
            line = decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            unreadable += 1
            continue
        if line.kind == "header":
            if line.schema_version != _SCHEMA_VERSION:
                raise UnreadableInputError(shown, f"timer schema {line.schema_version} is not 1")
            rank = line.rank if line.rank is not None else rank
        if line.kind != "step":
            continue
        steps += 1
        if line.memory_peak_bytes is not None and line.memory_peak_bytes >= 0:
            peak = max(peak or 0, line.memory_peak_bytes)
        if line.phase == "profiled" and before is None:
            before = len(times)
        if line.phase == "unprofiled" and line.step_ms is not None:
            if 0 < line.step_ms < MAX_STEP_MS:
                times.append(line.step_ms)
            else:
                unreadable += 1
    if rank is None or not steps:
        raise UnreadableInputError(shown, "no step times in it")
    return StepTimes(
        rank=rank,
        unprofiled_ms=tuple(times),
        before=len(times) if before is None else before,
        unreadable=unreadable,
        memory_peak_bytes=peak,
    )


def _lines(path: Path, shown: str) -> Iterator[bytes]:
    try:
        with path.open("rb") as stream:
            while text := stream.readline(_MAX_LINE_BYTES):
                if text.strip():
                    yield text
    except OSError as error:
        raise UnreadableInputError(shown, error.strerror or str(error)) from error


def without_later_steps(
    steps: Mapping[int, UnprofiledSteps], before: Mapping[int, int]
) -> tuple[dict[int, UnprofiledSteps], DataWarning | None]:
    """Keep only the steps before the profiled ones, on all ranks, where those of a rank differ.

    Ranks wait for each other: what slows one process down is in the steps of all. `before` counts
    the earlier steps of the ranks that a step timer timed.
    """
    differing: dict[int, Unlike] = {}
    for rank, count in before.items():
        times = steps[rank].step_ms
        found = unlike(times[:count], times[count:])
        if found is not None:
            differing[rank] = found
    if not differing:
        return dict(steps), None
    kept = dict(steps)
    left_out = 0
    for rank, count in before.items():
        if count:
            left_out += len(steps[rank].step_ms) - count
            kept[rank] = replace(steps[rank], step_ms=steps[rank].step_ms[:count])
    rank, worst = max(differing.items(), key=lambda item: item[1].after_ms)
    warning = DataWarning(
        code="TRC003",
        message=f"{worst.text()} (rank {rank})",
        effect="the unprofiled step is taken from those before: a profiler that has stopped can "
        "leave a process slower than it was",
        severity=Severity.NOTE,
        count=left_out,
        ranks=tuple(sorted(differing)),
    )
    return kept, warning
