"""Where the time goes that several ranks lose against the ideal step.

Each term is what a part takes in a step of n ranks, minus its share of the base's step (1 / n of it
for strong scaling, all of it for weak). What the terms leave of the measured loss is the residual: it
is shown, and beyond 15 % of the loss the loss counts as not explained.

Parts come from traces, the loss from steps without a profiler. Under a profiler the host is slower,
and ranks wait for each other's slower hosts; kernels, transfers and gaps on the device stay what they
are. So waiting and late launches are cut down to what the unprofiled step leaves room for, and never
made longer than the trace shows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trace_analyzer.analyses.scaling.parts import Parts, RunParts

MOST_RESIDUAL_SHARE = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A part of the loss, ms a step; `name` is one of `TERMS`.

    It is the part in the step of n ranks minus its share of the base's step.
    """

    name: str
    base_share_ms: float
    step_part_ms: float

    @property
    def ms(self) -> float:
        """What the part adds to the loss."""
        return self.step_part_ms - self.base_share_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The loss in terms; terms + residual = loss. `rank` is the one whose step was divided.

    `explained` is None where the loss is not told from zero.
    """

    rank: int
    base_rank: int
    terms: tuple[Term, ...]
    residual_ms: float
    explained: bool | None


TERMS = (
    "kernels",
    "contention",
    "exposed-transfer",
    "wait",
    "exposed-communication",
    "copies",
    "gaps",
    "host",
)


def cut_to(parts: Parts, step_ms: float) -> Parts:
    """Return the parts of a traced step for a step of `step_ms` without a profiler.

    Waiting and late launches shrink in proportion to what is left beside the device's own work.
    """
    stretched = parts.host + parts.wait + parts.beside_wait
    if stretched <= 0.0:
        return parts
    room = step_ms - (parts.step_ms - stretched)
    keep = min(max(room / stretched, 0.0), 1.0)
    return replace(
        parts,
        host=parts.host * keep,
        wait=parts.wait * keep,
        beside_wait=parts.beside_wait * keep,
    )


def _values(parts: Parts) -> dict[str, float]:
    return {
        "kernels": parts.kernels,
        "contention": parts.beside_transfer,
        "exposed-transfer": parts.transfer,
        "wait": parts.wait + parts.beside_wait,
        "exposed-communication": parts.unsplit,
        "copies": parts.copies,
        "gaps": parts.gaps,
        "host": parts.host,
    }


def loss(
    base: RunParts,
    run: RunParts,
    *,
    base_step_ms: float,
    step_ms: float,
    divisor: float,
    interval_ms: tuple[float, float] | None,
) -> Loss:
    """Divide the loss `step_ms - base_step_ms / divisor`; `interval_ms` is its 95 % interval."""
    total = step_ms - base_step_ms / divisor
    of_base = _values(cut_to(base.parts, base_step_ms))
    of_run = _values(cut_to(run.parts, step_ms))
    terms = tuple(
        Term(name=name, base_share_ms=of_base[name] / divisor, step_part_ms=of_run[name])
        for name in TERMS
        if of_run[name] or of_base[name]
    )
    residual = total - sum(term.ms for term in terms)
    lost = interval_ms is None or not interval_ms[0] <= 0.0 <= interval_ms[1]
    return Loss(
        rank=run.rank,
        base_rank=base.rank,
        terms=terms,
        residual_ms=residual,
        explained=abs(residual) <= MOST_RESIDUAL_SHARE * abs(total) if lost and total else None,
    )
