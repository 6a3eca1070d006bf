"""Builds the document of `compare` where the base is an archive: the median of its last runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import median
from typing import Any, Protocol

import numpy as np

from trace_analyzer import __version__
from trace_analyzer.analyses.comparison.changes import Changes
from trace_analyzer.analyses.comparison.comparability import LEAST_SHARED_KERNELS
from trace_analyzer.analyses.comparison.history import against_history
from trace_analyzer.analyses.comparison.kernel_names import canonical
from trace_analyzer.analyses.comparison.kernels import LEAST_STEP_SHARE
from trace_analyzer.analyses.comparison.kernels import RUN_TO_RUN_SHARE as KERNEL_SHARE
from trace_analyzer.analyses.comparison.partition import RUN_TO_RUN_STEP_SHARE
from trace_analyzer.assembly.compare import RUN_TO_RUN_SHARE, focus_rank
from trace_analyzer.assembly.compare_rows import MOST_KERNELS, findings_by_state
from trace_analyzer.assembly.compare_text import Told, verdict_of
from trace_analyzer.assembly.scaling_warnings import study_warnings
from trace_analyzer.comparison_document import (
    ComparisonReport,
    History,
    KernelChange,
    NotCompared,
    PartChange,
    RankChange,
    Side,
    StepChange,
)
from trace_analyzer.errors import TraceAnalyzerError
from trace_analyzer.findings import SCHEMA_VERSION, Report, StepPartition, Tool

# Candidates that are looked at for runs of the same work: an archive of other work is not read whole.
_MOST_CANDIDATES = 200
_PERTURBED = "parts, waits and late launches below are those of the profiled run"


class PastRun(Protocol):
    """What the archive knows of a run; see `readers.archive_index.ArchivedRun`."""

    @property
    def name(self) -> str: ...
    @property
    def unprofiled_ms(self) -> float | None: ...
    @property
    def profiled_ms(self) -> float | None: ...
    @property
    def ranks(self) -> Mapping[int, Mapping[str, float]]: ...
    @property
    def kernels(self) -> Mapping[Any, tuple[float, float, str]]: ...
    @property
    def findings(self) -> Mapping[str, Any]: ...
    @property
    def compute_names(self) -> set[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """The run in question."""

    study: Any
    report: Report
    name: str


@dataclass(slots=True)
class _Found:
    used: list[PastRun] = field(default_factory=list)
    left_out: int = 0


def build_history_comparison(
    index: str, runs: Iterable[PastRun], last: int, other: NewRun, options: Mapping[str, Any]
) -> ComparisonReport:
    """Return what changed from the last `last` comparable runs of an archive; `runs` newest first.

    Raises `TraceAnalyzerError` where none is comparable.
    """
    report = other.report
    timed = report.steps.unprofiled_basis in {"measured", "given"}
    basis, found = "unprofiled", _chosen(runs, report, last, timed=timed)
    if not timed:
        basis = "profiled"
    if not found.used:
        size = report.run.world_size or len(report.ranks)
        raise TraceAnalyzerError(
            f"{index}: holds no earlier run of {size} ranks on {report.run.gpu or 'this GPU'} with the "
            f"kernels of {other.name}"
            + (f" ({found.left_out} do other work or were not timed)" if found.left_out else "")
        )
    steps = [_step_of(run, basis) for run in found.used]
    now = report.steps.unprofiled_ms if timed else report.steps.profiled_ms
    change = None if now is None else _step(steps, now, basis)
    ranks = _ranks(found.used, report)
    step_ms = max((row.step.base_ms for row in ranks), default=0.0)
    kernels, left_out = _kernels(found.used, report, step_ms)
    focus = focus_rank(other.study, [row.other_rank for row in ranks])
    sides = _side_of_past(found.used, steps, basis, report), _side(other, basis, now)
    findings = findings_by_state(
        _usual(found.used), {f.code: f for f in reversed(report.findings)}, step_ms=step_ms
    )
    told = Told(
        change=change,
        rank=next((row for row in ranks if row.other_rank == focus), None),
        kernels=kernels,
        collectives=[],
        environment=[],
        findings=findings,
        same_recorder=True,
        history=len(found.used),
    )
    return ComparisonReport(
        schema_version=SCHEMA_VERSION,
        tool=Tool(name="trace-analyzer", version=__version__, options=dict(options)),
        name=f"{sides[0].name} and {other.name}",
        warnings=study_warnings(other.name, other.study, _PERTURBED),
        verdict=verdict_of(sides, [], told),
        comparable=True,
        differences=[],
        base=sides[0],
        other=sides[1],
        step=change,
        rank=focus,
        ranks=ranks,
        kernels=kernels,
        kernels_left_out=left_out,
        collectives=[],
        environment=[],
        findings=findings,
        not_compared=[
            NotCompared(what=what, why="the index of an archive does not hold it step by step")
            for what in ("collectives", "settings", "operators")
        ],
        history=History(
            index=index,
            used=[run.name for run in found.used],
            left_out=found.left_out,
            step_ms=[_rounded(value) for value in steps],
        ),
    )


def _chosen(runs: Iterable[PastRun], report: Report, last: int, *, timed: bool) -> _Found:
    """Return the newest runs that do the same work and were timed in the same way."""
    names = {
        canonical(row.name)
        for row in report.kernels
        if row.category not in {"communication", "memcpy", "memset"} and row.count_per_step
    }
    found = _Found()
    for run in islice(runs, _MOST_CANDIDATES):
        if len(found.used) == last:
            break
        past = {canonical(name) for name in run.compute_names}
        shared = len(names & past) / len(names | past) if names and past else 0.0
        step = run.unprofiled_ms if timed else run.profiled_ms
        if shared >= LEAST_SHARED_KERNELS and step is not None:
            found.used.append(run)
        else:
            found.left_out += 1
    return found


def _step_of(run: PastRun, basis: str) -> float:
    step = run.unprofiled_ms if basis == "unprofiled" else run.profiled_ms
    assert step is not None
    return step


def _step(past: Sequence[float], now: float, basis: str) -> StepChange:
    found = against_history(np.array(past)[:, None], np.array([now]))
    before = float(found.base[0])
    share = now / before - 1.0
    interval = _interval(found, 0)
    told = None if interval is None else bool(found.apart[0]) and abs(share) >= RUN_TO_RUN_SHARE
    return StepChange(
        basis=basis,  # type: ignore[arg-type]
        base_ms=_rounded(before),
        other_ms=_rounded(now),
        change_ms=_rounded(now - before),
        change_interval_ms=interval,
        change_share=_rounded(share),
        distinguishable=told,
    )


def _parts(step: Mapping[str, float]) -> dict[str, float]:
    """Return the parts that the index can tell; they sum to the step."""
    comm = step.get("comm_exposed_ms", 0.0)
    transfer = step.get("comm_exposed_transfer_ms", 0.0)
    wait = step.get("comm_exposed_wait_ms", 0.0)
    launch = step.get("idle_launch_ms", 0.0)
    return {
        "compute": step.get("compute_ms", 0.0),
        "transfer": transfer,
        "wait": wait,
        "unsplit": comm - transfer - wait,
        "copy": step.get("copy_exposed_ms", 0.0),
        "launch": launch,
        "other": step.get("idle_ms", 0.0) - launch,
    }


def _step_values(step: StepPartition) -> dict[str, float]:
    names = (
        "compute_ms", "comm_exposed_ms", "comm_exposed_transfer_ms", "comm_exposed_wait_ms",
        "copy_exposed_ms", "idle_ms", "idle_launch_ms",
    )  # fmt: skip
    return {name: value for name in names if (value := getattr(step, name)) is not None}


def _ranks(past: Sequence[PastRun], report: Report) -> list[RankChange]:
    rows = []
    for rank in report.ranks:
        earlier = [run.ranks[rank.rank] for run in past if rank.rank in run.ranks]
        if rank.step is None or not earlier:
            continue
        ours = _parts(_step_values(rank.step))
        before = [_parts(step) for step in earlier]
        names = list(ours)
        whole = np.array(
            [
                [step["step_ms"], *(p[n] for n in names)]
                for step, p in zip(earlier, before, strict=True)
            ]
        )
        now = np.array([rank.step.step_ms, *(ours[name] for name in names)])
        found = against_history(whole, now)
        parts = [_part(found, at, name) for at, name in enumerate(["step", *names])]
        rows.append(
            RankChange(
                base_rank=rank.rank,
                other_rank=rank.rank,
                step=parts[0],
                parts=[part for part in parts[1:] if part.base_ms or part.other_ms],
            )
        )
    return rows


def _part(found: Changes, at: int, name: str) -> PartChange:
    change = float(found.change[at])
    return PartChange(
        part=name,
        base_ms=_rounded(found.base[at]),
        other_ms=_rounded(found.other[at]),
        change_ms=_rounded(change),
        change_interval_ms=_interval(found, at),
        distinguishable=bool(found.apart[at])
        and abs(change) >= RUN_TO_RUN_STEP_SHARE * float(found.base[0]),
    )


def _kernels(
    past: Sequence[PastRun], report: Report, step_ms: float
) -> tuple[list[KernelChange], int]:
    now = {
        (row.name, _tuple(row.grid), _tuple(row.block)): (
            row.mean_us * row.count_per_step / 1e3,
            row.count_per_step,
            row.category,
        )
        for row in report.kernels
        if row.count_per_step and row.category != "communication"
    }
    keys = list(dict.fromkeys([*now, *(k for run in past for k in run.kernels)]))
    nothing = (0.0, 0.0, "")
    rows = [
        _kernel(
            key, [run.kernels.get(key, nothing) for run in past], now.get(key, nothing), step_ms
        )
        for key in keys
        if "communication" not in {run.kernels.get(key, nothing)[2] for run in past}
    ]
    rows.sort(key=lambda row: (row.kind == "indistinguishable", -abs(row.change_ms), row.name))
    return rows[:MOST_KERNELS], max(len(rows) - MOST_KERNELS, 0)


def _kernel(
    key: Any,  # noqa: ANN401
    past: Sequence[tuple[float, float, str]],
    now: tuple[float, float, str],
    step_ms: float,
) -> KernelChange:
    found = against_history(np.array([[ms] for ms, _, _ in past]), np.array([now[0]]))
    calls = median(row[1] for row in past)
    change = float(found.change[0])
    kind = "indistinguishable"
    if not any(row[1] for row in past):
        kind = "new"
    elif all(row[1] for row in past) and not now[1]:
        kind = "gone"
    elif bool(found.apart[0]) and abs(change) >= max(
        KERNEL_SHARE * float(found.base[0]), LEAST_STEP_SHARE * step_ms
    ):
        kind = "slower" if change > 0 else "faster"
        if calls and abs(now[1] - calls) > 0.05 * max(now[1], calls):
            kind = "more-calls" if now[1] > calls else "fewer-calls"
    name, grid, block = key
    return KernelChange(
        name=name,
        category=now[2] or next((row[2] for row in past if row[2]), ""),
        kind=kind,  # type: ignore[arg-type]
        grid=None if grid is None else list(grid),
        block=None if block is None else list(block),
        base_ms=_rounded(found.base[0]) if calls else None,
        other_ms=_rounded(now[0]) if now[1] else None,
        change_ms=_rounded(change),
        change_interval_ms=_interval(found, 0),
        base_calls=round(calls, 4) or None,
        other_calls=round(now[1], 4) or None,
    )


def _tuple(shape: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if shape is None else tuple(shape)


def _usual(past: Sequence[PastRun]) -> dict[str, Any]:
    """Return the findings that more than half of the earlier runs have, of the newest that has it."""
    codes = [code for run in past for code in run.findings]
    return {
        code: next(run.findings[code] for run in past if code in run.findings)
        for code in dict.fromkeys(codes)
        if 2 * codes.count(code) > len(past)
    }


def _side_of_past(
    past: Sequence[PastRun], steps: Sequence[float], basis: str, report: Report
) -> Side:
    return Side(
        name=f"the last {len(past)} runs" if len(past) > 1 else past[0].name,
        recorder="",
        world_size=report.run.world_size,
        recorded_ranks=sorted({rank for run in past for rank in run.ranks}),
        gpu=report.run.gpu,
        started=None,
        step_ms=_rounded(median(steps)),
        step_basis=basis,  # type: ignore[arg-type]
        steps=None,
        profiled_ms=None,
        profiled_steps=0,
        unprofiled_ms=None,
    )


def _side(other: NewRun, basis: str, now: float | None) -> Side:
    run, steps = other.report.run, other.report.steps
    return Side(
        name=other.name,
        recorder="",
        world_size=run.world_size,
        recorded_ranks=run.recorded_ranks,
        gpu=run.gpu,
        started=run.started,
        step_ms=None if now is None else _rounded(now),
        step_basis=basis if now is not None else None,  # type: ignore[arg-type]
        steps=steps.unprofiled_count if basis == "unprofiled" else len(steps.used),
        profiled_ms=steps.profiled_ms,
        profiled_steps=len(steps.used),
        unprofiled_ms=now if basis == "unprofiled" else None,
        versions=run.versions,
        sources=run.sources,
    )


def _interval(found: Changes, at: int) -> list[float] | None:
    if np.isnan(found.low[at]):
        return None
    return [_rounded(found.low[at]), _rounded(found.high[at])]


def _rounded(value: Any) -> float:  # noqa: ANN401
    return round(float(value), 6)
