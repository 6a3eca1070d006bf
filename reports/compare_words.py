"""What every output of `compare` says, in the same words: state, parts, numbers, the waterfall."""

from __future__ import annotations

from trace_analyzer.comparison_document import (
    ComparisonReport,
    KernelChange,
    PartChange,
    RankChange,
    Side,
)
from trace_analyzer.reports import units
from trace_analyzer.reports.scaling_words import FallRow, signed_ms
from trace_analyzer.reports.summary import State, date

_STATES = {
    "slower": State("▲", "Slower", "warn"),
    "faster": State("✓", "Faster", "good"),
    "same": State("✓", "No difference told", "good"),
    "no-verdict": State("!", "No verdict", "warn"),
    "not-comparable": State("✕", "Not comparable", "warn"),
}
# Part → what it is called, and the class that draws it.
PARTS = {
    "compute": ("Compute", "compute"),
    "transfer": ("Transfer, exposed", "transfer"),
    "wait": ("Wait for peers, exposed", "wait"),
    "unsplit": ("Communication, exposed", "unsplit"),
    "copy": ("Copies, exposed", "copy"),
    "latency": ("Gaps between operations", "idle"),
    "other": ("Other idle time", "idle"),
    "launch": ("Idle: late launches", "host"),
    "launch:data_loading": ("Idle: host waits for data", "host"),
    "launch:blocking_sync": ("Idle: host blocked", "host"),
    "launch:allocator": ("Idle: host allocates", "host"),
    "launch:profiler_overhead": ("Idle: profiler at work", "host"),
    "launch:operators": ("Idle: host launches", "host"),
    "launch:silent": ("Idle: host silent", "host"),
}
KINDS = {
    "new": "new",
    "gone": "gone",
    "replaced": "another kernel",
    "slower": "slower",
    "faster": "faster",
    "more-calls": "more calls",
    "fewer-calls": "fewer calls",
    "indistinguishable": "not told apart",
}
_BESIDE = 0.1  # a change of this share of a kernel's time explains one of its length
_SMALL = 0.004  # of the step: changes below are one row of the waterfall


def state(report: ComparisonReport) -> State:
    """Return the state in words."""
    return _STATES[report.verdict.state]


def part_name(part: str) -> str:
    """Return what a part is called in a table."""
    if part in PARTS:
        return PARTS[part][0]
    return f"Idle: {part.removeprefix('launch:').replace('_', ' ')}"


def part_class(part: str) -> str:
    """Return the class that draws a part."""
    return PARTS[part][1] if part in PARTS else "host"


def focus(report: ComparisonReport) -> RankChange | None:
    """Return the rank that the run is looked at."""
    return next((row for row in report.ranks if row.other_rank == report.rank), None)


def meta(report: ComparisonReport) -> list[str]:
    """Return what is compared, in pieces."""
    gpus = dict.fromkeys(side.gpu for side in (report.base, report.other) if side.gpu)
    pieces = [f"{side_ranks(report.base)} against {side_ranks(report.other)}", *gpus]
    dates = [date(side.started) for side in (report.base, report.other) if side.started]
    if dates:
        pieces.append(f"recorded {' and '.join(dict.fromkeys(dates))}")
    return pieces


def side_ranks(side: Side) -> str:
    """Return "2 ranks", or "1 of 8 ranks"."""
    recorded = len(side.recorded_ranks)
    if side.world_size is not None and recorded and recorded != side.world_size:
        return f"{recorded} of {units.plural(side.world_size, 'rank')}"
    return units.plural(side.world_size or recorded, "rank")


def facts(report: ComparisonReport) -> list[tuple[str, str, str]]:
    """Return (name, value, what follows it in grey) of the numbers beside the headline."""
    rows = []
    if report.step is not None:
        step = report.step
        bounds = units.interval(step.change_interval_ms)
        rows.append(("Change", f"{signed_ms(step.change_ms)} ms a step", bounds or "no interval"))
    for side in (report.base, report.other):
        if side.step_ms is not None:
            rows.append((side.name, f"{units.ms(side.step_ms)} ms", _basis(side)))
            if side.step_basis == "unprofiled" and side.profiled_ms is not None:
                rows.append(("in its trace", f"{units.ms(side.profiled_ms)} ms", ""))
    return rows


def _basis(side: Side) -> str:
    how = "without a profiler" if side.step_basis == "unprofiled" else "under the profiler"
    steps = units.plural(side.steps, "step") if side.steps else ""
    return f"{steps} {how}".strip()


def comparability(report: ComparisonReport) -> list[tuple[str, str, str]]:
    """Return (glyph, tone, sentence) lines: what refuses the comparison, then what differs."""
    lines = [
        ("✕", "warn", f"{_capital(item.what)}: {item.base} against {item.other}.")
        for item in report.differences
        if item.refuses
    ]
    if not lines:
        lines.append(("✓", "good", "Same GPU model, number of ranks and work."))
    lines += [
        ("–", "quiet", f"{_capital(item.what)}: {item.base} → {item.other}.")
        for item in report.differences
        if not item.refuses
    ]
    return lines


def waterfall(report: ComparisonReport) -> list[FallRow]:
    """Return the way from one traced step to the other on the rank that is looked at."""
    rank = focus(report)
    if rank is None:
        return []
    base, other = rank.step.base_ms, rank.step.other_ms
    rows = [FallRow(report.base.name, "muted", 0.0, base, f"{units.ms(base)} ms", total=True)]
    at, small = base, 0.0
    ordered = sorted(rank.parts, key=lambda part: -abs(part.change_ms))
    large = [part for part in ordered if abs(part.change_ms) >= _SMALL * max(base, other)]
    # What shrinks comes first, so that the bars stay on the scale of the longer step.
    for part in sorted(large, key=lambda part: part.change_ms > 0):
        end = at + part.change_ms
        cls = part_class(part.part)
        rows.append(FallRow(part_name(part.part), cls, at, end, signed_ms(part.change_ms)))
        at = end
    small = other - at
    if abs(small) >= 0.005:
        rows.append(FallRow("Smaller changes", "outline", at, other, signed_ms(small)))
    rows.append(
        FallRow(report.other.name, "muted", 0.0, other, f"{units.ms(other)} ms", total=True)
    )
    return rows


def told(kernel: KernelChange) -> bool:
    """Return whether a row is told from no change."""
    return kernel.kind != "indistinguishable"


def change_cell(change_ms: float, bounds: list[float] | None) -> tuple[str, str]:
    """Return a change for a table and its interval."""
    shown = units.ms_cell(change_ms)
    signed = f"+{shown}" if change_ms > 0 and not shown.startswith("<") else shown
    return signed, units.interval(bounds, 2)


def part_state(part: PartChange) -> str:
    """Return whether a part is told apart, in words."""
    return "yes" if part.distinguishable else "no"


def calls(kernel: KernelChange) -> str:
    """Return launches a step: "8", or "8 → 16" where they differ."""
    before, after = kernel.base_calls, kernel.other_calls
    texts = [units.integer(value) if value else "0" for value in (before, after)]
    return texts[0] if texts[0] == texts[1] else f"{texts[0]} → {texts[1]}"


def beside(kernel: KernelChange) -> str:
    """Say how much of a kernel runs beside communication, where that differs; else empty."""
    both = kernel.base_ms is not None and kernel.other_ms is not None
    if not both or abs(kernel.other_beside - kernel.base_beside) < _BESIDE:
        return ""
    before, after = units.percent(kernel.base_beside), units.percent(kernel.other_beside)
    return f"{before} → {after} beside communication"


def places(kernel: KernelChange) -> str:
    """Say in how many places of a step a kernel differs; empty where that is not known."""
    if kernel.places is None or kernel.places_changed is None or kernel.places < 2:
        return ""
    return f"in {kernel.places_changed} of {kernel.places} places"


def finding_states() -> dict[str, str]:
    """Return what a finding's state is called."""
    return {"new": "new", "gone": "gone", "changed": "changed", "unchanged": "in both"}


def gain(report: ComparisonReport, value: float | None, *, there: bool) -> str:
    """Return what a finding gives back in one of the runs, or why there is no number."""
    if not there:
        return units.NOT_APPLICABLE
    if not report.comparable:
        return "withheld"
    return units.UNKNOWN if value is None else units.ms(value)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
