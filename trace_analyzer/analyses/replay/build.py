"""Builds the program of a run from its ranks: every time in it is one that was recorded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trace_analyzer.analyses.contention import Contention
from trace_analyzer.analyses.cross_rank import CrossRank
from trace_analyzer.analyses.partition import Busy
from trace_analyzer.analyses.replay.built import Built, RankProgram
from trace_analyzer.analyses.replay.columns import host_columns, op_columns
from trace_analyzer.analyses.replay.edges import Edges, find_edges
from trace_analyzer.analyses.replay.host import NO_CALL, HostSequence, host_sequence, launch_nodes
from trace_analyzer.analyses.replay.join import joined
from trace_analyzer.analyses.replay.supply import Supply, find_supply
from trace_analyzer.analyses.steps import DeviceSteps
from trace_analyzer.model import Rank
from trace_analyzer.schema import Int32Array, Int64Array


def build_program(
    ranks: Mapping[int, tuple[Rank, DeviceSteps, Busy]],
    cross: CrossRank | None,
    contention: Contention,
    numbers: tuple[int, ...],
) -> Built:
    """Return the program of the steps `numbers`, which follow each other and all ranks have."""
    zero = min(
        _first_mark(steps, numbers) + _shift(n, ranks, cross) for n, (_, steps, _) in ranks.items()
    )
    alpha = np.array(
        [contention.alpha.get("matrix") or 0.0, contention.alpha.get("other") or 0.0, 0.0, 0.0],
        dtype=np.float64,
    )
    parts: dict[int, RankProgram] = {}
    columns: list[dict[str, Int64Array]] = []
    hosts: list[dict[str, Int64Array]] = []
    nodes = ops = 0
    hosted = [_hosted(rank, steps, numbers) for rank, steps, _ in ranks.values()]
    edges = find_edges(hosted)
    for position, (number, (rank, steps, work)) in enumerate(ranks.items()):
        shift = _shift(number, ranks, cross) - zero
        supply = find_supply(rank, *_window(steps, numbers))
        part = _rank_program(hosted[position], edges[position], supply, shift)
        parts[number] = part
        hosts.append(host_columns(rank, part, ops))
        columns.append(op_columns(rank, part, work, cross, alpha, (position, nodes, ops)))
        nodes += len(part.host)
        ops += part.operations
    return joined(ranks, parts, hosts, columns, cross, alpha, numbers)


def _first_mark(steps: DeviceSteps, numbers: tuple[int, ...]) -> int:
    return int(steps.host_start_ns[np.isin(steps.index, numbers)][0])


def _shift(
    number: int, ranks: Mapping[int, tuple[Rank, DeviceSteps, Busy]], cross: CrossRank | None
) -> int:
    """Return what to add to a rank's times for the common clock, ns; drift is left alone.

    Over the few steps that are replayed it is below the residual.
    """
    bases = [rank.clock_base_ns for rank, _, _ in ranks.values()]
    base = ranks[number][0].clock_base_ns or 0
    fit = None if cross is None else cross.clocks.get(number)
    offset = 0 if fit is None else round(fit.offset_ns)
    return (0 if None in bases else base) - offset


def _window(steps: DeviceSteps, numbers: tuple[int, ...]) -> tuple[Int64Array, int]:
    """Return the starts of the host steps `numbers`, and the end of the last one."""
    chosen = np.isin(steps.index, numbers)
    return steps.host_start_ns[chosen], int(steps.host_end_ns[chosen][-1])


def _hosted(
    rank: Rank, steps: DeviceSteps, numbers: tuple[int, ...]
) -> tuple[Rank, HostSequence, Int32Array]:
    """Return a rank with its host in the steps `numbers`, and the launch node of each operation."""
    host = host_sequence(rank, *_window(steps, numbers))
    return rank, host, launch_nodes(rank, host)


def _rank_program(
    hosted: tuple[Rank, HostSequence, Int32Array], edges: Edges, supply: Supply | None, shift: int
) -> RankProgram:
    rank, host, node = hosted
    operations = rank.operations
    # Backlog still runs when the first step is launched; what ended before does not matter.
    backlog = (node == NO_CALL) & (operations.start_ns < operations.start_ns[node != NO_CALL].min())
    late = (node == NO_CALL) & ~backlog & (operations.launch < 0)
    kept = np.flatnonzero((node != NO_CALL) | backlog | late)
    return RankProgram(
        host=host,
        edges=edges,
        op_row=kept,
        op_node=node[kept],
        shift_ns=shift,
        supply=supply,
    )


__all__ = ["Built", "RankProgram", "build_program"]
