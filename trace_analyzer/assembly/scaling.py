"""Builds the document of `scaling`: measured runs in, efficiency and loss out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trace_analyzer import __version__
from trace_analyzer.analyses.comparison.batch import batch_ratio
from trace_analyzer.analyses.comparison.comparability import (
    Difference,
    batch_difference,
    scaling_differences,
)
from trace_analyzer.analyses.comparison.fingerprint import fingerprint
from trace_analyzer.analyses.scaling import curve as curves
from trace_analyzer.analyses.scaling.efficiency import (
    Efficiency,
    Measurement,
    Mode,
    Point,
    efficiency,
    points,
    share,
)
from trace_analyzer.analyses.scaling.loss import Loss, loss
from trace_analyzer.analyses.scaling.parts import RunParts, run_parts
from trace_analyzer.analyses.scaling.resampling import LEAST_RUNS
from trace_analyzer.analyses.study import Study
from trace_analyzer.assembly.scaling_input import ScalingInput, measure
from trace_analyzer.assembly.scaling_text import assumptions, verdict_of
from trace_analyzer.assembly.scaling_warnings import scaling_warnings
from trace_analyzer.errors import TraceAnalyzerError
from trace_analyzer.findings import SCHEMA_VERSION, Tool
from trace_analyzer.scaling_document import Curve as CurveDoc
from trace_analyzer.scaling_document import Difference as DifferenceDoc
from trace_analyzer.scaling_document import LossTerm, Projection, ScalingPoint, ScalingReport
from trace_analyzer.scaling_document import ScalingRun as RunDoc
from trace_analyzer.scaling_document import Segment as SegmentDoc

_LIKE = 0.02


@dataclass(frozen=True, slots=True)
class _Measured:
    """An input with the measurement that was taken of it."""

    given: ScalingInput
    measurement: Measurement


def build_scaling(
    inputs: Sequence[ScalingInput], mode: Mode | None, options: Mapping[str, Any]
) -> ScalingReport:
    """Return the document of at least two runs of different numbers of ranks.

    Raises `TraceAnalyzerError` where there is nothing to compare, a run has no step time, or the
    mode is neither given nor told by the traces.
    """
    if len({item.ranks for item in inputs}) < 2:
        raise TraceAnalyzerError(
            f"all {len(inputs)} runs have {inputs[0].ranks} ranks: scaling needs two numbers of them; "
            "write N=RUN to say how many a run has"
            if inputs
            else "no run is given"
        )
    profiled = any(item.study is not None and not item.unprofiled for item in inputs)
    measured = [_Measured(item, measure(item, profiled=profiled)) for item in inputs]
    measured.sort(key=lambda item: item.measurement.ranks)
    found = points([item.measurement for item in measured])
    of_point = {
        point.ranks: [item.given for item in measured if item.given.ranks == point.ranks]
        for point in found
    }
    base, last = found[0], found[-1]
    chosen, basis = (
        (mode, "given") if mode else (_told_mode(of_point, base, last), "grids of kernels")
    )
    docs = [
        _point(point, base, chosen, of_point, profiled=profiled, base_itself=point is base)
        for point in found
    ]
    top = docs[-1]
    usable = [point for point, doc in zip(found, docs, strict=True) if doc.comparable is not False]
    curve = _curve(curves.fit(usable, chosen), chosen)
    names = _listed(list(dict.fromkeys(item.given.name for item in measured)))
    runs = [_run(item) for item in measured]
    return ScalingReport(
        schema_version=SCHEMA_VERSION,
        tool=Tool(name="trace-analyzer", version=__version__, options=dict(options)),
        name=names,
        warnings=scaling_warnings([item.given for item in measured], docs, profiled=profiled),
        verdict=verdict_of(docs, chosen, runs, profiled=profiled),
        mode=chosen,
        mode_basis=basis,  # type: ignore[arg-type]
        n=top.ranks,
        base_n=base.ranks,
        comparable=top.comparable,
        differences=top.differences,
        efficiency=top.efficiency,
        efficiency_interval=top.efficiency_interval,
        efficiency_wallclock=top.efficiency_wallclock,
        efficiency_wallclock_interval=top.efficiency_wallclock_interval,
        loss_ms=top.loss_ms,
        loss_interval_ms=top.loss_interval_ms,
        loss=top.loss,
        residual_ms=top.residual_ms,
        residual_share=top.residual_share,
        explained=top.explained,
        interval_scope=_scope(base, last, top),
        points=docs,
        curve=curve,
        runs=runs,
    )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _scope(base: Point, last: Point, top: ScalingPoint) -> Any:  # noqa: ANN401
    if top.efficiency_interval is None:
        return None
    several = len(base.runs) >= LEAST_RUNS and len(last.runs) >= LEAST_RUNS
    return "over runs" if several else "within a run"


def _told_mode(of_point: Mapping[int, Sequence[ScalingInput]], base: Point, last: Point) -> Mode:
    """Return the mode that the work of a rank shows; raises `TraceAnalyzerError` where it does not."""
    one, other = (_first_study(of_point[point.ranks]) for point in (base, last))
    ratio = None if one is None or other is None else batch_ratio(one, other)
    if ratio is not None:
        if abs(ratio / (last.ranks / base.ranks) - 1.0) <= _LIKE:
            return "strong"
        if abs(ratio - 1.0) <= _LIKE:
            return "weak"
        raise TraceAnalyzerError(
            f"a rank of the {base.ranks}-rank run does {ratio:.3g} times the work of one of "
            f"{last.ranks}: neither the same global batch nor the same batch a rank; "
            "say --mode to compare them anyway"
        )
    raise TraceAnalyzerError(
        "whether the global batch or the batch of a rank stayed the same is not known; say "
        "--mode strong or --mode weak"
    )


def _first_study(items: Sequence[ScalingInput]) -> Study | None:
    return next((item.study for item in items if item.study is not None), None)


def _point(
    point: Point,
    base: Point,
    mode: Mode,
    of_point: Mapping[int, Sequence[ScalingInput]],
    *,
    profiled: bool,
    base_itself: bool,
) -> ScalingPoint:
    one, other = _first_study(of_point[base.ranks]), _first_study(of_point[point.ranks])
    differences: list[Difference] = []
    comparable: bool | None = True if base_itself else None
    if not base_itself and one is not None and other is not None:
        differences = [
            *batch_difference(batch_ratio(one, other), share(base, point, mode)),
            *scaling_differences(fingerprint(one), fingerprint(other), profiled=profiled),
        ]
        comparable = not any(item.refuses for item in differences)
    doc = ScalingPoint(
        ranks=point.ranks,
        runs=len(point.runs),
        step_ms=_rounded(point.step_ms),
        step_interval_ms=_interval(point.step_interval_ms),
        comparable=comparable,
        differences=difference_docs(differences),
        insufficient=_insufficient(base, point, profiled=profiled),
    )
    if base_itself or comparable is False:
        return doc
    found = efficiency(base, point, mode)
    divided = _loss(one, other, found)
    primary = next((item.primary for item in of_point[point.ranks] if item.primary), None)
    return _with_efficiency(doc, found, divided, primary)


def _insufficient(base: Point, point: Point, *, profiled: bool) -> str:
    if profiled:
        return "steps under the profiler"
    missing = [reason for item in (base, point) for reason in item.lacking()]
    return " and ".join(dict.fromkeys(missing))


def _loss(
    one: Study | None, other: Study | None, found: Efficiency
) -> tuple[Loss, RunParts] | None:
    if one is None or other is None:
        return None
    ours, theirs = run_parts(one), run_parts(other)
    if ours is None or theirs is None:
        return None
    divided = loss(
        ours,
        theirs,
        base_step_ms=found.base.step_ms,
        step_ms=found.point.step_ms,
        divisor=share(found.base, found.point, found.mode),
        interval_ms=found.loss_interval_ms,
    )
    return divided, theirs


def _with_efficiency(
    doc: ScalingPoint,
    found: Efficiency,
    divided: tuple[Loss, RunParts] | None,
    primary: tuple[str, float | None] | None,
) -> ScalingPoint:
    from msgspec.structs import replace

    doc = replace(
        doc,
        efficiency=_rounded(found.steady),
        efficiency_interval=_interval(found.steady_interval),
        efficiency_wallclock=None if found.wallclock is None else _rounded(found.wallclock),
        efficiency_wallclock_interval=_interval(found.wallclock_interval),
        speed_up=_rounded(found.speed_up),
        ideal_ms=_rounded(found.ideal_ms),
        loss_ms=_rounded(found.loss_ms),
        loss_interval_ms=_interval(found.loss_interval_ms),
    )
    if primary is not None:
        code, gain_ms = primary
        kept = None if gain_ms is None else found.point.step_ms - gain_ms
        doc = replace(
            doc,
            primary=code,
            efficiency_without_primary=_rounded(found.ideal_ms / kept) if kept else None,
        )
    if divided is None:
        return doc
    parts, _ = divided
    return replace(
        doc,
        loss=[
            LossTerm(
                term=term.name,
                ms=_rounded(term.ms),
                base_share_ms=_rounded(term.base_share_ms),
                step_part_ms=_rounded(term.step_part_ms),
            )
            for term in parts.terms
        ],
        residual_ms=_rounded(parts.residual_ms),
        residual_share=(
            _rounded(abs(parts.residual_ms / found.loss_ms)) if found.loss_ms else None
        ),
        explained=parts.explained,
        loss_rank=parts.rank,
    )


def _curve(found: curves.Curve | None, mode: Mode) -> CurveDoc | None:
    if found is None:
        return None
    return CurveDoc(
        fixed_ms=_rounded(found.fixed_ms),
        shared_ms=_rounded(found.shared_ms),
        fixed_share=_rounded(found.fixed_share),
        fixed_share_interval=_interval(found.fixed_share_interval),
        misfit=_rounded(found.misfit),
        fits=found.fits,
        assumptions=assumptions(mode),
        projections=[
            Projection(
                ranks=item.ranks,
                step_ms=_rounded(item.step_ms),
                step_interval_ms=_interval(item.interval_ms),
                efficiency=_rounded(item.efficiency),
            )
            for item in found.projected
        ],
    )


def _run(item: _Measured) -> RunDoc:
    measurement, given = item.measurement, item.given
    series = measurement.series
    doc = RunDoc(
        name=given.name,
        ranks=measurement.ranks,
        basis=measurement.basis,
        step_ms=_rounded(measurement.step_ms),
        mean_ms=None if series is None else _rounded(series.mean_ms),
        steps=measurement.stated_count if series is None else len(series.values_ms),
        steady=measurement.steady_count,
        warm_up=None if series is None else series.warm_up,
        outliers=None if series is None else series.outliers,
        gpu=given.gpu,
        versions=dict(given.versions),
        sources=list(given.sources),
    )
    if series is None:
        return doc
    from msgspec.structs import replace

    return replace(
        doc,
        segments=[
            SegmentDoc(first=part.first, last=part.last, median_ms=_rounded(part.median_ms))
            for part in series.segments
        ],
        correlation=_rounded(series.correlation),
        effective=_rounded(series.effective),
        steps_ms=[_rounded(value) for value in series.values_ms.tolist()],
    )


def difference_docs(differences: Sequence[Difference]) -> list[DifferenceDoc]:
    """Return differences as the documents state them."""
    return [
        DifferenceDoc(what=item.what, base=item.base, other=item.other, refuses=item.refuses)
        for item in differences
    ]


def _rounded(value: float) -> float:
    return round(float(value), 6)


def _interval(bounds: tuple[float, float] | None) -> list[float] | None:
    return None if bounds is None else [_rounded(bound) for bound in bounds]
