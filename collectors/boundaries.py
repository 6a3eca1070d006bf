"""Where a step ends in a script that nobody marked: at the optimizer.

Gradient accumulation steps the optimizer once for several backward passes: one step. Several
optimizers (GANs, one a parameter group, one inside another) step in turn: a step is then the
whole round. The round is that of the optimizer which steps least often, counted over the first
steps; an optimizer seen only once (a set-up call, a rare refresh) does not count. Among equals
the one that comes last in the round is taken, so that the boundary lies at the round's end.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True)
class AnchorFinder:
    """Learns which optimizer's step ends a training step.

    It watches until the optimizer that was seen first has stepped `rounds` times and begins
    anew: then optimizers of equal frequency have equal counts. Two rounds are the least that
    shows what repeats.
    """

    rounds: int
    anchor: Hashable = None
    _counts: dict[Hashable, int] = field(default_factory=dict)  # in order of first sight

    def ends_step(self, optimizer: Hashable) -> bool:
        """Whether this optimizer's step, just done, ends a training step; False while learning."""
        if self.anchor is None:
            first = next(iter(self._counts), optimizer)
            if optimizer == first and self._counts.get(first, 0) >= max(self.rounds, 2):
                repeated = {key: count for key, count in self._counts.items() if count > 1}
                fewest = min(repeated.values())
                self.anchor = [key for key, count in repeated.items() if count == fewest][-1]
            else:
                self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        return self.anchor is not None and optimizer == self.anchor
