"""In which steps the parts are marked, where marking them in every step would cost too much."""

from __future__ import annotations

# Of every phase the parts of so many first steps are marked, so that a short recording has them
# more than once.
FIRST_WITH_PARTS = 2
# The hooks of `collect` mark parts in one step of so many. With parts a step takes 100-165 us of
# host time on an H200, so marking them in every step is more than 0.5 % of one of 13 ms. One of
# eight leaves the parts a small share of the cost, and a row of 30 steps has five with parts.
HOOKED_PARTS_EVERY = 8


class PartSampling:
    """Chooses steps: the first `FIRST_WITH_PARTS` of a phase, one of `every`, and all profiled ones.

    The place in each row of `every` steps moves on by one from row to row: work that comes every
    2, 4 or 8 steps would otherwise be in all chosen steps or in none. Raises `ValueError` where
    `every` is less than 1.
    """

    def __init__(self, every: int) -> None:
        if every < 1:
            msg = f"parts_every is {every}; it must be 1 or more"
            raise ValueError(msg)
        self.every = every
        self._phase = ""
        self._place = 0  # in its phase, of the next chosen step

    def steps_to_skip(self, phase: str) -> int:
        """Return how many steps of the phase follow the one that begins now until the next chosen.

        Call it for the first step of each phase, and after so many steps for the next one.
        """
        if phase != self._phase:
            self._phase, self._place = phase, 0
        if phase == "profiled" or self.every == 1:
            return 0
        place = self._place
        self._place += 1
        while not self._is_chosen(self._place):
            self._place += 1
        return self._place - place - 1

    def _is_chosen(self, place: int) -> bool:
        row, place_in_row = divmod(place, self.every)
        return place < FIRST_WITH_PARTS or place_in_row == row % self.every
