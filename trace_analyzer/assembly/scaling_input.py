"""What `scaling` is given, and the step time that is measured of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trace_analyzer.analyses.scaling.efficiency import Measurement
from trace_analyzer.analyses.scaling.series import CleanSeries, clean
from trace_analyzer.analyses.study import Study
from trace_analyzer.analyses.unprofiled import unprofiled_step
from trace_analyzer.errors import TraceAnalyzerError
from trace_analyzer.findings import SourceDoc
from trace_analyzer.model import DataWarning, UnprofiledSteps


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """A step time that was typed: ms, its deviation where given, and how many steps it is of."""

    ms: float
    deviation_ms: float | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingInput:
    """One run: its trace (`study`), its step times without a profiler, or a number.

    `primary` is the code of its leading fault and what fixing it would give back, ms.
    """

    name: str
    ranks: int
    study: Study | None = None
    unprofiled: tuple[UnprofiledSteps, ...] = ()
    series_ms: tuple[float, ...] = ()
    stated: Stated | None = None
    gpu: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[SourceDoc, ...] = ()
    warnings: tuple[DataWarning, ...] = ()
    primary: tuple[str, float | None] | None = None


def measure(item: ScalingInput, *, profiled: bool) -> Measurement:
    """Return the step time of an input; `profiled` takes that of the traces, under the profiler.

    Raises `TraceAnalyzerError` for a run without steps.
    """
    if item.stated is not None:
        return Measurement(
            ranks=item.ranks,
            basis="given",
            stated_ms=item.stated.ms,
            stated_deviation_ms=item.stated.deviation_ms,
            stated_count=item.stated.count,
        )
    if item.series_ms:
        return Measurement(ranks=item.ranks, basis="given", series=clean(item.series_ms))
    plain = None if profiled and item.study is not None else unprofiled_step(item.unprofiled)
    if plain is not None:
        return Measurement(ranks=item.ranks, basis="unprofiled", series=clean(plain.steps_ms))
    series = None if item.study is None else traced_steps(item.study)
    if series is None:
        raise TraceAnalyzerError(
            f"{item.name}: no step was recorded; record steps (prof.step(), or an NVTX range) or "
            "time some without a profiler"
        )
    return Measurement(ranks=item.ranks, basis="profiled", series=series)


def traced_steps(study: Study) -> CleanSeries | None:
    """Return the traced steps of the slowest rank; None without a complete one."""
    series = [
        clean(item.parts.length_ns / 1e6)
        for item in study.ranks.values()
        if len(item.steps) and not item.steps.partial
    ]
    return max(series, key=lambda item: item.median_ms, default=None)
