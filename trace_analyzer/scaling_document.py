"""What `scaling` writes: one JSON-serialisable object of which every output is a rendering.

Declared as the report is (`findings`): units, statistics and scopes on the types, meanings in
`document_meanings`. `None` is unknown or does not apply, never zero.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from trace_analyzer.findings import SCHEMA_VERSION, SourceDoc, Tool, WarningDoc, json_schema


def _meta(unit: str, statistic: str, scope: str) -> Any:  # noqa: ANN401
    return Meta(extra_json_schema={"unit": unit, "statistic": statistic, "scope": scope})


MedianMs = Annotated[float, _meta("ms", "median of steady steps, slowest rank", "run")]
PointMs = Annotated[
    float, _meta("ms", "median of steady steps; over runs their geometric mean", "number of ranks")
]
MeanMs = Annotated[float, _meta("ms", "mean of all steps after warm-up, slowest rank", "run")]
StepMs = Annotated[float, _meta("ms", "one step", "step")]
LostMs = Annotated[float, _meta("ms a step", "measured step minus ideal step", "number of ranks")]
TermMs = Annotated[float, _meta("ms a step", "mean over steady steps", "rank")]
CurveMs = Annotated[float, _meta("ms", "fitted over all points", "curve")]
Ratio = Annotated[float, _meta("1", "ratio", "number of ranks")]
Ranks = Annotated[int, _meta("ranks", "as recorded", "run")]
Count = Annotated[int, _meta("1", "total", "run")]
RankId = Annotated[int, _meta("", "identifier", "rank")]
StepIndex = Annotated[int, _meta("", "identifier", "step")]


class _Doc(Struct, frozen=True, kw_only=True):
    pass


class Difference(_Doc, frozen=True, kw_only=True):
    """Something in which two runs differ; with `refuses` the comparison says nothing."""

    what: str
    base: str
    other: str
    refuses: bool


class Segment(_Doc, frozen=True, kw_only=True):
    """Steps at one level, counted from 0; the last is not included."""

    first: StepIndex
    last: StepIndex
    median_ms: MedianMs


class ScalingRun(_Doc, frozen=True, kw_only=True):
    """One measured run, and how its steps were sorted."""

    name: str
    ranks: Ranks
    basis: Literal["unprofiled", "profiled", "given"]
    step_ms: MedianMs
    mean_ms: MeanMs | None
    steps: Count | None
    steady: Count | None
    warm_up: Count | None
    outliers: Count | None
    segments: list[Segment] = []
    correlation: Annotated[float, _meta("1", "lag 1, steady steps", "run")] | None = None
    effective: Annotated[float, _meta("1", "steps that are independent", "run")] | None = None
    steps_ms: list[StepMs] = []
    gpu: str | None = None
    versions: dict[str, str] = {}
    sources: list[SourceDoc] = []


class LossTerm(_Doc, frozen=True, kw_only=True):
    """One part of the loss: what the part takes in a step, minus its share of the base's step."""

    term: str
    ms: TermMs
    base_share_ms: TermMs
    step_part_ms: TermMs


class ScalingPoint(_Doc, frozen=True, kw_only=True):
    """All runs of one number of ranks, against the base."""

    ranks: Ranks
    runs: Count
    step_ms: PointMs
    step_interval_ms: list[PointMs] | None
    comparable: bool | None
    differences: list[Difference]
    efficiency: Ratio | None = None
    efficiency_interval: list[Ratio] | None = None
    efficiency_wallclock: Ratio | None = None
    efficiency_wallclock_interval: list[Ratio] | None = None
    speed_up: Ratio | None = None
    ideal_ms: PointMs | None = None
    loss_ms: LostMs | None = None
    loss_interval_ms: list[LostMs] | None = None
    loss: list[LossTerm] = []
    residual_ms: LostMs | None = None
    residual_share: Ratio | None = None
    explained: bool | None = None
    loss_rank: RankId | None = None
    primary: str | None = None
    efficiency_without_primary: Ratio | None = None
    insufficient: str = ""


class Projection(_Doc, frozen=True, kw_only=True):
    """What the curve gives at a number of ranks that was not measured."""

    ranks: Annotated[int, _meta("ranks", "not measured", "curve")]
    step_ms: CurveMs
    step_interval_ms: list[CurveMs] | None
    efficiency: Annotated[float, _meta("1", "from the fitted curve", "curve")]


class Curve(_Doc, frozen=True, kw_only=True):
    """T(n) = fixed + shared / n, fitted to at least three numbers of ranks."""

    fixed_ms: CurveMs
    shared_ms: CurveMs
    fixed_share: Annotated[float, _meta("1", "fixed / (fixed + shared)", "curve")]
    fixed_share_interval: (
        list[Annotated[float, _meta("1", "fixed / (fixed + shared)", "curve")]] | None
    )
    misfit: Annotated[float, _meta("1", "largest relative error at a measured point", "curve")]
    fits: bool
    assumptions: list[str]
    projections: list[Projection]


class ScalingVerdict(_Doc, frozen=True, kw_only=True):
    """The answer in short."""

    state: Literal["scales", "loses", "no-verdict", "not-comparable"]
    headline: str
    proof: str
    do_next: str


class ScalingReport(_Doc, frozen=True, kw_only=True):
    """What several ranks give against fewer, and where the loss went."""

    schema_version: Annotated[int, _meta("", "identifier", "report")]
    tool: Tool
    name: str
    warnings: list[WarningDoc]
    verdict: ScalingVerdict
    mode: Literal["strong", "weak"]
    mode_basis: Literal["given", "grids of kernels"]
    n: Ranks
    base_n: Ranks
    comparable: bool | None
    differences: list[Difference]
    efficiency: Ratio | None
    efficiency_interval: list[Ratio] | None
    efficiency_wallclock: Ratio | None
    efficiency_wallclock_interval: list[Ratio] | None
    loss_ms: LostMs | None
    loss_interval_ms: list[LostMs] | None
    loss: list[LossTerm]
    residual_ms: LostMs | None
    residual_share: Ratio | None
    explained: bool | None
    interval_scope: Literal["within a run", "over runs"] | None
    points: list[ScalingPoint]
    curve: Curve | None
    runs: list[ScalingRun]


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `ScalingReport`."""
    from trace_analyzer.document_meanings import SCALING

    return json_schema(ScalingReport, SCALING)


__all__ = ["SCHEMA_VERSION", "ScalingReport", "schema"]
