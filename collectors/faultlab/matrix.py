"""Which runs are recorded, and which of them rules may be tuned on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from trace_analyzer.collectors.faultlab.fault import Dose
from trace_analyzer.collectors.faultlab.workload import Workload

KINETO, NSYS = "kineto", "nsys"
LABEL_ONLY = "label"  # a run without a recording

TRACE_KB_A_RUN = 900.0
MIN_ACTIVE_STEPS, MAX_ACTIVE_STEPS = 4, 12
SHAPES_FACTOR = 1.2  # what recorded shapes add to a trace
COMPILED_FACTOR = 0.55  # what compilation leaves of it
SHARDED_FACTOR = 1.3  # what FSDP adds
NSYS_STEPS = 6

SET_RULE = (
    "tune: the GPT model with every fault at its first magnitude and seed 0; "
    "test: everything else (the convolution model, other magnitudes, other seeds)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One labelled measurement and how it is recorded; two recorders give two runs."""

    workload: Workload
    doses: tuple[Dose, ...]
    recorders: tuple[str, ...] = (KINETO,)
    seed: int = 0

    @property
    def key(self) -> str:
        """Identity of the measurement, fit for a file name."""
        faults = "+".join(str(dose).replace("=", "_") for dose in self.doses)
        seed = f".seed{self.seed}" if self.seed else ""
        return f"{self.workload.name}.{faults}{seed}"

    @property
    def set(self) -> str:
        """Return "tune" or "test", by `SET_RULE`."""
        return assigned_set(self.workload, self.doses, self.seed)

    @property
    def record_shapes(self) -> bool:
        """Whether the trace holds operand shapes: about one run of three that is not periodic."""
        periodic = any(dose.kind.period > 1 for dose in self.doses)
        return not periodic and hashlib.sha256(self.key.encode()).digest()[0] % 3 == 0

    @property
    def active_steps(self) -> int:
        """How many steps are profiled: as many as 900 KB for all ranks hold.

        An eager step of the small GPT writes some 5,000 events a rank, at 14 compressed bytes
        each: five steps fit. What repeats after some steps is seen twice at least.
        """
        size_kb = self.workload.scale.trace_kb_per_step
        if self.workload.compiled:
            size_kb *= COMPILED_FACTOR
        if self.workload.parallel == "fsdp":
            size_kb *= SHARDED_FACTOR
        if self.record_shapes:
            size_kb *= SHAPES_FACTOR
        traces = 1 if self.workload.parallel == "single" else 2
        fitting = int(TRACE_KB_A_RUN / traces / size_kb)
        steps = max(MIN_ACTIVE_STEPS, min(MAX_ACTIVE_STEPS, fitting))
        kinds = [dose.kind for dose in self.doses]
        return max(steps, *(max(2 * kind.period, kind.least_steps) for kind in kinds))


def assigned_set(workload: Workload, doses: Sequence[Dose], seed: int) -> str:
    """Return the set of a run; decided by what is run, before anything is measured."""
    first = all(dose.magnitude == dose.kind.magnitudes[0] for dose in doses)
    return "tune" if workload.model == "gpt" and first and seed == 0 else "test"


def runs(workload: Workload, faults: str, recorders: Sequence[str] = (KINETO,)) -> list[RunSpec]:
    """Return one run for each word of `faults`: `name`, `name=magnitude`, `a+b=magnitude`.

    A word may end in `@seed`.
    """
    specs = []
    for word in faults.split():
        text, _, seed = word.partition("@")
        doses = tuple(Dose.parse(part) for part in text.split("+"))
        specs.append(
            RunSpec(workload=workload, doses=doses, recorders=tuple(recorders), seed=int(seed or 0))
        )
    return specs
