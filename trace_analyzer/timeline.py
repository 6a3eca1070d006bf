"""The run as lanes of slices on one clock: what the report draws.

A `Timeline` is filled by the assembly step, `timeline_from(run, steps, collectives, clock)`, and
only drawn by the reports. How to fill it:

- **Clock.** All times are int64 ns on one clock whose zero is the earliest event drawn; ranks are
  moved by the clock fit where there is one, else by their clock base, else by aligning the starts
  of their windows. `RankTimeline.window_start_ns` is the first GPU operation of the rank on this
  clock: ranges of findings count from there.
- **Lanes**, in drawing order: host ranges (`LaneKind.RANGES`, outermost user ranges: forward,
  backward, optimizer), every host thread that launches GPU work (`LaneKind.HOST`, one lane a level
  of nesting), then every GPU stream (`LaneKind.STREAM`, or `LaneKind.COMM` where all its work is
  communication). Slices of one lane are ordered by start and do not overlap.
- **Steps.** One `StepSpan` a rank and step, by the device boundaries of the partition.
- **Collectives.** `transfer_start_ns` is `end − transfer` of a matched collective, else missing:
  [start, transfer_start) waits for peers and [transfer_start, end) moves data.
- **Details.** What slices of one launch shape share (grid, block, size, type, group) is kept once,
  in `Timeline.details`; a slice refers to it by position.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Self

import numpy as np

from trace_analyzer.schema import Int8Array, Int32Array, Int64Array, Table, column, is_na


class SliceKind(IntEnum):
    """What a slice is, and so how it is painted."""

    COMPUTE = 0
    COMM = 1
    COPY = 2
    HOST = 3  # an operator or a CUDA call
    RANGE = 4  # a named stretch of the program: forward, backward
    BLOCKED = 5  # a call in which the host does nothing but wait


class LaneKind(IntEnum):
    """What a lane shows, and so how high it is."""

    RANGES = 0
    HOST = 1
    STREAM = 2
    COMM = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Slices(Table):
    """The slices of one lane, in order of start, without overlap."""

    start_ns: Int64Array = column("int64", "ns", "start on the timeline's clock")
    end_ns: Int64Array = column("int64", "ns", "end on the timeline's clock; never before start")
    kind: Int8Array = column("int8", "", "SliceKind")
    name: Int32Array = column("int32", "", "position in the timeline's names")
    transfer_start_ns: Int64Array = column(
        "int64", "ns", "where a matched collective stops waiting", nullable=True
    )
    bytes: Int64Array = column("int64", "bytes", "size of a copy or collective", nullable=True)
    detail: Int32Array = column(
        "int32", "", "position in the timeline's details; GPU operations only", nullable=True
    )
    launch_delay_ns: Int64Array = column(
        "int64", "ns", "from the start of the launch call to the start on the GPU", nullable=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDetail:
    """What GPU operations of one launch shape, and of one kind of collective, have in common.

    `grid` is in blocks, `block` in threads. Of a collective: `operation`, `group` (its name and
    number of ranks), `dtype`, and `bus_factor`, bus bandwidth over algorithm bandwidth.
    """

    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    operation: str = ""
    group: str = ""
    dtype: str = ""
    bus_factor: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lane:
    """One row of the timeline. `label` says what it is: "host · main thread", "GPU · stream 7".

    `level` counts how deep a host lane lies: 0 holds the outermost operators and calls, 1 those
    inside them, and so on. The lanes of one thread follow each other and share their label.
    """

    kind: LaneKind
    label: str
    slices: Slices
    level: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpan:
    """One step of one rank on the timeline's clock."""

    index: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankTimeline:
    """The lanes of one rank; `gpu` and `host` are names, "" where unknown."""

    rank: int
    lanes: tuple[Lane, ...]
    steps: tuple[StepSpan, ...] = ()
    window_start_ns: int = 0
    gpu: str = ""
    host: str = ""

    @property
    def outer_lanes(self) -> tuple[Lane, ...]:
        """The lanes without those of operators inside other operators."""
        return tuple(lane for lane in self.lanes if lane.level == 0)

    def step(self, index: int) -> StepSpan | None:
        """Return the step of this number, or None where the rank does not have it."""
        return next((span for span in self.steps if span.index == index), None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Ranks on one clock.

    `shown_step` is the step that stands for the run (the median one); `dropped` counts slices
    that were left out, `clock_residual_ns` is how far apart the ends of matched collectives are.
    """

    names: tuple[str, ...]
    ranks: tuple[RankTimeline, ...]
    details: tuple[WorkDetail, ...] = ()
    shown_step: int | None = None
    dropped: int = 0
    clock_residual_ns: int | None = None

    @classmethod
    def empty(cls) -> Self:
        """Return the timeline of a run without events."""
        return cls(names=(), ranks=())

    @property
    def span_ns(self) -> tuple[int, int]:
        """First start and last end over all lanes; (0, 0) without slices."""
        slices = [lane.slices for rank in self.ranks for lane in rank.lanes if len(lane.slices)]
        if not slices:
            return (0, 0)
        starts = min(int(part.start_ns[0]) for part in slices)
        return (starts, max(int(part.end_ns.max()) for part in slices))

    def rank(self, number: int) -> RankTimeline | None:
        """Return the rank of this number, or None where it was not recorded."""
        return next((rank for rank in self.ranks if rank.rank == number), None)

    def step_span_ns(self, index: int) -> tuple[int, int] | None:
        """Return the stretch in which any rank is in this step, or None where none is."""
        spans = [span for rank in self.ranks if (span := rank.step(index)) is not None]
        if not spans:
            return None
        return (min(span.start_ns for span in spans), max(span.end_ns for span in spans))


def waiting_ns(slices: Slices) -> Int64Array:
    """Return how long each slice waits for its peers, ns; 0 where that is not known."""
    known = ~is_na(slices.transfer_start_ns)
    return np.where(known, slices.transfer_start_ns - slices.start_ns, 0)


__all__ = [
    "Lane",
    "LaneKind",
    "RankTimeline",
    "SliceKind",
    "Slices",
    "StepSpan",
    "Timeline",
    "WorkDetail",
    "waiting_ns",
]
