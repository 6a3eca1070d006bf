"""Why replayed numbers are withheld, and which steps are replayed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from trace_analyzer.analyses.replay.built import Built
from trace_analyzer.analyses.replay.program import COMM, NONE
from trace_analyzer.analyses.study import Study
from trace_analyzer.schema import is_na
from trace_analyzer.tables import CallKind

# Above these a replay explains the recording too badly to be asked what a change would give.
LARGEST_VIOLATED_SHARE = 0.10
LARGEST_UNMATCHED_SHARE = 0.02
LARGEST_UNLAUNCHED_SHARE = 0.05
# With less exposed communication than this, ranks that were not recorded hardly matter.
LARGEST_LONELY_SHARE = 0.10
# What a replay holds at most; a longer recording is replayed over its last steps.
LARGEST_OPERATIONS = 300_000
LARGEST_STEPS = 24


def lacking(study: Study) -> str:
    """Return what the recording lacks for a replay, "" if nothing."""
    if not study.ranks:
        return "no GPU operations were recorded"
    found = (_rank_lacking(study, number) for number in study.ranks)
    return next((reason for reason in found if reason), "")


def _rank_lacking(study: Study, number: int) -> str:
    item = study.ranks[number]
    rank = item.rank
    if not len(item.steps) or item.steps.partial:
        return f"rank {number} has no complete step"
    if not len(rank.calls):
        return f"rank {number} has no CUDA calls"
    inside = item.steps.operation_step >= 0
    lost = float(np.mean(is_na(rank.operations.launch)[inside])) if inside.any() else 1.0
    if lost > LARGEST_UNLAUNCHED_SHARE:
        return f"{100 * lost:.0f} % of rank {number}'s GPU operations have no launch call"
    lonely = _unmatched_share(study, number)
    if lonely > LARGEST_LONELY_SHARE:
        share = f"{100 * lonely:.0f} % of rank {number}'s step"
        return f"{share} is communication that has no partner in the recording"
    graphs = bool(np.any(rank.calls.kind == CallKind.GRAPH_LAUNCH))
    if graphs and rank.capture.graph_mode == "graph":
        return f"rank {number}'s CUDA graphs hide their kernels"
    return ""


def _unmatched_share(study: Study, number: int) -> float:
    """Return the share of exposed communication in a rank's steady steps that has no partner."""
    item = study.ranks[number]
    exposed = item.parts.comm_exposed_ns
    if study.cross is not None and number in study.cross.ranks:
        exposed = study.cross.ranks[number].exposed_unsplit_ns
    length = item.steps.length_ns
    chosen = item.steady if bool(item.steady.any()) else np.ones(len(length), dtype=np.bool_)
    return float(exposed[chosen].sum()) / max(float(length[chosen].sum()), 1.0)


def replayed_steps(study: Study, least: int) -> tuple[int, ...]:
    """Return the numbers of at least `least` steps to replay: from the first steady one, no hole."""
    common = set.intersection(*(set(item.steps.index.tolist()) for item in study.ranks.values()))
    if not study.steady.used:
        return ()
    first = min(study.steady.used)
    numbers = sorted(number for number in common if number >= first)
    if study.options.steps is not None:
        numbers = [number for number in numbers if number in set(study.steady.used)]
    holes = [k for k, (a, b) in enumerate(pairwise(numbers)) if b != a + 1]
    numbers = numbers[holes[-1] + 1 :] if holes else numbers
    counts = sum(
        np.bincount(np.maximum(item.steps.operation_step, 0), minlength=len(item.steps)).mean()
        for item in study.ranks.values()
    )
    most = max(least, min(LARGEST_STEPS, int(LARGEST_OPERATIONS / max(counts, 1.0))))
    return tuple(numbers[-most:])


def unfit(built: Built) -> str:
    """Return why the graph cannot be trusted, "" if it can."""
    comm = int(np.sum((built.program.op_class == COMM) & (built.program.op_node != NONE)))
    if len(built.parts) > 1 and built.unmatched > LARGEST_UNMATCHED_SHARE * max(comm, 1):
        return f"{built.unmatched} of {comm} communication kernels have no partner on other ranks"
    if built.violated > LARGEST_VIOLATED_SHARE * max(built.edges + built.violated, 1):
        total = built.edges + built.violated
        return f"{built.violated} of {total} dependencies between streams contradict the recording"
    return ""
