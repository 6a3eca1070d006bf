"""What the replay says, as documents: base, all faults together, what-ifs, rank swaps."""

from __future__ import annotations

import msgspec

from trace_analyzer.analyses.replay.replay import Gain, Replay
from trace_analyzer.assembly.ranks import ms
from trace_analyzer.findings import RankSwap, ReplayDoc, Steps


def replay_doc(replay: Replay | None, joint: Gain | None) -> ReplayDoc | None:
    """Return the replay's part of the report; None where it is withheld."""
    if replay is None:
        return None
    return ReplayDoc(
        base_ms=ms(replay.time.median_ns),
        joint_ms=None if joint is None else ms(joint.left_ns),
        rank_swap=[
            RankSwap(rank=rank, host_gain_ms=ms(swap.host_ns), device_gain_ms=ms(swap.device_ns))
            for rank, swap in replay.swaps.items()
        ],
    )


def with_replay(steps: Steps, replay: Replay | None) -> Steps:
    """Return the steps with what the replay predicts, and what decides the step."""
    if replay is None:
        return steps
    predicted = replay.predicted.median_ns
    low, high = replay.predicted_interval_ns
    taken = steps.unprofiled_ms
    profiled = steps.profiled_ms
    known = ms(predicted) if taken is None else taken
    return msgspec.structs.replace(
        steps,
        unprofiled_ms=known,
        unprofiled_basis=steps.unprofiled_basis or "predicted",
        perturbation=(None if not known or profiled is None else round(profiled / known - 1.0, 6)),
        predicted_unprofiled_ms=ms(predicted),
        predicted_interval_ms=[ms(low), ms(high)],
        predicted_unprofiled_mean_ms=ms(replay.predicted.mean_ns),
        bound=replay.bound,
        replay_error=round(replay.error, 6),
    )
