"""Lanes of slices: how a stretch of a timeline is painted into at most 900 columns.

Where slices are narrower than a column its height is the share of the column that is busy, so a
lane never looks busier than it was; communication is never narrower than one column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from trace_analyzer.reports import svg
from trace_analyzer.schema import BoolArray, Float64Array, Int64Array
from trace_analyzer.timeline import SliceKind, Slices

COLUMNS = 900
_GAP_COLUMNS = 3  # from this width on, slices that touch are told apart by a gap of one column


@dataclass(frozen=True, slots=True)
class View:
    """The stretch of time that a drawing shows, and in how many columns."""

    start_ns: int
    end_ns: int
    columns: int = COLUMNS

    @property
    def length_ns(self) -> int:
        """Length, at least 1 ns."""
        return max(self.end_ns - self.start_ns, 1)

    def x(self, time_ns: float) -> float:
        """Return the position of a time as a fraction of the plot, kept inside it."""
        return min(max((time_ns - self.start_ns) / self.length_ns, 0.0), 1.0)

    def edges_ns(self) -> Float64Array:
        """Return the columns' boundaries, shape (columns + 1,)."""
        return np.linspace(self.start_ns, self.end_ns, self.columns + 1)

    def overlaps(self, slices: Slices) -> BoolArray:
        """Return which slices are seen, shape of the slices."""
        seen = (slices.end_ns > self.start_ns) & (slices.start_ns < self.end_ns)
        return np.asarray(seen, dtype=np.bool_)

    def of_kind(self, slices: Slices, *kinds: SliceKind) -> Slices:
        """Return the slices of these kinds that are seen."""
        return slices.take(self.overlaps(slices) & np.isin(slices.kind, kinds))


def coverage(start_ns: Int64Array, end_ns: Int64Array, view: View) -> Float64Array:
    """Return the share of each column that is busy, in [0, 1], shape (columns,).

    `start_ns` and `end_ns` are disjoint intervals in order.
    """
    if not len(start_ns):
        return np.zeros(view.columns)
    edges = view.edges_ns()
    before = np.concatenate(([0], np.cumsum(end_ns - start_ns)))
    index = np.searchsorted(start_ns, edges, side="right")
    last = np.maximum(index - 1, 0)
    running = np.clip(edges - start_ns[last], 0, end_ns[last] - start_ns[last])
    busy = np.where(index > 0, before[last] + running, 0.0)
    share = np.diff(busy) / (view.length_ns / view.columns)
    return np.clip(share, 0.0, 1.0)


def _heights(share: Float64Array, height: int) -> npt.NDArray[np.int64]:
    """Return whole px of each column: at least one where anything is busy."""
    return np.where(share > 0, np.maximum(np.rint(share * height), 1), 0).astype(np.int64)


def _with_gaps(share: Float64Array, slices: Slices, view: View) -> Float64Array:
    """Return the coverage with the last column of every wide slice cleared if the next touches it."""
    if len(slices) < 2:
        return share
    per_column = view.length_ns / view.columns
    wide = (slices.end_ns[:-1] - slices.start_ns[:-1] >= _GAP_COLUMNS * per_column) & (
        slices.start_ns[1:] - slices.end_ns[:-1] < per_column
    )
    column = np.floor((slices.end_ns[:-1][wide] - view.start_ns) / per_column).astype(np.int64)
    column = column[(column >= 0) & (column < view.columns)]
    with_gaps = share.copy()
    with_gaps[column] = 0.0
    return with_gaps


def _outline(tops: npt.NDArray[np.int64], bottoms: npt.NDArray[np.int64]) -> str:
    """Return the path of columns that reach from `bottoms` up to `tops`, both as y in px."""
    changes = np.flatnonzero((np.diff(tops) != 0) | (np.diff(bottoms) != 0)) + 1
    first = np.concatenate(([0], changes))
    last = np.concatenate((changes, [len(tops)]))
    path: list[str] = []
    for begin, end in zip(first.tolist(), last.tolist(), strict=True):
        top, bottom = int(tops[begin]), int(bottoms[begin])
        if top < bottom:
            path.append(f"M{begin} {bottom}V{top}H{end}V{bottom}z")
    return "".join(path)


def profile(share: Float64Array, height: int) -> str:
    """Return the outline of one coverage profile: one closed line a busy stretch."""
    tops = height - _heights(share, height)
    path: list[str] = []
    open_at = False
    changes = np.flatnonzero(np.diff(tops) != 0) + 1
    for begin, end in zip([0, *changes.tolist()], [*changes.tolist(), len(tops)], strict=True):
        top = int(tops[begin])
        if top == height:
            if open_at:
                path.append(f"V{height}z")
            open_at = False
            continue
        path.append(f"V{top}H{end}" if open_at else f"M{begin} {height}V{top}H{end}")
        open_at = True
    if open_at:
        path.append(f"V{height}z")
    return "".join(path)


def path_of(path: str, cls: str) -> Markup:
    return svg.element("path", cls=cls, d=path) if path else Markup("")


def stretched(paths: Markup, view: View, y: float, height: int) -> Markup:
    """Return paths, drawn in columns × px, stretched over the plot's width."""
    if not paths:
        return Markup("")
    return svg.element(
        "svg",
        paths,
        y=y,
        width="100%",
        height=height,
        viewBox=f"0 0 {view.columns} {height}",
        preserveAspectRatio="none",
    )


def busy_lane(
    slices: Slices, view: View, y: float, height: int, *, host: bool = False, gaps: bool = True
) -> Markup:
    """Return a lane of compute and copies (or of host work) as a profile of its busy share."""
    kinds = (SliceKind.HOST,) if host else (SliceKind.COMPUTE,)
    main = view.of_kind(slices, *kinds)
    share = coverage(main.start_ns, main.end_ns, view)
    if gaps:
        share = _with_gaps(share, main, view)
    paths = [path_of(profile(share, height), "host" if host else "compute")]
    if not host:
        copies = view.of_kind(slices, SliceKind.COPY)
        on_top = coverage(copies.start_ns, copies.end_ns, view)
        low = _heights(share, height)
        high = np.minimum(low + _heights(on_top, height), height)
        paths.append(path_of(_outline(height - high, height - low), "copy-solid"))
    return stretched(svg.join(paths), view, y, height)


def mean_profile(
    ranks: Sequence[Sequence[Slices]], kind: SliceKind, view: View, y: float, height: int
) -> Markup:
    """Return the mean over ranks of the share of each column that a kind of work keeps busy."""
    total = np.zeros(view.columns)
    for lanes in ranks:
        share = np.zeros(view.columns)
        for slices in lanes:
            seen = view.of_kind(slices, kind)
            share = np.maximum(share, coverage(seen.start_ns, seen.end_ns, view))
        total += share
    cls = "compute" if kind == SliceKind.COMPUTE else "transfer"
    path = path_of(profile(total / max(len(ranks), 1), height), cls)
    return stretched(path, view, y, height)
