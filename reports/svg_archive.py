"""The small charts of the archive index: steps of a run, its gain, and a job over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup

from trace_analyzer.archive import JobHistory, JobRun
from trace_analyzer.reports import units
from trace_analyzer.reports.svg import (
    Scale,
    drawing,
    element,
    join,
    number,
    pct,
    rect,
    text,
    whisker,
)

_SPARK_PX, _SPARK_HIGH_PX = 104, 20
_GAIN_HIGH_PX = 14
_CHART_PX, _BASE_PX, _TOP_PX = 104, 84, 8
_LEFT, _RIGHT = 0.01, 0.99  # of the plot: room for the first and the last mark


def spark(steps_ms: Sequence[float]) -> Markup:
    """Return the steps of a run as bars from 0; the numbers stand in the run's report."""
    largest = max(steps_ms)
    width = min(_SPARK_PX / len(steps_ms), 0.085 * _SPARK_PX)
    path = []
    for position, step in enumerate(steps_ms):
        high = max(_SPARK_HIGH_PX * step / largest, 1.0) if largest > 0 else 1.0
        path.append(f"M{number(position * width)} {_SPARK_HIGH_PX}v-{number(high)}")
        path.append(f"h{number(max(width - 1, 1))}v{number(high)}z")
    bars = element("path", cls="muted", d="".join(path))
    return drawing(bars, height=_SPARK_HIGH_PX, width=f"{_SPARK_PX}")


def gain(scale: Scale, value_ms: float, interval_ms: Sequence[float] | None, kind: str) -> Markup:
    """Return a gain as a bar on the scale of all rows, with its interval."""
    bar = rect("bad" if kind == "fault" else "muted", 0.0, scale(max(value_ms, 0.0)), 2, 10)
    middle = _GAIN_HIGH_PX / 2
    ends = whisker(scale, interval_ms[0], interval_ms[1], middle) if interval_ms else ""
    return drawing(bar, ends, height=_GAIN_HIGH_PX)


def history(job: JobHistory, label: str) -> Markup:
    """Return the step times of a job over time: one mark a run, ▲ where it has a cause."""
    scale = Scale.to(max(run.step_ms for run in job.runs))
    moments = [_moment(run) for run in job.runs]
    known = [moment for moment in moments if moment is not None]
    if len(known) < len(moments) or max(known) == min(known):
        # Without dates that can be compared the runs stand side by side.
        places = [index / max(len(moments) - 1, 1) for index in range(len(moments))]
    else:
        span = max(known) - min(known)
        places = [(moment - min(known)) / span for moment in known]
    x = [_LEFT + place * (_RIGHT - _LEFT) for place in places]
    y = [_BASE_PX - scale(run.step_ms) * (_BASE_PX - _TOP_PX) for run in job.runs]
    parts = [
        element(
            "line", cls="grid", x1="0%", x2="100%", y1=_high(scale, tick), y2=_high(scale, tick)
        )
        for tick in scale.ticks
    ]
    lines = zip(x, y, x[1:], y[1:], strict=False)
    parts += [
        element("line", cls="trend", x1=pct(a), y1=b, x2=pct(c), y2=d) for a, b, c, d in lines
    ]
    parts += [_mark(run, at, high) for run, at, high in zip(job.runs, x, y, strict=True)]
    parts.append(text(_day(job.runs[0].started), _LEFT, _CHART_PX - 4, cls="axis"))
    parts.append(text(_day(job.runs[-1].started), _RIGHT, _CHART_PX - 4, cls="axis", anchor="end"))
    return drawing(join(parts), height=_CHART_PX, label=label)


def history_axis(job: JobHistory) -> Markup:
    """Return the vertical axis of `history`: ms from 0, drawn beside it."""
    scale = Scale.to(max(run.step_ms for run in job.runs))
    step = scale.ticks[1] - scale.ticks[0]
    shown = (scale.ticks[0], scale.ticks[-1])
    labels = [
        text(units.tick_label(tick, step) + units.NBSP + "ms", 1.0, _high(scale, tick) + 4,
             cls="axis", anchor="end")
        for tick in shown
    ]  # fmt: skip
    return drawing(join(labels), height=_CHART_PX)


def _high(scale: Scale, value_ms: float) -> float:
    return _BASE_PX - scale(value_ms) * (_BASE_PX - _TOP_PX)


def _mark(run: JobRun, x: float, y: float) -> Markup:
    if run.cause is None or run.state == "no-verdict":
        return element("circle", cls="run", cx=pct(x), cy=y, r=3)
    # A triangle keeps its shape at any width: a path cannot stand at a percentage, a nested svg can.
    triangle = element("path", cls="cause", d="M-5 4L0 -5L5 4z")
    return element("svg", triangle, x=pct(x), y=y, focusable="false")


def _moment(run: JobRun) -> float | None:
    try:
        moment = datetime.fromisoformat(run.started)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _day(started: str) -> str:
    return started[:10]


__all__ = ["gain", "history", "history_axis", "spark"]
