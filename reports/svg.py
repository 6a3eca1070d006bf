"""The pieces of which every chart is made: inline SVG without viewBox, x in percent, y in px.

So text keeps its size at any width. Colours and textures come from classes of report.css: a chart
never names a colour, and follows the theme and the printer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from trace_analyzer.reports import units
from trace_analyzer.reports.names import visible

# Plot widths in px at which a label must fit: below 720 px, and on a wide screen; in print a plot
# has about half of its width on a wide screen.
NARROW_PX, WIDE_PX = 330.0, 860.0
PRINT_SHARE = 0.55
_CHARACTER_PX = 6.7  # of 12 px semibold
_PADDING_PX = 10
_APART_PX = 6  # between labels of an axis


def number(value: float) -> str:
    """Return a coordinate with at most two decimals and no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"


def pct(fraction: float) -> str:
    """Return a fraction of the plot's width as an SVG length."""
    return f"{number(100.0 * fraction)}%"


def element(tag: str, *children: str, **attributes: str | float | None) -> Markup:
    """Return one SVG element; `cls` is the class, "_" in names becomes "-", None is left out.

    Children are markup, or text that is made visible and escaped here.
    """
    parts = [f"<{tag}"]
    for key, value in attributes.items():
        if value is None:
            continue
        name = "class" if key == "cls" else key.replace("_", "-")
        shown = visible(value) if isinstance(value, str) else number(value)
        parts.append(f' {name}="{escape(shown)}"')
    body = "".join(
        child if isinstance(child, Markup) else str(escape(visible(child))) for child in children
    )
    parts.append(f">{body}</{tag}>" if body else "/>")
    return Markup("".join(parts))  # noqa: S704 - every part was escaped above


def join(parts: Sequence[str]) -> Markup:
    """Return pieces of markup, one after the other."""
    return Markup("").join(parts)


def drawing(
    *children: str, height: float, cls: str = "", label: str = "", width: str = "100%"
) -> Markup:
    """Return an svg of full width; with `label` it is an image for readers, else it is hidden."""
    spoken: dict[str, str] = (
        {"role": "img", "aria_label": label} if label else {"aria_hidden": "true"}
    )
    return element(
        "svg", *children, cls=cls or None, width=width, height=height, focusable="false", **spoken
    )


def rect(cls: str, x: float, width: float, y: float, height: float) -> Markup:
    """Return a bar: x and width as fractions of the plot, y and height in px."""
    return element("rect", cls=cls, x=pct(x), width=pct(width), y=y, height=height)


def vertical(cls: str, x: float, top: float, bottom: float) -> Markup:
    """Return a vertical line at a fraction of the plot."""
    return element("line", cls=cls, x1=pct(x), x2=pct(x), y1=top, y2=bottom)


def text(
    content: str,
    x: float,
    y: float,
    *,
    cls: str = "",
    anchor: str = "",
    dx: float | None = None,
) -> Markup:
    """Return text with its baseline at y px; `anchor` is "middle" or "end"."""
    return element(
        "text", content, cls=cls or None, x=pct(x), y=y, dx=dx, text_anchor=anchor or None
    )


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale from 0 to the last tick."""

    ticks: tuple[float, ...]
    unit: str = "ms"

    @classmethod
    def to(cls, largest: float, unit: str = "ms") -> Scale:
        """Return the scale from 0 to the next round number above `largest`."""
        return cls(tuple(units.nice_ticks(largest)), unit)

    @property
    def end(self) -> float:
        """The value at the right edge."""
        return self.ticks[-1]

    def __call__(self, value: float) -> float:
        """Return the position of a value as a fraction of the plot."""
        return value / self.end

    def grid(self, top: float, bottom: float) -> Markup:
        """Return the vertical grid lines."""
        return join([vertical("grid", self(tick), top, bottom) for tick in self.ticks])

    def labels(self, y: float, plot_px: float = NARROW_PX) -> Markup:
        """Return the tick labels, with the unit at the first and the last.

        A label that would touch the last one in a plot of `plot_px` is left out.
        """
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else self.end
        last_px = _bare_px(f"{units.tick_label(self.end, step)}{units.NBSP}{self.unit}")
        shown = []
        for position, tick in enumerate(self.ticks):
            half_px = _bare_px(units.tick_label(tick, step)) / 2
            touches = (1 - self(tick)) * plot_px < last_px + half_px + _APART_PX
            if touches and 0 < position < len(self.ticks) - 1:
                continue
            last = position == len(self.ticks) - 1
            label = units.tick_label(tick, step)
            if position == 0 or last:
                label = f"{label}{units.NBSP}{self.unit}"
            anchor = "" if position == 0 else "end" if last else "middle"
            shown.append(text(label, self(tick), y, cls="axis", anchor=anchor))
        return join(shown)

    def axis(self) -> Markup:
        """Return the axis as a drawing of its own: short ticks and labels below them."""
        return drawing(self.grid(0, 5), self.labels(18), height=22, cls="plot")


def whisker(scale: Scale, low: float, high: float, y: float) -> Markup:
    """Return an interval: a line with caps, drawn twice so that it has a halo of the page."""
    first, last = scale(max(low, 0.0)), scale(min(high, scale.end))
    line = [
        element("line", x1=pct(first), x2=pct(last), y1=y, y2=y),
        element("line", x1=pct(first), x2=pct(first), y1=y - 4, y2=y + 4),
        element("line", x1=pct(last), x2=pct(last), y1=y - 4, y2=y + 4),
    ]
    return element("g", *line, cls="whisker-halo") + element("g", *line, cls="whisker")


def text_px(content: str) -> float:
    """Return about how wide a chart label is."""
    return len(content) * _CHARACTER_PX + _PADDING_PX


def _bare_px(content: str) -> float:
    return len(content) * _CHARACTER_PX


def characters(width_px: float) -> int:
    """Return how many characters of a chart label fit into a width."""
    return max(0, int((width_px - _PADDING_PX) / _CHARACTER_PX))


def where_it_fits(content: str, width: float, wide_px: float) -> str | None:
    """Return the class of a label that needs room: "" everywhere, None nowhere.

    `width` is its share of a plot that is `wide_px` wide on a wide screen. "fit-p" is hidden on
    narrow screens, "fit-w" on medium ones and in print too.
    """
    need = text_px(content)
    if need <= width * min(NARROW_PX, wide_px):
        return ""
    if need <= width * wide_px * PRINT_SHARE:
        return "fit-p"
    return "fit-w" if need <= width * wide_px else None


def inside_label(
    content: str,
    short: str,
    x: float,
    width: float,
    y: float,
    *,
    cls: str,
    wide_px: float = WIDE_PX,
) -> Markup:
    """Return the label of a bar from 10 % of the plot on, where it fits; `short` where only that fits."""
    if width < 0.1:
        return Markup("")
    seen = where_it_fits(content, width, wide_px)
    middle = x + width / 2
    shown = Markup("")
    if seen is not None:
        shown += text(content, middle, y, cls=f"{cls} {seen}".strip(), anchor="middle")
    if short and seen != "" and where_it_fits(short, width, wide_px) == "":
        instead = {"fit-p": " only-n", "fit-w": " only-m", None: ""}[seen]
        shown += text(short, middle, y, cls=cls + instead, anchor="middle")
    return shown
