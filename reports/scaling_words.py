"""What every output of `scaling` says, in the same words: state, terms, numbers, the waterfall."""

from __future__ import annotations

from dataclasses import dataclass

from trace_analyzer.reports import units
from trace_analyzer.reports.summary import State
from trace_analyzer.scaling_document import ScalingPoint, ScalingReport, ScalingRun

_STATES = {
    "scales": State("✓", "Scales", "good"),
    "loses": State("▲", "Time is lost", "warn"),
    "no-verdict": State("!", "No verdict", "warn"),
    "not-comparable": State("✕", "Not comparable", "warn"),
}
# Term → what it is called, and the class that draws it.
TERMS = {
    "kernels": ("Kernels", "compute"),
    "contention": ("Compute slowed while data moves", "compute"),
    "exposed-transfer": ("Transfer not hidden under compute", "transfer"),
    "wait": ("Waiting for late ranks", "wait"),
    "exposed-communication": ("Communication not hidden", "unsplit"),
    "copies": ("Copies not hidden", "copy"),
    "gaps": ("Gaps between operations", "idle"),
    "host": ("Late launches", "host"),
}
BASES = {
    "unprofiled": "timed without a profiler",
    "profiled": "traced, under the profiler",
    "given": "given",
}
RESIDUAL = ("Not explained", "outline")


@dataclass(frozen=True, slots=True)
class FallRow:
    """One row of the waterfall, from `start_ms` to `end_ms`; a total starts at 0."""

    label: str
    cls: str
    start_ms: float
    end_ms: float
    value: str
    total: bool = False


def state(report: ScalingReport) -> State:
    """Return the state in words."""
    return _STATES[report.verdict.state]


def title_of_term(term: str, report: ScalingReport) -> str:
    """Return what a term is called; kernels lose by a smaller batch only in strong scaling."""
    label, _ = TERMS.get(term, (term, "outline"))
    if term == "kernels" and report.mode == "strong":
        return "Kernels on a smaller batch"
    return label


def top(report: ScalingReport) -> ScalingPoint:
    """Return the point of the largest number of ranks."""
    return report.points[-1]


def waterfall(report: ScalingReport, point: ScalingPoint) -> list[FallRow]:
    """Return the way from the ideal step to the measured one; empty without a divided loss."""
    if point.ideal_ms is None or point.residual_ms is None or not point.loss:
        return []
    base = report.points[0]
    divided = f" ÷ {_count(point.ranks / base.ranks)}" if report.mode == "strong" else ""
    rows = [
        FallRow(
            f"Ideal: the step of {ranks_words(base.ranks)}{divided}",
            "muted",
            0.0,
            point.ideal_ms,
            f"{units.ms(point.ideal_ms)} ms",
            total=True,
        )
    ]
    at = point.ideal_ms
    terms = [(title_of_term(term.term, report), _cls(term.term), term.ms) for term in point.loss]
    for label, cls, ms in [*terms, (*RESIDUAL, point.residual_ms)]:
        rows.append(FallRow(label, cls, at, at + ms, signed_ms(ms)))
        at += ms
    rows.append(
        FallRow(
            f"Measured: {ranks_words(point.ranks)}",
            "muted",
            0.0,
            point.step_ms,
            f"{units.ms(point.step_ms)} ms",
            total=True,
        )
    )
    return rows


def _cls(term: str) -> str:
    return TERMS.get(term, (term, "outline"))[1]


def signed_ms(value_ms: float) -> str:
    """Return a change in ms with its sign: "+1.7", "−0.1", "+0.01"."""
    shown = units.ms(value_ms) if abs(value_ms) >= 0.05 else units.ms_cell(value_ms)
    return f"+{shown}" if value_ms > 0 and not shown.startswith("<") else shown


def _count(value: float) -> str:
    return f"{value:g}"


def ranks_words(ranks: int) -> str:
    """Return "1 rank", "8 ranks"."""
    return units.plural(ranks, "rank")


def efficiency(value: float | None) -> str:
    """Return an efficiency as percent with one decimal."""
    return units.UNKNOWN if value is None else f"{units.decimal(100 * value, 1)}{units.NBSP}%"


def efficiency_bounds(bounds: list[float] | None) -> str:
    """Return its interval in brackets, in percent."""
    return units.interval(None if bounds is None else [100 * bound for bound in bounds])


def facts(report: ScalingReport) -> list[tuple[str, str, str]]:
    """Return (name, value, what follows it in grey) of the numbers beside the headline."""
    base, point = report.points[0], top(report)
    formula = "b·Tb/(n·Tn)" if base.ranks != 1 else f"T1/({point.ranks}·T{point.ranks})"
    if report.mode == "weak":
        formula = f"T{base.ranks}/T{point.ranks}"
    rows = []
    if point.efficiency is not None:
        bounds = efficiency_bounds(point.efficiency_interval)
        name = f"{report.mode.capitalize()} scaling, E = {formula}"
        rows.append((name, efficiency(point.efficiency), bounds or "no interval"))
    if point.efficiency_wallclock is not None:
        bounds = efficiency_bounds(point.efficiency_wallclock_interval)
        rows.append(("with rare long steps", efficiency(point.efficiency_wallclock), bounds))
    if point.efficiency_without_primary is not None:
        rows.append(
            (f"without {point.primary}", efficiency(point.efficiency_without_primary), "replayed")
        )
    for item in (base, point):
        interval = units.interval(item.step_interval_ms)
        rows.append(
            (f"T{item.ranks}, {ranks_words(item.ranks)}", f"{units.ms(item.step_ms)} ms", interval)
        )
    if point.loss_ms is not None:
        rows.append(
            ("Lost", f"{units.ms(point.loss_ms)} ms a step", units.interval(point.loss_interval_ms))
        )
    return rows


def comparability(report: ScalingReport) -> list[tuple[str, str, str]]:
    """Return (glyph, tone, sentence) lines that say whether the runs do the same work."""
    point = top(report)
    if point.comparable is None:
        return [("!", "warn", "Not checked: there is no trace of both runs.")]
    lines = [
        ("✕", "warn", f"{_capital(item.what)}: {item.base} against {item.other}.")
        for item in point.differences
        if item.refuses
    ]
    if not lines:
        checked = "Same work a step, precision, optimizer, compile state, versions and GPU model."
        lines.append(("✓", "good", checked))
    lines += [
        ("–", "quiet", f"{_capital(item.what)}: {item.base} against {item.other}.")
        for item in point.differences
        if not item.refuses
    ]
    return lines


def scope(report: ScalingReport) -> str:
    """Say what the interval covers; empty without one."""
    if report.interval_scope == "over runs":
        return "The interval covers steps and runs."
    if report.interval_scope == "within a run":
        return (
            "The interval covers these steps only: what differs from start to start is in it from "
            "three runs of each on."
        )
    return ""


def steps_words(run: ScalingRun) -> str:
    """Say how the steps of a run were sorted: "58 of 60 steps; 1 warm-up, 1 outlier left out"."""
    if run.steps is None:
        return "a number alone"
    if run.steady is None or run.warm_up is None or run.outliers is None:
        return units.plural(run.steps, "step")
    left = []
    if run.warm_up:
        left.append(f"{run.warm_up} warm-up")
    if run.outliers:
        left.append(units.plural(run.outliers, "outlier"))
    other = run.steps - run.steady - run.warm_up - run.outliers
    if other:
        left.append(f"{other} at another level")
    words = f"{run.steady} of {units.plural(run.steps, 'step')}"
    return f"{words}; left out: {', '.join(left)}" if left else words


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def curve_sentence(report: ScalingReport) -> str:
    """Say what the fitted curve is, or that it does not fit; empty without one."""
    curve = report.curve
    if curve is None:
        return ""
    bounds = efficiency_bounds(curve.fixed_share_interval)
    fitted = (
        f"T(n) = {units.ms(curve.fixed_ms)} + {units.ms(curve.shared_ms)}/n ms: "
        f"{efficiency(curve.fixed_share)} {bounds} of the step of one rank does not shrink"
    ).replace("  ", " ")
    if not curve.fits:
        return (
            f"No curve of the form a + b/n describes these points: it misses one by "
            f"{units.percent(curve.misfit)}. Nothing is projected."
        )
    return f"{fitted}. It misses no point by more than {units.percent(curve.misfit)}."


def meta(report: ScalingReport) -> list[str]:
    """Return what was compared, in pieces."""
    ranks = ", ".join(str(point.ranks) for point in report.points)
    gpus = dict.fromkeys(run.gpu for run in report.runs if run.gpu)
    pieces = [f"{report.mode} scaling", f"{ranks} ranks", *gpus]
    if report.mode_basis != "given":
        pieces[0] += " (by the grids of kernels)"
    return pieces


def residual_sentence(report: ScalingReport) -> str:
    """Say how much of the loss is not explained, and whether that is little enough."""
    point = top(report)
    if point.residual_ms is None or point.residual_share is None:
        return ""
    share = units.percent(point.residual_share)
    what = f"Not explained: {units.ms(point.residual_ms)} ms, {share} of the loss"
    if point.explained is None:
        return f"{what}. The loss itself is not told from none."
    if point.explained:
        return f"{what}; up to 15 % the loss counts as explained."
    return f"{what}: more than 15 %, so that the loss counts as not explained."


def no_loss_sentence(report: ScalingReport) -> str:
    """Say why the loss is not divided."""
    if top(report).comparable is False:
        return "Nothing is divided: the runs are not comparable."
    return "To divide it, give traces of both runs: folders with torch.profiler or nsys recordings."


def stretches(report: ScalingReport) -> list[str]:
    """Say of each run whose level changes where, and which stretch counts."""
    sentences = []
    for run in report.runs:
        if len(run.segments) < 2:
            continue
        chosen = max(run.segments, key=lambda item: (item.last - item.first, item.first))
        levels = ", ".join(
            f"steps {part.first}–{part.last - 1}: {units.ms(part.median_ms)} ms"
            for part in run.segments
        )
        sentences.append(
            f"{run.name} changes its level ({levels}); steps {chosen.first}–{chosen.last - 1}, the "
            "longest stretch, count."
        )
    return sentences
