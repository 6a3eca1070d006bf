"""The report as data: one JSON-serialisable object of which every output is a rendering.

Units, statistics and scopes stand on the types; `json_schema()` publishes them. Fields that are
`None` are unknown or do not apply, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

SCHEMA_VERSION = 1

DATA_WARNING_NAMES = {
    "TRC001": "truncated-input",
    "TRC002": "missing-rank",
    "TRC003": "profiler-perturbation",
    "TRC004": "lost-events",
    "TRC005": "clock-skew",
    "TRC006": "misaligned-windows",
    "TRC007": "corrupt-durations",
    "TRC008": "kernels-hidden-in-graphs",
    "TRC009": "malformed-events",
    "TRC010": "no-step-boundaries",
    "TRC011": "ambiguous-rank",
    "TRC012": "unit-mismatch",
    "TRC013": "not-comparable",
}


def _meta(unit: str, statistic: str, scope: str) -> Any:  # noqa: ANN401
    return Meta(extra_json_schema={"unit": unit, "statistic": statistic, "scope": scope})


WindowMs = Annotated[float, _meta("ms", "total over the recorded window", "rank")]
StepMeanMs = Annotated[float, _meta("ms", "mean over steady steps", "rank")]
StepMs = Annotated[float, _meta("ms", "one step", "rank and step")]
RunMedianMs = Annotated[float, _meta("ms", "maximum over ranks of the median steady step", "run")]
RunMeanMs = Annotated[float, _meta("ms", "maximum over ranks of the mean steady step", "run")]
RecoverableMs = Annotated[float, _meta("ms a step", "replayed base minus replayed edit", "run")]
OfStepMs = Annotated[
    float, _meta("ms", "median step, or mean step for causes that come and go", "run")
]
AloneMs = Annotated[
    float, _meta("ms a step", "replayed without all other faults minus without any", "run")
]
CeilingMs = Annotated[
    float, _meta("ms a step", "union of intervals attributed to the cause", "run")
]
P50Us = Annotated[float, _meta("us", "median", "row")]
P99Us = Annotated[float, _meta("us", "99th percentile", "row")]
MeanUs = Annotated[float, _meta("us", "mean", "row")]
MeanMs = Annotated[float, _meta("ms a step", "mean over steady steps", "row")]
GbS = Annotated[float, _meta("GB/s (1e9 bytes)", "as the basis beside it says", "row")]
Fraction = Annotated[float, _meta("1", "ratio", "run")]
PerStep = Annotated[float, _meta("1 a step", "mean over steady steps", "row")]
LatencyUs = Annotated[
    float, _meta("us", "α of the line t = α + S/β through the medians of each size", "row")
]
ReplayMs = Annotated[float, _meta("ms a step", "replayed step", "run")]
GainMs = Annotated[float, _meta("ms a step", "replayed base minus replayed swap", "rank")]
LatenessMs = Annotated[float, _meta("ms", "arrival after the first rank", "rank and step")]
ClockUs = Annotated[float, _meta("us", "fitted over the window", "rank")]
RankId = Annotated[int, _meta("", "identifier", "rank")]
StepId = Annotated[int, _meta("", "identifier", "step")]
Blocks = Annotated[int, _meta("blocks", "of each launch", "row")]
LaunchThreads = Annotated[int, _meta("threads", "of each launch", "row")]
RangeNs = Annotated[int, _meta("ns from the start of the rank's window", "one range", "rank")]


class _Doc(Struct, frozen=True, kw_only=True):
    pass


class Tool(_Doc, frozen=True, kw_only=True):
    name: str
    version: str
    options: dict[str, Any]


class SourceDoc(_Doc, frozen=True, kw_only=True):
    path: str
    kind: str
    bytes: Annotated[int, _meta("bytes", "file size", "file")]
    sha256: str
    ranks: list[RankId]
    gpu_operations: Annotated[int, _meta("1", "total", "file")]
    tool: str = ""
    schema: str = ""


class RunDoc(_Doc, frozen=True, kw_only=True):
    name: str
    world_size: Annotated[int, _meta("ranks", "as recorded", "run")] | None
    started: str | None
    hosts: list[str]
    gpu: str | None
    parallelism: str | None
    command: str | None
    sources: list[SourceDoc]
    recorded_ranks: list[RankId] = []
    missing_ranks: list[RankId] = []
    versions: dict[str, str] = {}


class WarningDoc(_Doc, frozen=True, kw_only=True):
    code: str
    severity: Literal["error", "warning", "note"]
    message: str
    effect: str
    count: Annotated[int, _meta("1", "total over ranks", "warning")]
    ranks: list[RankId]


class Range(_Doc, frozen=True, kw_only=True):
    """A stretch of one rank's timeline, ns from the start of that rank's window.

    `label` says in a few words what the host did not do meanwhile; it is written over its lanes.
    """

    rank: RankId
    start_ns: RangeNs
    end_ns: RangeNs
    label: str = ""


class Series(_Doc, frozen=True, kw_only=True):
    """A value a step, drawn as bars from zero.

    `first` is the number of the first step, `marked` those of the steps that the finding is about.
    """

    label: str
    unit: str
    values: list[Annotated[float, _meta("as `unit` says", "one step", "step")] | None]
    first: StepId = 0
    marked: list[StepId] = []


class Evidence(_Doc, frozen=True, kw_only=True):
    """A table that proves something: `columns` are headers with units, rows are cells.

    Text between two asterisks on each side is set in bold: "**15.4 ms**". `series` are drawn below
    it; where there are only series, `columns` and `rows` are empty.
    """

    title: str
    columns: list[str]
    rows: list[list[str | float | int | None]]
    ranges: list[Range] = []
    series: list[Series] = []


class Finding(_Doc, frozen=True, kw_only=True):
    code: str
    name: str
    kind: Literal["fault", "opportunity"]
    status: Literal["stable", "experimental"]
    title: str
    severity: Literal["high", "medium", "low"]
    ranks: list[RankId]
    recoverable_ms: RecoverableMs | None
    recoverable_interval_ms: list[RecoverableMs] | None
    of_step_ms: OfStepMs | None = None
    alone_ms: AloneMs | None = None
    ceiling_ms: CeilingMs | None
    basis: Literal["replay", "ceiling", "evidence"]
    confidence: Literal["high", "medium", "low"]
    confidence_reason: str
    caused_by: str | None
    proof: str
    rival: str
    limits: str
    evidence: list[Evidence]
    ranges: list[Range]
    actions: list[str]
    edit: str = ""  # what the replay changed: "rank 1's host as fast as rank 0's"


class Check(_Doc, frozen=True, kw_only=True):
    code: str
    state: Literal["passed", "not-distinguishable", "not-applicable", "error"]
    reason: str
    needs: str
    name: str = ""


class Verdict(_Doc, frozen=True, kw_only=True):
    state: Literal["fault", "likely", "nothing", "no-verdict"]
    headline: str
    proof: str
    rival: str
    do_next: str
    confidence: Literal["high", "medium", "low"] | None
    primary: str | None
    opportunity: str | None
    step_ms: RunMedianMs | None
    recoverable_ms: RecoverableMs | None
    recoverable_interval_ms: list[RecoverableMs] | None
    joint_recoverable_ms: RecoverableMs | None


class ExcludedStep(_Doc, frozen=True, kw_only=True):
    step: StepId
    reason: str


class Steps(_Doc, frozen=True, kw_only=True):
    boundary: str
    count: Annotated[int, _meta("1", "recorded by at least one rank", "run")]
    used: list[StepId]
    excluded: list[ExcludedStep]
    profiled_ms: RunMedianMs | None
    profiled_mean_ms: RunMeanMs | None
    unprofiled_ms: RunMedianMs | None = None
    unprofiled_basis: Literal["measured", "given", "predicted"] | None = None
    unprofiled_count: Annotated[int, _meta("1", "total", "run")] | None = None
    unprofiled_steps_ms: list[Annotated[float, _meta("ms", "one step", "step")]] = []
    perturbation: Fraction | None = None
    predicted_unprofiled_ms: RunMedianMs | None = None
    predicted_interval_ms: list[RunMedianMs] | None = None
    predicted_unprofiled_mean_ms: RunMeanMs | None = None
    bound: Literal["host", "device", "mixed"] | None = None
    replay_error: Fraction | None = None


class WindowPartition(_Doc, frozen=True, kw_only=True):
    """compute + comm_exposed + copy_exposed + idle = window, exactly."""

    window_ms: WindowMs
    compute_ms: WindowMs
    comm_ms: WindowMs
    comm_exposed_ms: WindowMs
    copy_exposed_ms: WindowMs
    idle_ms: WindowMs
    head_ms: WindowMs = 0.0
    tail_ms: WindowMs = 0.0


class StepPartition(_Doc, frozen=True, kw_only=True):
    """Means over steady steps; compute + comm_exposed + copy_exposed + idle = step."""

    step_ms: StepMeanMs
    compute_ms: StepMeanMs
    comm_ms: StepMeanMs
    comm_exposed_ms: StepMeanMs
    copy_exposed_ms: StepMeanMs
    idle_ms: StepMeanMs
    step_median_ms: Annotated[float, _meta("ms", "median over steady steps", "rank")]
    comm_transfer_ms: StepMeanMs | None = None
    comm_wait_ms: StepMeanMs | None = None
    comm_exposed_transfer_ms: StepMeanMs | None = None
    comm_exposed_wait_ms: StepMeanMs | None = None
    comm_exposed_unsplit_ms: StepMeanMs | None = None
    replayed_wait_ms: StepMeanMs | None = None
    idle_launch_ms: StepMeanMs | None = None
    idle_launch_by_host: dict[str, StepMeanMs] = {}
    idle_latency_ms: StepMeanMs | None = None
    idle_other_ms: StepMeanMs | None = None


class StepRow(_Doc, frozen=True, kw_only=True):
    index: StepId
    start_ms: Annotated[
        float, _meta("ms from the start of the window", "one step", "rank and step")
    ]
    step_ms: StepMs
    compute_ms: StepMs
    comm_ms: StepMs
    comm_exposed_ms: StepMs
    copy_exposed_ms: StepMs
    idle_ms: StepMs
    steady: bool


class RankDoc(_Doc, frozen=True, kw_only=True):
    rank: RankId
    gpu: str | None
    host: str | None
    window: WindowPartition | None
    step: StepPartition | None
    steps: list[StepRow]
    pid: Annotated[int, _meta("", "identifier", "rank")] | None = None
    rank_basis: str = ""
    partial: bool = False


class Percentiles(_Doc, frozen=True, kw_only=True):
    p50: P50Us
    p99: P99Us


class CollectiveDoc(_Doc, frozen=True, kw_only=True):
    """Communication kernels with the same operation, group, type, size (within 1 %) and launch shape."""

    operation: str
    group: str | None
    ranks: list[RankId]
    dtype: str | None
    bytes: Annotated[int, _meta("bytes", "nccl-tests S", "row")] | None
    count_per_step: PerStep | None
    grid: list[Blocks] | None
    block: list[LaunchThreads] | None
    channels: Annotated[int, _meta("1", "of each launch", "row")] | None
    duration_us: Percentiles
    transfer_us: Percentiles | None = None
    wait_us: dict[str, MeanUs] = {}
    algbw_gbs: GbS | None = None
    busbw_gbs: GbS | None = None
    exposed_ms_per_step: MeanMs | None = None
    count: Annotated[int, _meta("1", "total over ranks", "row")] = 0
    kernel: str = ""
    bandwidth_basis: str | None = None
    expected_channels: Annotated[int, _meta("1", "by NCCL's rule for this size", "row")] | None = (
        None
    )
    block_reading: str | None = None
    duration_ms_by_rank: dict[str, Annotated[float, _meta("ms", "total of durations", "rank")]] = {}
    bytes_range: list[Annotated[int, _meta("bytes", "nccl-tests S", "row")]] | None = None


class LateRankDoc(_Doc, frozen=True, kw_only=True):
    """What a rank was doing while its peers waited for it, in the recorded (profiled) run."""

    rank: RankId
    last_in: Annotated[int, _meta("1", "collectives in which it came last", "rank")]
    decided: Annotated[int, _meta("1", "collectives that name a late rank", "run")]
    persistent: bool
    late_ms: StepMeanMs
    before_ms: dict[str, StepMeanMs]


class ContentionDoc(_Doc, frozen=True, kw_only=True):
    """How much longer kernels take while a communication kernel is resident."""

    kind: Literal["matrix", "other"]
    slowdown: Annotated[float, _meta("1", "ratio of medians of the same kernels", "run")] | None
    pairs: Annotated[int, _meta("1", "kernels seen both beside communication and alone", "run")]


class ClockDoc(_Doc, frozen=True, kw_only=True):
    rank: RankId
    offset_us: ClockUs
    residual_us: ClockUs


class GroupDoc(_Doc, frozen=True, kw_only=True):
    name: str
    ranks: list[RankId]
    latency_us: LatencyUs | None = None
    busbw_gbs: GbS | None = None
    reference_gbs: GbS | None = None
    reference_basis: str | None = None


class LinkDoc(_Doc, frozen=True, kw_only=True):
    src: RankId
    dst: RankId
    bytes: Annotated[int, _meta("bytes", "total", "row")] | None
    count: Annotated[int, _meta("1", "total", "row")] | None
    latency_us: LatencyUs | None
    bandwidth_gbs: GbS | None
    reference_gbs: GbS | None
    basis: Literal["p2p", "pair-group", "bench", "topology"]


class TransportDoc(_Doc, frozen=True, kw_only=True):
    """How data of one rank reaches another, from the NCCL log; ranks are those of the group."""

    src: RankId
    dst: RankId
    kind: str
    detail: str
    channels: Annotated[int, _meta("1", "that go this way", "row")]


class WhatIf(_Doc, frozen=True, kw_only=True):
    """The step after a named change; `ms` is T, not what it gains."""

    name: str
    meaning: str = ""
    ms: ReplayMs
    interval_ms: list[ReplayMs] | None = None


class RankSwap(_Doc, frozen=True, kw_only=True):
    rank: RankId
    host_gain_ms: GainMs
    device_gain_ms: GainMs


class ReplayDoc(_Doc, frozen=True, kw_only=True):
    base_ms: ReplayMs | None
    joint_ms: ReplayMs | None
    what_if: list[WhatIf] = []
    rank_swap: list[RankSwap] = []


class KernelDoc(_Doc, frozen=True, kw_only=True):
    """Kernels (or copies) of one name and launch shape."""

    name: str
    category: str
    count: Annotated[int, _meta("1", "total over ranks and window", "row")]
    total_ms: Annotated[float, _meta("ms", "sum of durations over ranks and window", "row")]
    mean_us: MeanUs
    grid: list[Blocks] | None
    block: list[LaunchThreads] | None
    registers: Annotated[int, _meta("registers a thread", "of each launch", "row")] | None
    shared_bytes: Annotated[int, _meta("bytes a block", "of each launch", "row")] | None
    occupancy: Annotated[float, _meta("%", "as the profiler estimates it", "row")] | None
    ranks: dict[str, Annotated[float, _meta("ms a step", "mean over steady steps", "rank")]]
    count_per_step: PerStep | None = None


class EnvironmentDoc(_Doc, frozen=True, kw_only=True):
    per_rank: dict[str, dict[str, str]] = {}
    differences: list[str] = []


class Report(_Doc, frozen=True, kw_only=True):
    """Everything the analysis says about one run."""

    schema_version: Annotated[int, _meta("", "identifier", "report")]
    tool: Tool
    run: RunDoc
    warnings: list[WarningDoc]
    verdict: Verdict
    findings: list[Finding]
    checks: list[Check]
    steps: Steps
    ranks: list[RankDoc]
    collectives: list[CollectiveDoc]
    lateness: dict[str, dict[str, LatenessMs | None]] = {}
    late_ranks: list[LateRankDoc] = []
    contention: list[ContentionDoc] = []
    clock: list[ClockDoc] = []
    groups: list[GroupDoc] = []
    links: list[LinkDoc] = []
    transports: list[TransportDoc] = []
    replay: ReplayDoc | None = None
    kernels: list[KernelDoc] = []
    environment: EnvironmentDoc = EnvironmentDoc()
    answers: list[Check] = []


def encode(report: Struct) -> bytes:
    """Return the report (or a document of its own) as JSON, two-space indented, with a final line feed; same report, same bytes."""
    return msgspec.json.format(encode_compact(report), indent=2) + b"\n"


def encode_compact(document: Any) -> bytes:  # noqa: ANN401
    """Return a report, or a part of one, as JSON without white space; same document, same bytes.

    Text that is no valid Unicode (a file name in an unknown encoding) carries U+FFFD in place of
    what cannot be written.
    """
    try:
        return msgspec.json.encode(document, order="deterministic")
    except UnicodeEncodeError:
        writable = _writable(msgspec.to_builtins(document))
        return msgspec.json.encode(writable, order="deterministic")


def _writable(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_writable(item) for item in value]
    return value


def json_schema(
    document: type[Struct] = Report, meanings: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `Report`, or of another document with its meanings.

    Every field has a description; every number has `unit`, `statistic` and `scope`.
    """
    from trace_analyzer.field_meanings import MEANINGS

    sentences = MEANINGS if meanings is None else meanings
    schema = msgspec.json.schema(document)
    for name, definition in schema["$defs"].items():
        for field, declared in definition["properties"].items():
            declared["description"] = sentences[name][field]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
