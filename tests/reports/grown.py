"""Timelines as large as those of long runs on many ranks, grown from the shipped sample."""

from __future__ import annotations

from functools import cache

import numpy as np

from tests.traces import ROOT
from trace_analyzer.analyses.study import study
from trace_analyzer.assembly import build_timeline
from trace_analyzer.readers.discovery import open_run
from trace_analyzer.schema import NA_INT64, Int64Array, is_na
from trace_analyzer.timeline import Lane, RankTimeline, Slices, StepSpan, Timeline


@cache
def sample() -> Timeline:
    return build_timeline(study(open_run(str(ROOT / "samples" / "slow_cpu_rank"))))


def grown(ranks: int, times: int, *, slices: int | None = None) -> Timeline:
    """Repeat the sample's five steps `times` times on so many ranks, every length changed by up to 2 %.

    With `slices`, the lanes are cut so that this many are left in all.
    """
    base = sample()
    dice = np.random.default_rng(7)
    span = base.span_ns[1]
    keep = 1.0
    if slices is not None:
        have = sum(len(lane.slices) for rank in base.ranks for lane in rank.lanes)
        keep = slices / (have * times * ranks / len(base.ranks))
        assert keep <= 1.0, "not so many slices in so many steps"
    made = []
    for number in range(ranks):
        model = base.ranks[0 if number % 2 == 0 else 1]
        lanes = tuple(_lane(lane, times, span, dice, keep) for lane in model.lanes)
        count = len(model.steps)
        steps = tuple(
            StepSpan(
                index=model.steps[0].index + turn * count + at,
                start_ns=item.start_ns + turn * span,
                end_ns=item.end_ns + turn * span,
            )
            for turn in range(times)
            for at, item in enumerate(model.steps)
        )
        made.append(
            RankTimeline(
                rank=number,
                lanes=lanes,
                steps=steps,
                window_start_ns=model.window_start_ns,
                gpu=f"GPU {number % 8}",
                host=f"node{number // 8}",
            )
        )
    return Timeline(
        names=base.names, ranks=tuple(made), details=base.details, shown_step=base.shown_step
    )


def _lane(lane: Lane, times: int, span: int, dice: np.random.Generator, keep: float) -> Lane:
    one = lane.slices
    rows = np.tile(np.arange(len(one)), times)
    shift = np.repeat(np.arange(times) * span, len(one))
    start, end = one.start_ns[rows] + shift, one.end_ns[rows] + shift
    length = end - start
    end = start + np.maximum((length * dice.uniform(0.98, 1.0, len(rows))).astype(np.int64), 0)
    start = start + ((end - start) * dice.uniform(0, 0.02, len(rows))).astype(np.int64)

    def moved(values: Int64Array) -> Int64Array:
        return np.where(is_na(values[rows]), NA_INT64, values[rows] + shift)

    chosen = np.sort(dice.permutation(len(rows))[: int(np.ceil(keep * len(rows)))])
    built = Slices.from_columns(
        len(rows),
        start_ns=start,
        end_ns=end,
        kind=one.kind[rows],
        name=one.name[rows],
        transfer_start_ns=np.where(
            is_na(one.transfer_start_ns[rows]),
            NA_INT64,
            np.clip(moved(one.transfer_start_ns), start, end),
        ),
        bytes=one.bytes[rows],
        detail=one.detail[rows],
        launch_delay_ns=one.launch_delay_ns[rows],
    )
    return Lane(kind=lane.kind, label=lane.label, slices=built.take(chosen), level=lane.level)
