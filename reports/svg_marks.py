"""What is drawn slice by slice: collectives, named ranges, blocked calls, names of kernels."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from trace_analyzer.reports import svg, units
from trace_analyzer.reports.names import cut_middle
from trace_analyzer.reports.svg_lanes import View, path_of, profile, stretched
from trace_analyzer.schema import Int64Array, is_na
from trace_analyzer.timeline import SliceKind, Slices

_MOST_BOXES = 400
_LEAST_NAME = 6  # characters
_LEAST_NAMED_PX = 40


def _merged(
    start_ns: Int64Array, end_ns: Int64Array, gap_ns: float
) -> tuple[Int64Array, Int64Array]:
    """Return intervals joined where less than `gap_ns` lies between them."""
    if not len(start_ns):
        return start_ns, end_ns
    reach = np.maximum.accumulate(end_ns)
    new = np.concatenate(([True], start_ns[1:] - reach[:-1] >= gap_ns))
    first = np.flatnonzero(new)
    last = np.concatenate((first[1:], [len(start_ns)])) - 1
    return start_ns[first], reach[last]


def few_intervals(
    start_ns: Int64Array, end_ns: Int64Array, view: View, most: int = _MOST_BOXES
) -> tuple[Int64Array, Int64Array]:
    """Return intervals for boxes: joined below a column's width, and further until `most` remain."""
    gap_ns = view.length_ns / view.columns
    merged = _merged(start_ns, end_ns, gap_ns)
    while len(merged[0]) > most:
        gap_ns *= 2
        merged = _merged(start_ns, end_ns, gap_ns)
    return merged


def comm_lane(
    slices: Slices, view: View, y: float, height: int, *, label_px: float = 0.0, most: int = 200
) -> Markup:
    """Return communication: striped where a collective waits for its peers, solid where it moves.

    A collective whose wait is not known is solid from its start. With `label_px`, the width of the
    plot on a wide screen, the longest wait carries its length where that fits.
    """
    comm = view.of_kind(slices, SliceKind.COMM)
    if not len(comm):
        return Markup("")
    split = ~is_na(comm.transfer_start_ns)
    solid_from = np.where(split, comm.transfer_start_ns, comm.start_ns)
    waits = np.flatnonzero(solid_from > comm.start_ns)
    boxes = [
        svg.rect("wait", view.x(start), view.x(end) - view.x(start), y + 0.5, height - 1)
        for start, end in zip(
            *few_intervals(comm.start_ns[waits], solid_from[waits], view, most), strict=True
        )
    ]
    per_column = view.length_ns / view.columns
    begin = np.floor((solid_from - view.start_ns) / per_column).astype(np.int64)
    end = np.ceil((comm.end_ns - view.start_ns) / per_column).astype(np.int64)
    end = np.maximum(end, begin + 1)
    marks = np.zeros(view.columns + 1, dtype=np.int64)
    np.add.at(marks, np.clip(begin, 0, view.columns), 1)
    np.add.at(marks, np.clip(end, 0, view.columns), -1)
    moving = np.cumsum(marks[:-1]) > 0
    path = profile(moving.astype(np.float64), height)
    solid = stretched(path_of(path, "transfer"), view, y, height)
    label = _longest_wait(comm, solid_from, view, y, height, label_px) if label_px else Markup("")
    return svg.join(boxes) + solid + label


def _longest_wait(
    comm: Slices, solid_from: Int64Array, view: View, y: float, height: int, label_px: float
) -> Markup:
    length_ns = solid_from - comm.start_ns
    longest = int(np.argmax(length_ns))
    if length_ns[longest] <= 0:
        return Markup("")
    x = view.x(int(comm.start_ns[longest]))
    width = view.x(int(solid_from[longest])) - x
    value = units.ms(float(length_ns[longest]) / 1e6)
    return svg.inside_label(
        f"wait {value}{units.NBSP}ms",
        value,
        x,
        width,
        y + height / 2 + 4,
        cls="in on-stripes",
        wide_px=label_px,
    )


def range_lane(
    slices: Slices, names: tuple[str, ...], view: View, y: float, height: int, label_px: float
) -> Markup:
    """Return named host ranges as outlined boxes, and blocked calls as dashed ones."""
    shown = view.of_kind(slices, SliceKind.RANGE, SliceKind.BLOCKED)
    per_column = view.length_ns / view.columns
    drawn: list[Markup] = []
    for row in np.flatnonzero(shown.end_ns - shown.start_ns >= per_column)[:_MOST_BOXES].tolist():
        x = view.x(int(shown.start_ns[row]))
        width = view.x(int(shown.end_ns[row])) - x
        blocked = shown.kind[row] == SliceKind.BLOCKED
        cls = "range dashed" if blocked else "range"
        drawn.append(svg.rect(cls, x, width, y + 0.5, height - 1))
        name = _box_name(names[int(shown.name[row])], width * label_px, blocked=bool(blocked))
        drawn.append(
            svg.inside_label(
                name, "", x, width, y + height / 2 + 4, cls="in on-page small", wide_px=label_px
            )
        )
    return svg.join(drawn)


def _box_name(name: str, width_px: float, *, blocked: bool) -> str:
    """Return a range's name cut to its box; of a blocked call that does not fit only that."""
    room = svg.characters(width_px)
    if blocked:
        full = f"{name}: blocked"
        return full if len(full) <= room else "blocked"
    return cut_middle(name, min(room, 40)) if room >= _LEAST_NAME else ""


def _wide(slices: Slices, view: View, label_px: float) -> Slices:
    """Return the kernels that are at least 40 px wide."""
    shown = view.of_kind(slices, SliceKind.COMPUTE)
    widths = (shown.end_ns - shown.start_ns) / view.length_ns * label_px
    return shown.take(np.flatnonzero(widths >= _LEAST_NAMED_PX)[:_MOST_BOXES])


def named_slices(slices: Slices, view: View, label_px: float) -> list[int]:
    """Return the names (positions) of the kernels that are wide enough to carry one."""
    return [int(name) for name in np.unique(_wide(slices, view, label_px).name)]


def slice_names(
    slices: Slices, short: dict[int, str], view: View, y: float, height: int, label_px: float
) -> Markup:
    """Return the names of kernels that are wide enough to carry one, on wide screens."""
    shown = _wide(slices, view, label_px)
    drawn = []
    for row in range(len(shown)):
        name = short[int(shown.name[row])]
        width = (shown.end_ns[row] - shown.start_ns[row]) / view.length_ns * label_px
        if svg.text_px(name) <= width:
            middle = (view.x(int(shown.start_ns[row])) + view.x(int(shown.end_ns[row]))) / 2
            cls = "in on-compute fit-w"
            drawn.append(svg.text(name, middle, y + height / 2 + 4, cls=cls, anchor="middle"))
    return svg.join(drawn)
