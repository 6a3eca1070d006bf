"""Bars on one ms scale: the step ruler, the gains of findings, the parts of a step, twin bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from trace_analyzer.reports import svg, units
from trace_analyzer.reports.svg import Scale

RULER_PX = 470.0
GAIN_PX = 310.0  # the bars of findings, on a wide screen
_RULER_HEIGHT = 16.0
_ROOM_RIGHT = 0.68  # a bar that ends before this has room for a label behind it


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a stacked bar; `cls` is its texture, `word` what it is called inside the bar."""

    cls: str
    word: str
    value_ms: float


def traced_bar(scale: Scale, traced_ms: float, unprofiled_ms: float | None) -> Markup:
    """Return the step as traced: outlined to the unprofiled time, dashed beyond it."""
    solid = traced_ms if unprofiled_ms is None else min(traced_ms, unprofiled_ms)
    parts = [svg.rect("outline", 0, scale(solid), 1, 14)]
    if unprofiled_ms is not None and unprofiled_ms > 0:
        label = f"{units.signed_percent(traced_ms / unprofiled_ms - 1)} profiler"
        beyond = scale(traced_ms) - scale(solid)
        if beyond > 0:
            parts.append(svg.rect("outline dashed", scale(solid), beyond, 1, 14))
        inside = svg.inside_label(
            label,
            label.split(" p", maxsplit=1)[0],
            scale(solid),
            beyond,
            12,
            cls="note",
            wide_px=RULER_PX,
        )
        end = scale(max(traced_ms, solid))
        if inside:
            parts.append(inside)
        elif end < _ROOM_RIGHT:
            parts.append(svg.text(label, end, 12, cls="note", dx=6))
        else:
            parts.append(svg.text(label, scale(solid), 12, cls="note", anchor="end", dx=-6))
    return svg.drawing(*parts, height=_RULER_HEIGHT, cls="plot")


def base_bar(
    scale: Scale,
    base_ms: float,
    kept_ms: float | None,
    *,
    predicted: bool,
    interval_ms: Sequence[float] | None = None,
) -> Markup:
    """Return the unprofiled step: what stays in grey, what can be given back in red.

    A predicted time has a dashed outline and its interval.
    """
    kept = base_ms if kept_ms is None else min(max(kept_ms, 0.0), base_ms)
    parts = [svg.rect("muted", 0, scale(kept), 1, 14)]
    gain = base_ms - kept
    if gain > 0:
        parts.append(svg.rect("bad", scale(kept), scale(gain), 1, 14))
        label = f"{units.ms(gain)}{units.NBSP}ms recoverable"
        inside = svg.inside_label(
            label, "", scale(kept), scale(gain), 12, cls="on-bad", wide_px=RULER_PX
        )
        if inside and "fit-" not in inside:
            parts.append(inside)
        else:
            end = scale(max([base_ms, *(interval_ms or ())]))
            parts.append(
                svg.text(label, end, 12, cls="gain", dx=6)
                if end < _ROOM_RIGHT
                else svg.text(label, scale(kept), 12, cls="gain halo", anchor="end", dx=-6)
            )
    if predicted:
        parts.append(svg.rect("outline dashed", 0, scale(base_ms), 1, 14))
        if interval_ms:
            parts.append(svg.whisker(scale, interval_ms[0], interval_ms[1], 8))
    return svg.drawing(*parts, height=_RULER_HEIGHT, cls="plot")


def replayed_bar(scale: Scale, value_ms: float, interval_ms: Sequence[float] | None) -> Markup:
    """Return a replayed step time with its interval."""
    parts = [svg.rect("muted", 0, scale(value_ms), 1, 14)]
    if interval_ms:
        parts.append(svg.whisker(scale, interval_ms[0], interval_ms[1], 8))
    return svg.drawing(*parts, height=_RULER_HEIGHT, cls="plot")


def threshold_bar(scale: Scale, gain_ms: float, line_ms: float) -> Markup:
    """Return the largest single gain against the 3 % line."""
    shown = max(gain_ms, 0.0)
    label = f"3{units.NBSP}% = {units.ms(line_ms)}{units.NBSP}ms"
    return svg.drawing(
        svg.rect("bad", 0, scale(shown), 1, 14),
        svg.vertical("ceiling", scale(line_ms), 0, 16),
        svg.text(label, scale(max(line_ms, shown)), 12, cls="note", dx=6),
        height=_RULER_HEIGHT,
        cls="plot",
    )


def gain_bar(
    scale: Scale,
    gain_ms: float | None,
    interval_ms: Sequence[float] | None,
    ceiling_ms: float | None,
) -> Markup:
    """Return the bar of a finding: gain, interval as whisker, ceiling as dashed line."""
    parts: list[str] = [scale.grid(0, 26)]
    if gain_ms is not None and gain_ms > 0:
        parts.append(svg.rect("bad", 0, scale(gain_ms), 7, 12))
    if ceiling_ms is not None:
        parts.append(svg.vertical("ceiling", scale(ceiling_ms), 4, 22))
    if interval_ms:
        parts.append(svg.whisker(scale, interval_ms[0], interval_ms[1], 13))
    return svg.drawing(*parts, height=26, cls="plot")


def gain_axis(scale: Scale) -> Markup:
    """Return the axis above the findings."""
    return svg.drawing(scale.labels(11, GAIN_PX), scale.grid(17, 22), height=22, cls="plot")


_INSIDE = {
    "compute": "on-compute",
    "transfer": "on-comm",
    "comm": "on-comm",
    "unsplit": "on-stripes",
    "wait": "on-stripes",
    "copy": "on-stripes",
    "idle": "on-page",
}


def stacked_bar(scale: Scale, parts: Sequence[Part], hidden_ms: float) -> Markup:
    """Return one rank's step: its parts from the left, hidden communication as a strip below."""
    drawn: list[str] = [scale.grid(0, 38)]
    labels: list[str] = []
    at = 0.0
    for part in parts:
        if part.value_ms <= 0:
            continue
        x, width = scale(at), scale(part.value_ms)
        drawn.append(svg.rect(part.cls, x, width, 4, 22))
        value = units.ms(part.value_ms)
        labels.append(
            svg.inside_label(
                f"{part.word} {value}{units.NBSP}ms",
                value,
                x,
                width,
                19.5,
                cls=f"in {_INSIDE[part.cls]}",
            )
        )
        at += part.value_ms
    if hidden_ms > 0:
        drawn.append(svg.rect("transfer", 0, scale(hidden_ms), 29, 4))
    return svg.drawing(*drawn, *labels, height=38, cls="plot")


def strip_bar(scale: Scale, parts: Sequence[Part]) -> Markup:
    """Return one rank's step as a strip of 6 px without labels."""
    drawn: list[str] = []
    at = 0.0
    for part in parts:
        if part.value_ms > 0:
            drawn.append(svg.rect(part.cls, scale(at), scale(part.value_ms), 0.5, 4.5))
            at += part.value_ms
    return svg.join(drawn)


def strips(scale: Scale, rows: Sequence[Sequence[Part]], label: str) -> Markup:
    """Return many ranks as 6 px rows, in the order given."""
    pitch = 6
    drawn = [
        svg.element("svg", strip_bar(scale, parts), y=pitch * row, width="100%", height=6)
        for row, parts in enumerate(rows)
    ]
    height = pitch * len(rows)
    return svg.drawing(scale.grid(0, height), *drawn, height=height, cls="plot strips", label=label)


def twin_bar(scale: Scale, solid_ms: float | None, outline_ms: float | None) -> Markup:
    """Return two bars, one above the other: solid the first value, outlined the second."""
    if solid_ms is None and outline_ms is None:
        return Markup("")
    drawn = [svg.rect("compute", 0, scale(solid_ms or 0.0), 1, 5)]
    if outline_ms is not None:
        drawn.append(svg.rect("compute-outline", 0, scale(outline_ms), 8, 5))
    return svg.drawing(*drawn, height=14, cls="plot twin")


def series_bars(
    bars: Sequence[tuple[float | None, bool]], unit: str, *, label: str, height: int = 52
) -> Markup:
    """Return one bar a step from zero; marked ones are red, unknown ones leave a gap."""
    scale = Scale.to(max((value for value, _ in bars if value is not None), default=0.0), unit)
    width = 1 / max(len(bars), 1)
    top = f"{units.tick_label(scale.end, scale.end)}{units.NBSP}{unit}"
    drawn: list[Markup] = [
        svg.element("line", cls="grid", x1="0%", x2="100%", y1=0.5, y2=0.5),
        svg.element("line", cls="step-line", x1="0%", x2="100%", y1=height - 0.5, y2=height - 0.5),
    ]
    for place, (value, marked) in enumerate(bars):
        if value is not None and value > 0:
            tall = max(scale(value) * (height - 1), 1.0)
            cls = "bad" if marked else "muted"
            drawn.append(svg.rect(cls, (place + 0.1) * width, 0.8 * width, height - tall, tall))
    drawn.append(svg.text(top, 0.0, 12, cls="axis halo", dx=2))
    return svg.drawing(*drawn, height=height, cls="plot", label=label)
