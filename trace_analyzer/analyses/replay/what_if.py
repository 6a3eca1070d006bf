"""Named changes that a user can ask for: `bandwidth=2`, `launch=0`, `no-straggler` and others.

They answer how much a whole class of time is worth, not what one fix gives: an upper bound for
everything that touches it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.replay.edit import Edit
from trace_analyzer.analyses.replay.program import COMM
from trace_analyzer.analyses.replay.replay import Gain, Replay
from trace_analyzer.errors import TraceAnalyzerError

# Nothing real is a thousand times faster or slower; far beyond, times leave 64 bits.
LEAST_FACTOR, MOST_FACTOR = 1e-3, 1e3
DEFAULTS = ("perfect-overlap", "no-straggler", "bandwidth=2", "launch=0")


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAnswer:
    """The step after a named change."""

    name: str
    meaning: str
    gain: Gain


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    meaning: str
    apply: Callable[[Replay, Edit, float], None]
    takes_factor: bool
    needs_ranks: bool = False


def what_if(replay: Replay, spec: str) -> WhatIfAnswer:
    """Return the step after a change. Raises `TraceAnalyzerError` for an unknown one."""
    name, factor = parse(spec)
    change = CHANGES[name]
    edit = replay.edit()
    change.apply(replay, edit, factor)
    meaning = change.meaning.format(factor=f"{factor:g}")
    return WhatIfAnswer(name=spec, meaning=meaning, gain=replay.gain(edit))


def applies(replay: Replay, spec: str) -> bool:
    """Return whether a change means anything for this run: some need several ranks."""
    return len(replay.ranks) > 1 or not CHANGES[parse(spec)[0]].needs_ranks


def parse(spec: str) -> tuple[str, float]:
    """Split "bandwidth=×2" into name and factor; 1 where the change takes none.

    Raises `TraceAnalyzerError`, naming what can be asked.
    """
    name, equals, text = spec.partition("=")
    name = name.strip()
    change = CHANGES.get(name)
    if change is None:
        known = ", ".join(
            f"{key}=FACTOR" if item.takes_factor else key for key, item in CHANGES.items()
        )
        raise TraceAnalyzerError(f"--what-if {spec}: unknown; it can be {known}")
    if not change.takes_factor:
        if equals:
            raise TraceAnalyzerError(f"--what-if {spec}: {name} takes no factor")
        return name, 1.0
    try:
        factor = float(text.strip().removeprefix("×").removeprefix("x"))
    except ValueError:
        factor = -1.0
    may_vanish = name != "bandwidth"
    if not (LEAST_FACTOR <= factor <= MOST_FACTOR or (may_vanish and factor == 0.0)):
        zero = "0 or " if may_vanish else ""
        raise TraceAnalyzerError(
            f"--what-if {spec}: needs a factor, {zero}from {LEAST_FACTOR:g} to {MOST_FACTOR:g}, "
            f"as in {name}=2"
        )
    return name, factor


def _overlap(replay: Replay, edit: Edit, _factor: float) -> None:
    owner = np.repeat(np.arange(edit.base.operations), np.diff(edit.base.dep_first))
    on_comm = edit.base.op_class[edit.base.dep_operation] == COMM
    edit.no_dependencies(owner[on_comm & (edit.base.op_class[owner] != COMM)], COMM)
    del replay


def _straggler(replay: Replay, edit: Edit, _factor: float) -> None:
    gains = [(max(swap.host_ns, swap.device_ns), rank) for rank, swap in replay.swaps.items()]
    gain, rank = max(gains, default=(0.0, -1))
    if gain > 0:  # only what makes it late: its other times may be better than its peers'
        swap = replay.swaps[rank]
        edit.like_peers(rank, host=swap.host_ns > 0, device=swap.device_ns > 0)


def _bandwidth(_replay: Replay, edit: Edit, factor: float) -> None:
    transfer = edit.column("collective_transfer_ns")
    transfer[:] = np.rint(transfer / factor)
    alone = np.flatnonzero((edit.base.op_class == COMM) & (edit.base.op_collective < 0))
    duration = edit.column("op_base_ns")
    duration[alone] = np.rint(duration[alone] / factor)


def _launch(replay: Replay, edit: Edit, factor: float) -> None:
    for rank in replay.ranks:
        edit.launches(rank, factor)


def _host(replay: Replay, edit: Edit, factor: float) -> None:
    for rank in replay.ranks:
        edit.all_host(rank, factor)


def _kernels(_replay: Replay, edit: Edit, factor: float) -> None:
    own = np.flatnonzero(edit.base.op_class != COMM)
    duration = edit.column("op_base_ns")
    duration[own] = np.rint(duration[own] * factor)


def _contention(_replay: Replay, edit: Edit, factor: float) -> None:
    edit.contention(factor)


CHANGES = {
    "perfect-overlap": _Change(
        meaning="computation never waits for communication",
        apply=_overlap,
        takes_factor=False,
        needs_ranks=True,
    ),
    "no-straggler": _Change(
        meaning="the latest rank is as fast as its peers",
        apply=_straggler,
        takes_factor=False,
        needs_ranks=True,
    ),
    "bandwidth": _Change(
        meaning="collectives move data {factor} times as fast",
        apply=_bandwidth,
        takes_factor=True,
        needs_ranks=True,
    ),
    "launch": _Change(
        meaning="launching takes {factor} times the host time",
        apply=_launch,
        takes_factor=True,
    ),
    "host": _Change(
        meaning="all host work takes {factor} times as long", apply=_host, takes_factor=True
    ),
    "kernels": _Change(
        meaning="kernels and copies take {factor} times as long", apply=_kernels, takes_factor=True
    ),
    "contention": _Change(
        meaning="communication slows kernels {factor} times as much",
        apply=_contention,
        takes_factor=True,
        needs_ranks=True,
    ),
}
