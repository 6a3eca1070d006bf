"""In what two runs differ, and whether a comparison still says something.

For scaling the program must be the same, whatever the number of ranks: every difference that makes a
step faster or slower by itself refuses the efficiency. For a comparison of two runs such a difference
may be the very answer ("another torch"); only another machine, another number of ranks or other work
takes its meaning away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trace_analyzer.analyses.comparison.fingerprint import Fingerprint
from trace_analyzer.analyses.comparison.kernel_names import canonical

_LISTED = 4
_LONGEST_NAME = 60
_LIKE = 0.02
# Runs do other work where they share few kernels and few operators, both counted by name: another
# layout or library changes most kernels (0.4 in common) but no operator, another optimizer a quarter
# of the operators but few kernels. Without operators (nsys), only a set that is almost disjoint tells.
LEAST_SHARED_KERNELS = 0.6
LEAST_SHARED_OPERATORS = 0.7
LEAST_SHARED_KERNELS_ALONE = 0.3
# A library may choose other kernels for other shapes, and the other run may have a few more
# operators (a loader that runs in the process): only more than this share of operators counts.
MOST_OTHER_OPERATORS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference; `refuses` where it takes the meaning of the comparison away."""

    what: str
    base: str
    other: str
    refuses: bool


_PER_PROCESS = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "MASTER_PORT",
     "MASTER_ADDR", "NCCL_DEBUG_FILE", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}
)  # fmt: skip


def scaling_differences(
    base: Fingerprint, other: Fingerprint, *, profiled: bool
) -> list[Difference]:
    """Return what keeps an efficiency from being one, first, then what is only worth knowing.

    `profiled` says that the step times themselves were taken under the profilers.
    """
    found = [
        *_gpus(base, other),
        *_operators(base, other, refuses=True),
        *_types(base, other, refuses=True),
        *_optimizer(base, other, refuses=True),
        *_simple("compile state", base.compiled, other.compiled, refuses=True),
        *_each("version of", base.versions, other.versions, refuses=True),
        *_each("profiler:", base.profiler, other.profiler, refuses=profiled),
        *_each("setting", _shared(base), _shared(other), refuses=False),
    ]
    return sorted(found, key=lambda item: not item.refuses)


def comparison_differences(base: Fingerprint, other: Fingerprint) -> list[Difference]:
    """Return what takes the meaning of a comparison away, first, then what may be the answer."""
    found = [
        *_gpus(base, other),
        *_simple("world size", str(base.world_size), str(other.world_size), refuses=True),
        *_kernels(base, other),
        *_operators(base, other, refuses=False),
        *_types(base, other, refuses=False),
        *_optimizer(base, other, refuses=False),
        *_simple("compile state", base.compiled, other.compiled, refuses=False),
        *_each("version of", base.versions, other.versions, refuses=False),
        *_each("profiler:", base.profiler, other.profiler, refuses=False),
        *_each("setting", _shared(base), _shared(other), refuses=False),
    ]
    return sorted(found, key=lambda item: not item.refuses)


def shared_kernels(base: Fingerprint, other: Fingerprint) -> float | None:
    """Return the kernel names that both runs have, over those that either has."""
    return _shared_names(
        {canonical(name) for name in base.kernels}, {canonical(name) for name in other.kernels}
    )


def _shared_names(ours: set[str], theirs: set[str]) -> float | None:
    return len(ours & theirs) / len(ours | theirs) if ours and theirs else None


def _simple(what: str, base: str | None, other: str | None, *, refuses: bool) -> list[Difference]:
    if base is None or other is None or base == other:
        return []
    return [Difference(what=what, base=base, other=other, refuses=refuses)]


def _each(
    what: str, base: Mapping[str, str], other: Mapping[str, str], *, refuses: bool
) -> Iterable[Difference]:
    for name in sorted(base.keys() & other.keys()):
        if base[name] != other[name]:
            yield Difference(
                what=f"{what} {name}", base=base[name], other=other[name], refuses=refuses
            )


def _shared(one: Fingerprint) -> Mapping[str, str]:
    """Return settings without those that name processes, and without versions (told apart)."""
    return {
        name: value
        for name, value in one.settings.items()
        if name not in _PER_PROCESS and not name.startswith("version.") and name != "gpu"
    }


def setting_differences(base: Fingerprint, other: Fingerprint) -> list[Difference]:
    """Return settings in which the runs differ, those that only one has included."""
    ours, theirs = _shared(base), _shared(other)
    if not ours or not theirs:
        return []
    return [
        Difference(
            what=name,
            base=ours.get(name, "not set"),
            other=theirs.get(name, "not set"),
            refuses=False,
        )
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]


def _gpus(base: Fingerprint, other: Fingerprint) -> list[Difference]:
    if not base.gpus or not other.gpus or base.gpus == other.gpus:
        return []
    return [
        Difference(
            what="GPU model",
            base=" and ".join(base.gpus),
            other=" and ".join(other.gpus),
            refuses=True,
        )
    ]


def _optimizer(base: Fingerprint, other: Fingerprint, *, refuses: bool) -> list[Difference]:
    ours, theirs = (" and ".join(one.optimizers) or None for one in (base, other))
    return [
        *_simple("optimizer", ours, theirs, refuses=refuses),
        *_simple("optimizer path", base.optimizer_path, other.optimizer_path, refuses=refuses),
    ]


def _types(base: Fingerprint, other: Fingerprint, *, refuses: bool) -> list[Difference]:
    if not base.types or not other.types or base.types == other.types:
        return []
    return [
        Difference(
            what="data types",
            base=" and ".join(base.types),
            other=" and ".join(other.types),
            refuses=refuses,
        )
    ]


def _operators(base: Fingerprint, other: Fingerprint, *, refuses: bool) -> list[Difference]:
    """Name the operators that run more or less often a step, the largest difference first."""
    if base.operators is None or other.operators is None:
        return []
    names = base.operators.keys() | other.operators.keys()
    change = {name: other.operators.get(name, 0) - base.operators.get(name, 0) for name in names}
    changed = sorted((name for name in names if change[name]), key=lambda n: (-abs(change[n]), n))
    if not changed:
        return []
    total = max(sum(base.operators.values()), sum(other.operators.values()))
    small = sum(abs(change[name]) for name in changed) <= MOST_OTHER_OPERATORS * total
    return [
        Difference(
            what="operator sequence",
            base=_counts(base.operators, changed),
            other=_counts(other.operators, changed),
            refuses=refuses and not small,
        )
    ]


def _counts(operators: Mapping[str, int], names: list[str]) -> str:
    listed = [f"{_short(name)} ×{operators.get(name, 0)}" for name in names[:_LISTED]]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(listed) + more


def _short(name: str) -> str:
    text = name.removeprefix("autograd::engine::evaluate_function: ")
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"


def _kernels(base: Fingerprint, other: Fingerprint) -> list[Difference]:
    shared = shared_kernels(base, other)
    if shared is None or shared >= LEAST_SHARED_KERNELS:
        return []
    if base.operators is None or other.operators is None:
        if shared >= LEAST_SHARED_KERNELS_ALONE:
            return []
    else:
        operators = _shared_names(set(base.operators), set(other.operators))
        if operators is None or operators >= LEAST_SHARED_OPERATORS:
            return []
    common = len({canonical(n) for n in base.kernels} & {canonical(n) for n in other.kernels})
    return [
        Difference(
            what="kernel set",
            base=f"{len(base.kernels)} kernels, {common} of them also in the other run",
            other=f"{len(other.kernels)} kernels",
            refuses=True,
        )
    ]


def batch_difference(ratio: float | None, expected: float = 1.0) -> list[Difference]:
    """Return the difference in work a rank; `ratio` is base over other, `expected` what it may be."""
    if ratio is None or abs(ratio / expected - 1.0) <= _LIKE:
        return []
    more = f"{max(ratio, 1.0 / ratio):.3g} times as much work a step"
    return [
        Difference(
            what="batch of a rank",
            base=more if ratio >= 1.0 else "1",
            other="1" if ratio >= 1.0 else more,
            refuses=True,
        )
    ]
