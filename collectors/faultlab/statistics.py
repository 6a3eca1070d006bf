"""The truth of a run: step time of both states and their difference, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]

RESAMPLES = 2000
BLOCK_STEPS = 5
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class StateTime:
    """Step time of one state: maximum over ranks of the median (or mean) step."""

    step_ms: float
    interval_ms: tuple[float, float]
    segments: tuple[Float64Array, ...]  # each of shape (ranks, steps), in the order taken

    def document(self) -> dict[str, Any]:
        """Return everything as JSON values; step times by segment and rank."""
        return {
            "step_ms": round(self.step_ms, 5),
            "interval_ms": [round(value, 5) for value in self.interval_ms],
            "steps": int(sum(segment.shape[1] for segment in self.segments)),
            "segment_step_ms": [
                round(float(np.median(segment, axis=1).max()), 5) for segment in self.segments
            ],
            "step_times_ms": [segment.round(4).tolist() for segment in self.segments],
        }


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What the fault costs: faulty minus healthy."""

    healthy: StateTime
    faulty: StateTime
    cost_ms: float
    interval_ms: tuple[float, float]

    @property
    def half_width_ms(self) -> float:
        """Half the width of the cost's 95 % interval."""
        return (self.interval_ms[1] - self.interval_ms[0]) / 2

    @property
    def half_width_share(self) -> float:
        """The half-width as a share of the faulty step."""
        return self.half_width_ms / self.faulty.step_ms

    @property
    def cost_share(self) -> float:
        """The cost as a share of the faulty step."""
        return self.cost_ms / self.faulty.step_ms


def truth_of(
    healthy: Sequence[Float64Array],
    faulty: Sequence[Float64Array],
    *,
    mean: bool,
    block_steps: int = BLOCK_STEPS,
    seed: int = 0,
) -> Truth:
    """Return the truth of two states, each given as segments of shape (ranks, steps) in ms.

    The k-th segments of both states follow each other in time and make a pair. Intervals come
    from a bootstrap in two levels: pairs, because the machine drifts between segments more than
    inside them, then moving blocks of steps inside each. Ranks are resampled together because
    their steps wait for each other. The intervals hold within this run: how another process
    would differ is not in them.

    Raises `ValueError` where the states have different numbers of segments.
    """
    if len(healthy) != len(faulty):
        msg = f"{len(healthy)} healthy and {len(faulty)} faulty segments make no pairs"
        raise ValueError(msg)
    generator = np.random.default_rng(seed)
    pairs = generator.integers(0, len(healthy), size=(RESAMPLES, len(healthy)))
    healthy_draws = _draws(healthy, pairs, generator, mean=mean, block_steps=block_steps)
    faulty_draws = _draws(faulty, pairs, generator, mean=mean, block_steps=block_steps)
    healthy_ms, faulty_ms = _step_ms(healthy, mean=mean), _step_ms(faulty, mean=mean)
    return Truth(
        healthy=StateTime(
            step_ms=healthy_ms, interval_ms=_interval(healthy_draws), segments=tuple(healthy)
        ),
        faulty=StateTime(
            step_ms=faulty_ms, interval_ms=_interval(faulty_draws), segments=tuple(faulty)
        ),
        cost_ms=faulty_ms - healthy_ms,
        interval_ms=_interval(faulty_draws - healthy_draws),
    )


def present_share(truth: Truth, steps_ms: Sequence[Sequence[float]], *, mean: bool) -> float | None:
    """Return the share of the fault's cost that later steps (by rank, in ms) still have.

    None where the cost's interval holds zero: then there is nothing to look for.
    """
    if truth.interval_ms[0] <= 0:
        return None
    later_ms = _step_ms([np.array(steps_ms, dtype=np.float64)], mean=mean)
    return (later_ms - truth.healthy.step_ms) / truth.cost_ms


def _step_ms(segments: Sequence[Float64Array], *, mean: bool) -> float:
    whole = np.concatenate(segments, axis=1)
    per_rank = whole.mean(axis=1) if mean else np.median(whole, axis=1)
    return float(per_rank.max())


def _draws(
    segments: Sequence[Float64Array],
    pairs: npt.NDArray[np.int64],
    generator: np.random.Generator,
    *,
    mean: bool,
    block_steps: int,
) -> Float64Array:
    length = min(segment.shape[1] for segment in segments)
    stacked = np.stack([segment[:, :length] for segment in segments])  # segments, ranks, steps
    blocks = -(-length // block_steps)
    starts = generator.integers(0, length, size=(*pairs.shape, blocks))
    steps = (starts[..., None] + np.arange(block_steps)) % length
    steps = steps.reshape(*pairs.shape, -1)[..., :length]  # resamples, segments, steps
    drawn = [stacked[pairs[..., None], rank, steps] for rank in range(stacked.shape[1])]
    whole = np.stack(drawn).reshape(stacked.shape[1], RESAMPLES, -1)
    per_rank = whole.mean(axis=2) if mean else np.median(whole, axis=2)
    return np.asarray(per_rank.max(axis=0), dtype=np.float64)


def _interval(draws: Float64Array) -> tuple[float, float]:
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(draws, [tail, 100 - tail])
    return float(low), float(high)
