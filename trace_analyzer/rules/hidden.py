"""Faults that hide behind each other: each alone gives nothing back, both together do.

A host that is late and a transfer that takes long can end at the same moment. Whichever is fixed,
the step is as long as before, because the other one holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from trace_analyzer.rules.context import Context
from trace_analyzer.rules.rule import Cause, Rule

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.analyses.replay.replay import Gain

# Pairs are tried of so many causes, those that intervals attribute most time to.
MOST_CAUSES = 6


def hidden_pair(
    context: Context, seen: Sequence[tuple[Rule, Cause]], least: float
) -> list[tuple[int, Cause, Gain]]:
    """Return the two causes that give back most together: places, texts with the other, the gain.

    Empty where none reach a share `least` of the step. `seen` are causes that give back too little
    alone; only those count to which intervals attribute as much, and only pairs of two rules: what
    one rule says of several ranks is one thing. Raises `ReplayError`.
    """
    causes = [cause for _, cause in seen]
    replay = context.replay
    if replay is None or context.step_ns <= 0:
        return []
    enough = [
        place
        for place, cause in enumerate(causes)
        if cause.edit is not None
        and not cause.mean
        and (cause.ceiling_ns or 0.0) >= least * context.step_ns
    ]
    enough.sort(key=lambda place: -(causes[place].ceiling_ns or 0.0))
    best: tuple[int, int, Gain] | None = None
    for one, other in combinations(sorted(enough[:MOST_CAUSES]), 2):
        if seen[one][0].code == seen[other][0].code:
            continue

        def both(change: Edit, pair: tuple[int, int] = (one, other)) -> None:
            for place in pair:
                edit = causes[place].edit
                if edit is not None:
                    edit(change)

        gain = replay.gain_of(both)
        stands = gain.gain_ns >= least * context.step_ns and gain.interval_ns[0] > 0
        if stands and (best is None or gain.gain_ns > best[2].gain_ns):
            best = one, other, gain
    if best is None:
        return []
    one, other, gain = best
    return [
        (place, _beside(causes[place], causes[partner]), gain)
        for place, partner in ((one, other), (other, one))
    ]


def _beside(cause: Cause, other: Cause) -> Cause:
    """Return a cause that says which other one hides it."""
    hides = (
        "Alone it gives nothing back, because another fault is as long. The gain is that of fixing "
        f"both; the other: {other.title}"
    )
    return replace(
        cause,
        limits=f"{cause.limits} {hides}".strip(),
        edit_text=f"{cause.edit_text}, and {other.edit_text}",
    )
