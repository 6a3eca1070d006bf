"""What `compare` writes: one JSON-serialisable object of which every output is a rendering.

Declared as the report is (`findings`): units, statistics and scopes on the types, meanings in
`document_meanings`. `None` is unknown or does not apply, never zero. Changes are other minus base.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from trace_analyzer.findings import SCHEMA_VERSION, SourceDoc, Tool, WarningDoc, json_schema
from trace_analyzer.scaling_document import Difference


def _meta(unit: str, statistic: str, scope: str) -> Any:  # noqa: ANN401
    return Meta(extra_json_schema={"unit": unit, "statistic": statistic, "scope": scope})


RunMs = Annotated[float, _meta("ms", "median of steady steps, slowest rank", "run")]
PartMs = Annotated[float, _meta("ms a step", "mean over steady steps", "rank")]
RowMs = Annotated[float, _meta("ms a step", "mean over steady steps and ranks", "row")]
Share = Annotated[float, _meta("1", "change over base", "run")]
Calls = Annotated[float, _meta("1 a step", "mean over steady steps and ranks", "row")]
GainMs = Annotated[float, _meta("ms a step", "replayed base minus replayed edit", "run")]
Blocks = Annotated[int, _meta("blocks", "of each launch", "row")]
LaunchThreads = Annotated[int, _meta("threads", "of each launch", "row")]
Count = Annotated[int, _meta("1", "total", "run")]
RankId = Annotated[int, _meta("", "identifier", "rank")]


class _Doc(Struct, frozen=True, kw_only=True):
    pass


class Side(_Doc, frozen=True, kw_only=True):
    """One of the two runs; `profiled_steps` are the steady steps that parts and kernels come from."""

    name: str
    recorder: str
    world_size: Annotated[int, _meta("ranks", "as recorded", "run")] | None
    recorded_ranks: list[RankId]
    gpu: str | None
    started: str | None
    step_ms: RunMs | None
    step_basis: Literal["unprofiled", "profiled"] | None
    steps: Count | None
    profiled_ms: RunMs | None
    profiled_steps: Count
    unprofiled_ms: RunMs | None
    versions: dict[str, str] = {}
    sources: list[SourceDoc] = []


class StepChange(_Doc, frozen=True, kw_only=True):
    """How much longer the step is."""

    basis: Literal["unprofiled", "profiled"]
    base_ms: RunMs
    other_ms: RunMs
    change_ms: RunMs
    change_interval_ms: list[RunMs] | None
    change_share: Share
    distinguishable: bool | None


class PartChange(_Doc, frozen=True, kw_only=True):
    part: str
    base_ms: PartMs
    other_ms: PartMs
    change_ms: PartMs
    change_interval_ms: list[PartMs] | None
    distinguishable: bool


class RankChange(_Doc, frozen=True, kw_only=True):
    """The traced step of a rank: its parts sum to it, and their changes to its change."""

    base_rank: RankId
    other_rank: RankId
    step: PartChange
    parts: list[PartChange]


class KernelChange(_Doc, frozen=True, kw_only=True):
    """A kernel (or copy) of one launch shape, matched by name and shape, else by position."""

    name: str
    category: str
    kind: Literal[
        "new",
        "gone",
        "replaced",
        "slower",
        "faster",
        "more-calls",
        "fewer-calls",
        "indistinguishable",
    ]
    grid: list[Blocks] | None
    block: list[LaunchThreads] | None
    base_ms: RowMs | None
    other_ms: RowMs | None
    change_ms: RowMs
    change_interval_ms: list[RowMs] | None
    base_calls: Calls | None
    other_calls: Calls | None
    instead_of: str = ""
    places_changed: Annotated[int, _meta("1", "places in a step", "row")] | None = None
    places: Annotated[int, _meta("1", "places in a step", "row")] | None = None
    base_beside: Annotated[float, _meta("1", "share of its time", "row")] = 0.0
    other_beside: Annotated[float, _meta("1", "share of its time", "row")] = 0.0


class ValueChange(_Doc, frozen=True, kw_only=True):
    base_ms: RowMs
    other_ms: RowMs
    change_ms: RowMs
    change_interval_ms: list[RowMs] | None
    distinguishable: bool


class CollectiveChange(_Doc, frozen=True, kw_only=True):
    """A collective of one operation, type and size."""

    operation: str
    dtype: str | None
    bytes: Annotated[int, _meta("bytes", "nccl-tests S", "row")] | None
    base_calls: Calls | None
    other_calls: Calls | None
    base_channels: Annotated[int, _meta("1", "of the most frequent launch", "row")] | None
    other_channels: Annotated[int, _meta("1", "of the most frequent launch", "row")] | None
    transfer: ValueChange
    wait: ValueChange
    exposed: ValueChange


class FindingChange(_Doc, frozen=True, kw_only=True):
    """A finding of one or both runs, by code."""

    code: str
    name: str
    state: Literal["new", "gone", "changed", "unchanged"]
    kind: Literal["fault", "opportunity"]
    title: str
    base_recoverable_ms: GainMs | None
    other_recoverable_ms: GainMs | None
    change_ms: GainMs | None


class NotCompared(_Doc, frozen=True, kw_only=True):
    what: str
    why: str


class History(_Doc, frozen=True, kw_only=True):
    """The archived runs that stand as the base."""

    index: str
    used: list[str]
    left_out: Annotated[int, _meta("runs", "not comparable", "history")]
    step_ms: list[Annotated[float, _meta("ms", "one run", "run")]]


class ComparisonVerdict(_Doc, frozen=True, kw_only=True):
    """The answer in short."""

    state: Literal["slower", "faster", "same", "no-verdict", "not-comparable"]
    headline: str
    proof: str
    do_next: str


class ComparisonReport(_Doc, frozen=True, kw_only=True):
    """What changed from one run to another."""

    schema_version: Annotated[int, _meta("", "identifier", "report")]
    tool: Tool
    name: str
    warnings: list[WarningDoc]
    verdict: ComparisonVerdict
    comparable: bool
    differences: list[Difference]
    base: Side
    other: Side
    step: StepChange | None
    rank: RankId | None
    ranks: list[RankChange]
    kernels: list[KernelChange]
    kernels_left_out: Annotated[int, _meta("rows", "not listed", "report")]
    collectives: list[CollectiveChange]
    environment: list[Difference]
    findings: list[FindingChange]
    not_compared: list[NotCompared]
    history: History | None = None


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `ComparisonReport`."""
    from trace_analyzer.document_meanings import COMPARISON

    return json_schema(ComparisonReport, COMPARISON)


__all__ = ["SCHEMA_VERSION", "ComparisonReport", "schema"]
