"""The waterfall: from one step time to another, term by term, and steps beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from trace_analyzer.reports import svg, units
from trace_analyzer.reports.svg import Scale

ROW_PX = 30
_TOP_PX, _BAR_PX = 7, 16
# A bar that ends before this has room for its value behind it: a total's is longer.
_ROOM_RIGHT, _ROOM_RIGHT_TOTAL = 0.93, 0.88
_INSIDE_FROM = 0.25
_LEAST_WIDTH = 0.002  # of the plot: a term of nothing is still seen
_STEP_PX, _STEP_TOP_PX, _STEP_BAR_PX = 34, 4, 22


@dataclass(frozen=True, slots=True)
class FallBar:
    """A row of a waterfall: from `start_ms` to `end_ms`, drawn by `cls`; a total begins at 0."""

    cls: str
    start_ms: float
    end_ms: float
    value: str
    total: bool


def scale_of(bars: Sequence[FallBar]) -> Scale:
    """Return the scale that all rows share: zero is on it."""
    return Scale.to(max((max(bar.start_ms, bar.end_ms) for bar in bars), default=0.0))


def fall(bars: Sequence[FallBar]) -> list[Markup]:
    """Return a drawing for each row; lines connect the end of one with the beginning of the next."""
    scale = scale_of(bars)
    return [
        _row(scale, bar, before=bars[at - 1] if at else None, last=at == len(bars) - 1)
        for at, bar in enumerate(bars)
    ]


def _row(scale: Scale, bar: FallBar, *, before: FallBar | None, last: bool) -> Markup:
    low, high = sorted((scale(max(bar.start_ms, 0.0)), scale(max(bar.end_ms, 0.0))))
    width = max(high - low, _LEAST_WIDTH)
    bottom = _TOP_PX + _BAR_PX
    parts = [scale.grid(0, ROW_PX), svg.rect(bar.cls, low, width, _TOP_PX, _BAR_PX)]
    if before is not None:
        parts.append(svg.vertical("step-line", scale(max(before.end_ms, 0.0)), 0, _TOP_PX))
    if not last:
        parts.append(svg.vertical("step-line", scale(max(bar.end_ms, 0.0)), bottom, ROW_PX))
    parts.append(_value(bar, low, low + width))
    return svg.drawing(*parts, height=ROW_PX, cls="plot")


def _value(bar: FallBar, low: float, high: float) -> Markup:
    cls = "strong" if bar.total else ""
    if high < (_ROOM_RIGHT_TOTAL if bar.total else _ROOM_RIGHT):
        return svg.text(bar.value, high, _TOP_PX + 12.5, cls=f"{cls} halo".strip(), dx=7)
    if bar.total and high - low >= _INSIDE_FROM:
        return svg.text(bar.value, high, _TOP_PX + 12.5, cls="strong on-total", anchor="end", dx=-7)
    return svg.text(bar.value, low, _TOP_PX + 12.5, cls=f"{cls} halo".strip(), anchor="end", dx=-7)


@dataclass(frozen=True, slots=True)
class StepPart:
    """A part of a step bar; `word` is what it is called inside the bar."""

    cls: str
    word: str
    value_ms: float


def step_bar(scale: Scale, parts: Sequence[StepPart], mark_ms: float | None) -> Markup:
    """Return one step as a stacked bar; a dashed line marks `mark_ms`, the measured step."""
    drawn: list[str] = [scale.grid(0, _STEP_PX)]
    labels: list[str] = []
    at = 0.0
    for part in parts:
        if part.value_ms <= 0:
            continue
        x, width = scale(at), scale(part.value_ms)
        drawn.append(svg.rect(part.cls, x, width, _STEP_TOP_PX, _STEP_BAR_PX))
        value = units.ms(part.value_ms)
        labels.append(
            svg.inside_label(
                f"{part.word} {value}{units.NBSP}ms",
                value,
                x,
                width,
                _STEP_TOP_PX + 15.5,
                cls=f"in {_ON.get(part.cls, 'on-page')}",
            )
        )
        at += part.value_ms
    if mark_ms is not None:
        drawn.append(svg.vertical("ceiling", scale(mark_ms), 0, _STEP_PX - 4))
    return svg.drawing(*drawn, *labels, height=_STEP_PX, cls="plot")


_ON = {"compute": "on-compute", "transfer": "on-comm", "host": "on-compute"}


def curve_bar(
    scale: Scale,
    step_ms: float,
    interval_ms: Sequence[float] | None,
    ideal_ms: float | None,
    *,
    measured: bool,
) -> Markup:
    """Return the step of one number of ranks: dashed where it is projected; a line marks the ideal."""
    cls = "muted" if measured else "outline dashed"
    parts: list[str] = [scale.grid(0, 22), svg.rect(cls, 0.0, scale(step_ms), 3, 14)]
    if ideal_ms is not None:
        parts.append(svg.vertical("ceiling", scale(ideal_ms), 0, 20))
    if interval_ms is not None and not measured:
        parts.append(svg.whisker(scale, interval_ms[0], interval_ms[1], 10))
    return svg.drawing(*parts, height=22, cls="plot")


def change_bar(
    scale: Scale, change_ms: float, interval_ms: Sequence[float] | None, cls: str
) -> Markup:
    """Return a change around the middle of the plot: to the right longer, to the left shorter."""
    half = scale.end

    def place(value: float) -> float:
        return 0.5 + max(min(value / half, 1.0), -1.0) / 2

    low, high = sorted((place(0.0), place(change_ms)))
    parts: list[str] = [
        svg.vertical("step-line", 0.5, 0, 18),
        svg.rect(cls, low, high - low, 4, 10),
    ]
    if interval_ms is not None:
        first, last = place(interval_ms[0]), place(interval_ms[1])
        parts.append(
            svg.element(
                "g",
                svg.element("line", x1=svg.pct(first), x2=svg.pct(last), y1=9, y2=9),
                svg.element("line", x1=svg.pct(first), x2=svg.pct(first), y1=5, y2=13),
                svg.element("line", x1=svg.pct(last), x2=svg.pct(last), y1=5, y2=13),
                cls="whisker",
            )
        )
    return svg.drawing(*parts, height=18, cls="plot")


def spark(steps_ms: Sequence[float], steady: Sequence[bool], width_px: int = 220) -> Markup:
    """Return step times as bars from 0, those that do not count outlined; at most 110 of them."""
    step = max(1, -(-len(steps_ms) // 110))
    groups = [range(at, min(at + step, len(steps_ms))) for at in range(0, len(steps_ms), step)]
    values = [sorted(steps_ms[i] for i in group)[len(group) // 2] for group in groups]
    counted = [any(steady[i] for i in group) for group in groups]
    largest = max(values, default=0.0)
    if largest <= 0:
        return Markup("")
    width = min(width_px / len(values), 9.0)
    high = 22
    paths = {True: [], False: []}  # type: dict[bool, list[str]]
    for at, (value, counts) in enumerate(zip(values, counted, strict=True)):
        top = max(high * value / largest, 1.0)
        paths[counts].append(
            f"M{svg.number(at * width)} {high}v-{svg.number(top)}"
            f"h{svg.number(max(width - 1, 0.7))}v{svg.number(top)}z"
        )
    drawn = [
        svg.element("path", cls="muted" if counts else "outline", d="".join(path))
        for counts, path in paths.items()
        if path
    ]
    return svg.drawing(*drawn, height=high, width=str(width_px))
