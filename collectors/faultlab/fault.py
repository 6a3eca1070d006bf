"""What a fault is, and the register of all of them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from trace_analyzer.collectors.faultlab.catalogue import codes_of
from trace_analyzer.collectors.faultlab.plan import StepPlan
from trace_analyzer.collectors.faultlab.trainer import Trainer
from trace_analyzer.collectors.faultlab.workload import BuildOptions, Workload

EVERYWHERE, LAST, FIRST = "all", "last", "first"
_DOMAINS = ("comm", "compute", "controls", "data", "host", "memory", "rank", "step")
REGISTER: dict[str, type[Fault]] = {}


class Fault:
    """A cause of slowness that can be switched on with a magnitude, on some ranks.

    A fault shows itself in one or more of these places; the rest keep their defaults:
    `environment` (of the process: needs other processes), `build` (a program built otherwise),
    `edit` (another step), `switch_on`/`switch_off` (something outside the step). `baseline` and
    `baseline_build` change the healthy state that the fault is compared with.
    """

    name: ClassVar[str]
    causes: ClassVar[tuple[str, ...]] = ()  # taxonomy ids; none for a control
    magnitudes: ClassVar[tuple[float, ...]] = (1.0,)  # the first is the one rules are tuned on
    unit: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    where: ClassVar[str] = EVERYWHERE
    comes_and_goes: ClassVar[bool] = False  # the step time is then a mean, not a median
    period: ClassVar[int] = 1  # steps after which it repeats
    least_steps: ClassVar[int] = 0  # profiled at least, for it to be seen
    # Whether it takes hold within three steps, so that short blocks of healthy and faulty steps
    # can alternate; otherwise longer segments do.
    quick: ClassVar[bool] = True

    def __init_subclass__(cls, **extra: Any) -> None:  # noqa: ANN401
        super().__init_subclass__(**extra)
        if "name" in cls.__dict__:
            REGISTER[cls.name] = cls

    def __init__(self, magnitude: float, seed: int = 0) -> None:
        self.magnitude = magnitude
        self.seed = seed

    @classmethod
    def codes(cls) -> tuple[str, ...]:
        """Return the rule codes that name this fault."""
        return codes_of(cls.causes)

    def ranks(self, world_size: int) -> tuple[int, ...]:
        """Return the ranks that it strikes."""
        everywhere = tuple(range(world_size))
        return {EVERYWHERE: everywhere, LAST: everywhere[-1:], FIRST: (0,)}[self.where]

    def strikes(self, trainer: Trainer) -> bool:
        """Return whether this process is struck."""
        return trainer.world.rank in self.ranks(trainer.world.size)

    def environment(self) -> dict[str, str]:
        """Return the variables of the faulty processes."""
        return {}

    def baseline_build(self, options: BuildOptions) -> BuildOptions:
        """Return how the healthy program is built."""
        return options

    def build(self, options: BuildOptions) -> BuildOptions:
        """Return how the faulty program is built; `options` are the healthy ones."""
        return options

    def baseline(self, plan: StepPlan, trainer: Trainer) -> None:
        """Change the step of both states."""

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        """Change the step of the faulty state, on struck ranks only."""

    def edit_everywhere(self, plan: StepPlan, trainer: Trainer) -> None:
        """Change the step of the faulty state on all ranks."""

    def switch_on(self, trainer: Trainer) -> None:
        """Begin what acts from outside the step, before a faulty segment, on struck ranks only."""

    def switch_off(self, trainer: Trainer) -> None:
        """End it after the segment, on struck ranks only."""

    def close(self) -> None:
        """Give everything back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dose:
    """One fault with its magnitude."""

    fault: str
    magnitude: float

    @property
    def kind(self) -> type[Fault]:
        """The fault's class. Raises `KeyError` for an unknown name."""
        return all_faults()[self.fault]

    def make(self, seed: int = 0) -> Fault:
        """Return the fault, ready to be switched on."""
        return self.kind(self.magnitude, seed)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the dose of `name` (first magnitude) or `name=magnitude`."""
        name, _, amount = text.partition("=")
        kind = all_faults()[name]
        return cls(fault=name, magnitude=float(amount) if amount else kind.magnitudes[0])

    def __str__(self) -> str:
        return f"{self.fault}={self.magnitude:g}"


def all_faults() -> dict[str, type[Fault]]:
    """Return every fault by name."""
    for domain in _DOMAINS:
        importlib.import_module(f"trace_analyzer.collectors.faultlab.faults.{domain}")
    return dict(sorted(REGISTER.items()))


def nominal_step_s(workload: Workload) -> float:
    """Return the healthy step of two H200 in seconds, to which host magnitudes refer."""
    return workload.scale.nominal_step_ms / 1e3
