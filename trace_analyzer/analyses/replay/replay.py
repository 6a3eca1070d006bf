"""The replay of a run: how well it repeats the recording, T without the profiler, and gains.

A gain is T of the base program minus T of the edited one, both settled and without the profiler's
costs. Where the unprofiled step is known, host time is scaled so that T of the base equals it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trace_analyzer.analyses.replay.build import Built, build_program
from trace_analyzer.analyses.replay.calibrated import recording_costs
from trace_analyzer.analyses.replay.devices import own_streams
from trace_analyzer.analyses.replay.edit import Edit
from trace_analyzer.analyses.replay.fit import Clean, Fit, bound_of, fitted
from trace_analyzer.analyses.replay.prediction import predicted_interval_ns
from trace_analyzer.analyses.replay.program import Program, completions_ns
from trace_analyzer.analyses.replay.simulate import ReplayError, simulate
from trace_analyzer.analyses.replay.step_time import StepTime, step_time
from trace_analyzer.analyses.replay.withheld import lacking, replayed_steps, unfit
from trace_analyzer.analyses.study import Study
from trace_analyzer.model import Rank
from trace_analyzer.schema import Float64Array

# Above this a replay explains the recording too badly to be asked what a change would give.
LARGEST_ERROR = 0.05
LEAST_STEPS = 2
# What the model itself is wrong by, beside the steps' own variation: shares of a gain and of T.
ERROR_OF_GAIN = 0.15
ERROR_OF_STEP = 0.005
# By how much all host time may be wrong, as predictions of labelled runs were; less where the
# unprofiled step is known. Every gain is replayed at both ends.
HOST_DOUBT, HOST_DOUBT_WHERE_KNOWN = 0.10, 0.03
BOOTSTRAPS = 400
# With more ranks than this, only those that came last most are tried for being late.
MOST_SUSPECTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What an edit gives back, ns a step, with a 95 % interval; `left_ns` is T after it."""

    gain_ns: float
    interval_ns: tuple[float, float]
    left_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """What all ranks gain when one gets its peers' host times, or their kernel times, ns a step."""

    host_ns: float
    device_ns: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """A run that can be asked what a change would give.

    `error` is the median over steps and ranks of how far a replay of the recording misses a step's
    length, as a share of it. `predicted` are the steps without the profiler's costs, `time` the
    base of all gains: the same, scaled by `fit` to a known step.
    """

    built: Built
    ranks: Mapping[int, Rank]
    clean: Clean
    error: float
    predicted: StepTime
    known_ns: float | None
    fit: Fit
    base: Program
    time: StepTime
    bound: str
    suspects: tuple[int, ...]

    @cached_property
    def swaps(self) -> Mapping[int, Swap]:
        """Gains of giving one rank its peers' times, for the ranks that may be late."""
        found: dict[int, Swap] = {}
        for number in self.suspects:
            host, device = self.edit(), self.edit()
            host.like_peers(number, host=True)
            device.like_peers(number, device=True)
            found[number] = Swap(
                host_ns=self.gain(host).gain_ns, device_ns=self.gain(device).gain_ns
            )
        return found

    @cached_property
    def host_ns(self) -> Mapping[int, float]:
        """Host time of each rank without its waits, ns a step, in the base program."""
        base = self.base
        time = base.node_gap_ns + base.node_cost_ns
        found: dict[int, float] = {}
        for place, number in enumerate(base.ranks):
            # The first node's gap lies before the window.
            own = slice(int(base.node_first[place]) + 1, int(base.node_first[place + 1]))
            found[number] = float(time[own].sum()) / len(base.steps)
        return found

    @cached_property
    def predicted_interval_ns(self) -> tuple[float, float]:
        """95 % interval of the predicted step. Raises `ReplayError`."""
        return predicted_interval_ns(self.clean, self.predicted)

    def edit(self) -> Edit:
        """Return an empty edit of the base program."""
        return Edit(self.built, self.ranks, self.base)

    def gain(self, edit: Edit, *, mean: bool = False) -> Gain:
        """Return what an edit gives back. An empty one gives exactly 0. Raises `ReplayError`."""
        program = edit.program()
        if program is self.base:
            left = self.time.value_ns(mean=mean)
            return Gain(gain_ns=0.0, interval_ns=(0.0, 0.0), left_ns=left)
        after = step_time(program, self.time.steady)
        left = after.value_ns(mean=mean)
        gain = self.time.value_ns(mean=mean) - left
        return Gain(gain_ns=gain, interval_ns=self._interval(after, gain, mean=mean), left_ns=left)

    def gain_of(self, apply: Callable[[Edit], None], *, mean: bool = False) -> Gain:
        """Return what an edit gives back; its interval covers hosts that are faster or slower.

        A gain that is there only because the host is taken for a little too slow is none: the
        interval then begins at 0. Raises `ReplayError`.
        """
        edit = self.edit()
        apply(edit)
        gain = self.gain(edit, mean=mean)
        if edit.program() is self.base:
            return gain
        low, high = gain.interval_ns
        for program, time in self._doubtful:
            other = Edit(self.built, self.ranks, program)
            apply(other)
            after = step_time(other.program(), time.steady)
            there = time.value_ns(mean=mean) - after.value_ns(mean=mean)
            off = there - gain.gain_ns
            low = min(low, gain.gain_ns - float(np.hypot(gain.gain_ns - low, min(off, 0.0))))
            high = max(high, gain.gain_ns + float(np.hypot(high - gain.gain_ns, max(off, 0.0))))
        return replace(gain, interval_ns=(low, high))

    @cached_property
    def _doubtful(self) -> tuple[tuple[Program, StepTime], ...]:
        """The base with all host time shorter, and longer, by what it may be wrong."""
        doubt = HOST_DOUBT if self.known_ns is None else HOST_DOUBT_WHERE_KNOWN
        found: list[tuple[Program, StepTime]] = []
        for factor in (1.0 - doubt, 1.0 + doubt):
            other = replace(self.fit, host=self.fit.host * factor)
            found.append((self.clean.program(other), self.clean.time(other)))
        return tuple(found)

    def _interval(self, after: StepTime, gain: float, *, mean: bool) -> tuple[float, float]:
        """Return gain ± the steps' own variation (bootstrap) and the model's error together.

        Medians are of steady steps drawn at random, two neighbours at a time: what ends a little
        late makes one step longer and the next shorter. Means are of steps with random weights,
        none of them zero: what comes and goes was seen, and drawing could leave all of it out.
        """
        before_ns = self.time.table_ns if mean else self.time.steady_ns
        after_ns = after.table_ns if mean else after.steady_ns
        steps = before_ns.shape[1]
        random = np.random.default_rng(0)
        pairs = random.integers(0, steps, (BOOTSTRAPS, (steps + 1) // 2, 1)) + np.arange(2)
        chosen = pairs.reshape(BOOTSTRAPS, -1)[:, :steps] % steps
        weights = random.dirichlet(np.ones(steps), BOOTSTRAPS)

        def times(table: Float64Array) -> Float64Array:
            each = table @ weights.T if mean else np.median(table[:, chosen], axis=2)
            found: Float64Array = np.max(each, axis=0)
            return found

        low, high = np.percentile(times(before_ns) - times(after_ns), [2.5, 97.5])
        model = np.hypot(ERROR_OF_GAIN * gain, ERROR_OF_STEP * self.time.value_ns(mean=mean))
        below, above = max(gain - float(low), 0.0), max(float(high) - gain, 0.0)
        return gain - float(np.hypot(below, model)), gain + float(np.hypot(above, model))


def replay(study: Study, known_ns: float | None = None) -> Replay | str:
    """Return the replay of a run, or the reason why replayed numbers are withheld."""
    reason = lacking(study)
    if reason:
        return reason
    numbers = replayed_steps(study, LEAST_STEPS)
    if len(numbers) < LEAST_STEPS:
        return f"fewer than {LEAST_STEPS} complete steps follow each other on all ranks"
    ranks = {number: own_streams(item.rank) for number, item in study.ranks.items()}
    try:
        built = build_program(
            {n: (ranks[n], item.steps, item.busy) for n, item in study.ranks.items()},
            study.cross,
            study.contention,
            numbers,
        )
        reason = unfit(built)
        error = _self_error(built)
        if not reason and error > LARGEST_ERROR:
            reason = f"it misses the recorded steps by {100 * error:.1f} %"
        if reason:
            return reason
        clean = Clean(
            built=built,
            ranks=ranks,
            costs=recording_costs(study.run),
            steady=np.isin(numbers, study.steady.used),
        )
        fit = Fit() if known_ns is None else fitted(clean, known_ns)
        base, time = clean.program(fit), clean.time(fit)
        predicted = clean.time(Fit())
        bound = bound_of(clean, base, time)
    except ReplayError as problem:
        return str(problem)
    return Replay(
        built=built,
        ranks=ranks,
        clean=clean,
        error=error,
        predicted=predicted,
        known_ns=known_ns,
        fit=fit,
        base=base,
        time=time,
        bound=bound,
        suspects=_suspects(study),
    )


def _suspects(study: Study) -> tuple[int, ...]:
    """Return the ranks that are tried for lateness: all of a few, else those seen late most."""
    if len(study.ranks) < 2:
        return ()
    if len(study.ranks) <= MOST_SUSPECTS:
        return tuple(study.ranks)
    late = sorted(study.late, key=lambda item: -item.late_ns)[:MOST_SUSPECTS]
    return tuple(sorted(item.rank for item in late))


def _self_error(built: Built) -> float:
    """Return the median miss of a step's length by a replay of the recording itself."""
    done = completions_ns(built.program, simulate(built.program))
    recorded = _completions(built)
    if done.shape[1] < 2:
        return 0.0
    length = np.maximum(np.diff(recorded, axis=1), 1)
    return float(np.median(np.abs(np.diff(done, axis=1) - np.diff(recorded, axis=1)) / length))


def _completions(built: Built) -> Float64Array:
    program = built.program
    step = program.step_of_operation()
    table = np.full((len(program.ranks), len(program.steps)), np.iinfo(np.int64).min)
    inside = step >= 0
    np.maximum.at(table, (program.op_rank[inside], step[inside]), built.op_end_ns[inside])
    ends: Float64Array = np.maximum.accumulate(table, axis=1)
    return ends
