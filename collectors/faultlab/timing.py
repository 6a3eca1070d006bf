"""Time healthy and faulty steps in turn, until the difference is known well enough."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from trace_analyzer.collectors.faultlab import runfiles
from trace_analyzer.collectors.faultlab.group import GroupError
from trace_analyzer.collectors.faultlab.groups import GroupKey
from trace_analyzer.collectors.faultlab.matrix import RunSpec
from trace_analyzer.collectors.faultlab.programs import Programs, built_options, faulty_group
from trace_analyzer.collectors.faultlab.statistics import (
    BLOCK_STEPS,
    Float64Array,
    Truth,
    truth_of,
)
from trace_analyzer.collectors.faultlab.workload import BuildOptions

ANSWER_S = 20.0  # beside what so many slow steps take
SLOWEST = 12.0  # nominal steps
GOOD_HALF_WIDTH = 0.005  # of the step
# Half-widths shrink by the root of the pairs; a first estimate of one is itself off by a fifth.
HOPELESS_HALF_WIDTH = 1.2 * GOOD_HALF_WIDTH

Times = list[dict[str, Any]]  # by rank, as `StepTimes.document`


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How the states are timed: pairs of one healthy and one faulty row of steps.

    Faults that take hold at once get many short blocks, which drift of the machine hardly
    touches; the others get longer segments. Pairs are added up to the maximum while the cost's
    half-width is above half a per cent of the step, but none where even the maximum would not
    bring it there: such a fault is itself noisy.
    """

    block_steps: int = 7
    block_settle_steps: int = 3
    block_pairs: int = 10
    max_block_pairs: int = 30
    segment_steps: int = 15  # a multiple of all periods of faults
    settle_steps: int = 4
    pairs: int = 4
    max_pairs: int = 6
    patience_s: float = 25.0  # of one run; no further pair is begun after it


@dataclass(kw_only=True)
class Measured:
    """What timing a run gave."""

    spec: RunSpec
    label: dict[str, Any]
    faulty: list[Times]  # rows of the faulty state
    pids: list[int]
    truth: Truth
    options: tuple[BuildOptions, BuildOptions]
    seconds: float


def measure(programs: Programs, spec: RunSpec, protocol: Protocol) -> Measured:
    """Time both states. Raises `GroupError`; the groups concerned are then ended."""
    began = time.monotonic()
    healthy_key, faulty_key = GroupKey(workload=spec.workload), faulty_group(spec)
    options = built_options(spec)
    places = (healthy_key, options[0]), (faulty_key, options[1])
    healthy: list[Float64Array] = []
    faulty: list[Float64Array] = []
    rows: list[Times] = []
    try:
        names = programs.prepare(spec, places)
        timer = _Timer(programs, protocol, (healthy_key, faulty_key), [names[p] for p in places])
        blocks = healthy_key == faulty_key and all(dose.kind.quick for dose in spec.doses)
        pairs = timer.blocks() if blocks else timer.segments()
        least = protocol.block_pairs if blocks else protocol.pairs
        most = protocol.max_block_pairs if blocks else protocol.max_pairs
        for first, second in pairs:
            healthy.append(_array(first))
            faulty.append(_array(second))
            rows.append(second)
            if len(rows) < least or (blocks and len(rows) % protocol.block_pairs):
                continue
            truth = _truth(spec, healthy, faulty)
            tired = time.monotonic() - began > protocol.patience_s
            if truth.half_width_share <= GOOD_HALF_WIDTH or tired or len(rows) >= most:
                break
            if truth.half_width_share * math.sqrt(len(rows) / most) > HOPELESS_HALF_WIDTH:
                break
        pids = programs.group(faulty_key).pids
    except GroupError:
        programs.forget(healthy_key, faulty_key)
        raise
    label = runfiles.label_document(
        spec,
        truth,
        options=options,
        world_size=len(rows[0]),
        environment=dict(faulty_key.environment),
    )
    return Measured(
        spec=spec,
        label=label,
        faulty=rows,
        pids=pids,
        truth=truth,
        options=options,
        seconds=time.monotonic() - began,
    )


@dataclass(kw_only=False)
class _Timer:
    """Yields pairs of rows without end."""

    programs: Programs
    protocol: Protocol
    keys: tuple[GroupKey, GroupKey]
    names: list[str]

    def segments(self) -> Iterator[tuple[Times, Times]]:
        """Yield segments; each state may live in processes of its own."""
        while True:
            healthy = segment(self.programs, self.keys[0], self.names[0], self.protocol, on=False)
            yield healthy, segment(self.programs, self.keys[1], self.names[1], self.protocol)

    def blocks(self) -> Iterator[tuple[Times, Times]]:
        """Yield blocks, which the ranks take many at a time."""
        protocol = self.protocol
        steps = 2 * protocol.block_pairs * (protocol.block_steps + protocol.block_settle_steps)
        while True:
            answers = self.programs.group(self.keys[0]).ask(
                patience_s(self.programs, steps),
                do="alternate",
                keys=self.names,
                pairs=protocol.block_pairs,
                steps=protocol.block_steps,
                settle=protocol.block_settle_steps,
            )
            for pair in range(protocol.block_pairs):
                healthy = [answer["healthy"][pair] for answer in answers]
                yield healthy, [answer["faulty"][pair] for answer in answers]


def segment(
    programs: Programs, key: GroupKey, name: str, protocol: Protocol, *, on: bool = True
) -> Times:
    """Time one segment of a program, with the faults on or off."""
    return programs.group(key).ask(
        patience_s(programs, protocol.settle_steps + protocol.segment_steps),
        do="steps",
        key=name,
        faulty=on,
        settle=protocol.settle_steps,
        steps=protocol.segment_steps,
    )


def patience_s(programs: Programs, steps: int) -> float:
    """Return how long so many steps may take at most."""
    return ANSWER_S + SLOWEST * steps * programs.workload.scale.nominal_step_ms / 1e3


def _truth(spec: RunSpec, healthy: list[Float64Array], faulty: list[Float64Array]) -> Truth:
    period = max(dose.kind.period for dose in spec.doses)
    return truth_of(
        healthy,
        faulty,
        mean=runfiles.statistic_is_mean(spec),
        block_steps=-(-BLOCK_STEPS // period) * period,
        seed=spec.seed,
    )


def _array(times: Times) -> Float64Array:
    return np.array([rank["step_ms"] for rank in times], dtype=np.float64)
