"""DATA004 unsharded-data.

## What it finds
Several ranks draw from the whole data set with a random sampler, where each should have a share.

## Why it costs
No step is slower, but the ranks do the same work: an epoch takes as many steps as on one GPU, and
scaling efficiency is lost where step times do not show it.

## How it is measured
The type of the loader's sampler, where `trace-analyzer collect` recorded the settings: PyTorch's own
`RandomSampler` shares nothing between ranks. Or Python stacks in the loader: a batch sampler that
takes its indices from another sampler's generator shows both as frames inside each other;
`DistributedSampler` hands out a list and shows none.

## When it is wrong
Tensor-parallel or pipeline ranks of one replica read the same data on purpose. Libraries that shard
the batches of such a sampler (Accelerate's) are recognised by their frames, others are not.

## What to do
`DataLoader(..., sampler=DistributedSampler(dataset), shuffle=False)`, and `sampler.set_epoch(epoch)`
at the beginning of every epoch.

## References
torch.utils.data.distributed.DistributedSampler documentation.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.tables import HostCategory

if TYPE_CHECKING:
    from trace_analyzer.model import Rank

_SAMPLER = re.compile(r"utils[/\\]data[/\\]sampler\.py\((\d+)\): __iter__$")
_SHARDING = re.compile(r"accelerate[/\\]data_loader\.py|Shard|[Dd]istributed_?[Ss]ampler")
# Not SequentialSampler: a loader with a batch sampler of its own reports that, too.
_RANDOM = "RandomSampler"
LEAST_FRAMES = 2


def find(context: Context) -> Answer:
    """Return one cause for all ranks that draw from the whole data set."""
    world = context.study.run.world_size or len(context.ranks)
    if world < 2:
        return NotApplicable(reason="one rank was recorded", needs="a run of several ranks")
    seen = {number: _evidence(context, number) for number in context.ranks}
    known = {number: text for number, text in seen.items() if text is not None}
    if not known:
        return NotApplicable(
            reason="neither settings nor stacks show the loader's sampler",
            needs="a bundle of `trace-analyzer collect`, or torch.profiler with `with_stack=True`",
        )
    chosen = {number: text for number, text in known.items() if text}
    if len(chosen) < max(2, len(known)):
        return Passed(reason="the loader's sampler is no random sampler over the whole data set")
    return [
        Cause(
            title=f"Each of {world} ranks draws from the whole data set: nothing shards it.",
            ranks=tuple(chosen),
            ceiling_ns=None,
            proof=f"On {rank_list(chosen)} {next(iter(chosen.values()))}.",
            rival="Not a DistributedSampler. It has another type and shows no such frame.",
            limits="Ranks of one tensor- or pipeline-parallel replica read the same data on purpose.",
            evidence=(
                Evidence(
                    title="Where the batches' indices come from",
                    columns=["rank", "evidence"],
                    rows=[[number, text] for number, text in chosen.items()],
                ),
            ),
            actions=(
                (
                    "`DataLoader(dataset, sampler=DistributedSampler(dataset), shuffle=False)`, and "
                    "`sampler.set_epoch(epoch)` in every epoch."
                ),
                "Check that steps an epoch times ranks times batch equals the data set's size.",
            ),
            explains_late=False,
            size=1.0 - 1.0 / world,
        )
    ]


def _evidence(context: Context, number: int) -> str | None:
    """Return what shows that a rank's data are not sharded, "" if they are, None if nothing tells."""
    sampler = context.study.run.environment.get(number, {}).get("setting.dataloader.sampler")
    if sampler is not None:
        return "the loader's sampler is a RandomSampler" if sampler == _RANDOM else ""
    frames = _nested(context.ranks[number].rank)
    if frames is None:
        return None
    if frames < LEAST_FRAMES:
        return ""
    return f"{frames} indices were drawn from a random sampler's generator"


def _nested(rank: Rank) -> int | None:
    """Return how many frames of one sampler lie in those of another; None where no stack tells."""
    events = rank.events
    if any(_SHARDING.search(text) is not None for text in rank.names):
        return 0
    line = np.zeros(len(rank.names), dtype=np.int64)
    for position, text in enumerate(rank.names):
        match = _SAMPLER.search(text)
        if match:
            line[position] = int(match.group(1))
    rows = np.flatnonzero((events.category == HostCategory.PYTHON) & (line[events.name] > 0))
    if not len(rows):
        return None
    outer = intervals.outermost(events.start_ns[rows], events.end_ns[rows])
    return int(np.sum(~outer))


RULE = Rule(
    code="DATA004",
    name="unsharded-data",
    kind="fault",
    status="experimental",
    needs="the loader's settings, or Python stacks in it, of several ranks",
    find=find,
    evidence_only=True,
)
