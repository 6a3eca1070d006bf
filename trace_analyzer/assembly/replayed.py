"""What the replay says, as documents: base, all faults together, what-ifs, rank swaps."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trace_analyzer.analyses.replay.replay import Gain, Replay
from trace_analyzer.analyses.replay.what_if import DEFAULTS, applies, parse, what_if
from trace_analyzer.assembly.ranks import ms
from trace_analyzer.findings import RankSwap, ReplayDoc, Steps, WhatIf


def replay_doc(
    replay: Replay | None, joint: Gain | None, asked: Sequence[str] = ()
) -> ReplayDoc | None:
    """Return the replay's part of the report; None where it is withheld.

    `asked` are changes beside the usual ones. Raises `TraceAnalyzerError` for an unknown one.
    """
    for spec in asked:
        parse(spec)
    if replay is None:
        return None
    specs = [spec for spec in DEFAULTS if spec not in asked and applies(replay, spec)]
    return ReplayDoc(
        what_if=[_what_if(replay, spec) for spec in [*asked, *specs]],
        base_ms=ms(replay.time.median_ns),
        joint_ms=None if joint is None else ms(replay.time.median_ns - joint.gain_ns),
        rank_swap=[
            RankSwap(rank=rank, host_gain_ms=ms(swap.host_ns), device_gain_ms=ms(swap.device_ns))
            for rank, swap in replay.swaps.items()
        ],
    )


def _what_if(replay: Replay, spec: str) -> WhatIf:
    answer = what_if(replay, spec)
    base = replay.time.median_ns
    low, high = answer.gain.interval_ns
    return WhatIf(
        name=answer.name,
        meaning=answer.meaning,
        ms=ms(answer.gain.left_ns),
        interval_ms=[ms(max(base - high, 0.0)), ms(base - low)],
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
