"""What a run does and on what, as far as its recording tells: the ground on which two are compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.study import RankStudy, Study
from trace_analyzer.kernels import category
from trace_analyzer.schema import is_na
from trace_analyzer.tables import HostCategory

# Operators of distributed training, and views that it takes of buckets: they come with the number
# of ranks, not with the work.
_DISTRIBUTED = re.compile(
    r"^(?:c10d::|record_param_comms|torch::distributed|nccl:|FSDP::)|DistributedDataParallel|^aten::as_strided$"
)
_OPTIMIZER_STEP = re.compile(r"^Optimizer\.step#(\w+)\.step")
_COMPILED_RANGE = re.compile(r"^(?:Torch-Compiled Region|CompiledFunction)")
# In this order: the first that matches says what a matrix kernel computes with.
_TYPES = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("float8", r"e4m3|e5m2|fp8|qqtst"),
        ("bfloat16", r"bf16|bfloat16|nvjet_(?:sm\d+_)?tst"),
        ("float64", r"dgemm|f64|d884"),
        ("tf32", r"tf32|s1688|xf32"),
        ("float32", r"sgemm|f32f32|simt|ffma|nvjet_(?:sm\d+_)?sss"),
        ("float16", r"fp16|half|(?<!b)f16|h16|[hs]884|s16816|hgemm|nvjet_(?:sm\d+_)?hsh"),
    )
)
_TYPE_FAMILIES = frozenset({"matmul", "convolution"})
# Types that take less of the matrix kernels' time are a detail (a last layer, a norm), not the path.
_LEAST_TYPE_SHARE = 0.05
_VERSIONS = ("torch", "cuda", "nccl", "cuda_driver", "hip", "rocm", "rccl", "cudnn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What identifies the work of a run; None and empty where the recording does not tell.

    `operators` counts the outermost operators of a step, `kernels` the computing kernels of a step
    by name, both on one rank. `types` are what matrix kernels compute with; `optimizers` are the
    classes, `optimizer_path` how they run.
    """

    recorder: str
    gpus: tuple[str, ...]
    world_size: int
    operators: Mapping[str, int] | None
    kernels: Mapping[str, int]
    types: tuple[str, ...]
    optimizers: tuple[str, ...]
    optimizer_path: str | None
    compiled: str
    versions: Mapping[str, str]
    profiler: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)


def fingerprint(study: Study) -> Fingerprint:
    """Return the fingerprint of a run, from its lowest rank that has steps."""
    run = study.run
    item = next(
        (study.ranks[n] for n in sorted(study.ranks) if bool(study.ranks[n].steady.any())), None
    )
    names = {device.name for rank in run.ranks for device in rank.devices if device.name}
    return Fingerprint(
        recorder=run.ranks[0].source.value if run.ranks else "",
        gpus=tuple(sorted(names)),
        world_size=run.world_size or len(run.ranks),
        operators=None if item is None else _operators(item),
        kernels={} if item is None else _kernels(study, item),
        types=_types(study),
        optimizers=() if item is None else _optimizers(item),
        optimizer_path=None if item is None else _optimizer_path(item),
        compiled=_compiled(study),
        versions=_versions(study),
        profiler=_profiler(study),
        settings=_settings(study),
    )


def _operators(item: RankStudy) -> dict[str, int] | None:
    """Return how often each outermost operator runs in a step: the median over steady steps."""
    events, names = item.rank.events, item.rank.names
    rows = np.flatnonzero(events.category == HostCategory.OPERATOR)
    if len(rows) == 0:
        return None
    outer = np.zeros(len(rows), dtype=np.bool_)
    for thread in np.unique(events.thread[rows]):
        mine = np.flatnonzero(events.thread[rows] == thread)
        outer[mine] = intervals.outermost(events.start_ns[rows[mine]], events.end_ns[rows[mine]])
    rows = rows[outer]
    steps = item.steps
    step = np.searchsorted(steps.host_start_ns, events.start_ns[rows], side="right") - 1
    inside = (step >= 0) & (events.start_ns[rows] < steps.host_end_ns[np.maximum(step, 0)])
    counts = np.zeros((len(steps), len(names)), dtype=np.int64)
    np.add.at(counts, (step[inside], events.name[rows[inside]]), 1)
    middle = np.median(counts[item.steady], axis=0)
    return {
        names[position]: round(float(middle[position]))
        for position in np.flatnonzero(middle >= 0.5).tolist()
        if not _DISTRIBUTED.search(names[position])
    }


def _kernels(study: Study, item: RankStudy) -> dict[str, int]:
    steps = int(item.steady.sum())
    counts: Counter[str] = Counter()
    for row in study.kernels:
        if row.category not in {"communication", "memcpy", "memset"}:
            counts[row.name] += row.steady_count.get(item.rank.rank, 0)
    return {name: max(round(count / steps), 1) for name, count in counts.items() if count}


def type_of_kernel(name: str) -> str | None:
    """Return what a matrix kernel computes with, from its name; None where it does not tell."""
    return next((kind for kind, pattern in _TYPES if pattern.search(name)), None)


def _types(study: Study) -> tuple[str, ...]:
    time: Counter[str] = Counter()
    for row in study.kernels:
        if row.category in _TYPE_FAMILIES:
            kind = type_of_kernel(row.name)
            if kind is not None:
                time[kind] += row.total_ns
    total = sum(time.values())
    return tuple(sorted(kind for kind, ns in time.items() if ns >= _LEAST_TYPE_SHARE * total))


def _optimizers(item: RankStudy) -> tuple[str, ...]:
    names = item.rank.names
    used = np.unique(item.rank.events.name).tolist()
    found = {match[1] for name in used if (match := _OPTIMIZER_STEP.match(names[name]))}
    return tuple(sorted(found))


def _optimizer_path(item: RankStudy) -> str | None:
    """Return how the optimizer runs, from its kernels; None where the recording shows none."""
    names = item.rank.names
    kernels = [names[name] for name in np.unique(item.rank.operations.name).tolist()]
    optimizing = [name for name in kernels if category(name) == "optimizer"]
    if any("fused" in name.lower() for name in optimizing):
        return "fused"
    if any("multi_tensor_apply" in name for name in optimizing):
        return "foreach"
    return "one parameter at a time" if _optimizers(item) else None


def _compiled(study: Study) -> str:
    """Return how the program is launched: "eager", "compiled", "CUDA graphs"."""
    parts = []
    ranks = [item.rank for item in study.ranks.values()]
    if any(bool((~is_na(rank.operations.graph_node)).any()) for rank in ranks):
        parts.append("CUDA graphs")
    names = {rank.names[name] for rank in ranks for name in np.unique(rank.events.name).tolist()}
    if any(row.category == "triton" for row in study.kernels) or any(
        _COMPILED_RANGE.match(name) for name in names
    ):
        parts.append("compiled")
    return ", ".join(parts) or "eager"


def _versions(study: Study) -> dict[str, str]:
    found: dict[str, str] = {}
    for rank in study.run.ranks:
        beside = study.run.environment.get(rank.rank, {})
        for name in _VERSIONS:
            value = rank.versions.get(name) or beside.get(f"version.{name}")
            if value and name not in found:
                found[name] = value
    return found


def _profiler(study: Study) -> dict[str, str]:
    rank = study.run.ranks[0]
    switches = {
        "shapes": rank.capture.record_shapes,
        "stacks": rank.capture.with_stack,
        "memory": rank.capture.profile_memory,
    }
    return {"recorder": rank.source.value} | {
        name: "on" if value else "off" for name, value in switches.items()
    }


def _settings(study: Study) -> dict[str, str]:
    """Return the allow-listed environment that all ranks share."""
    of_rank = [
        {**rank.settings, **study.run.environment.get(rank.rank, {})} for rank in study.run.ranks
    ]
    known = [values for values in of_rank if values]
    if not known:
        return {}
    return {
        name: value
        for name, value in known[0].items()
        if all(values.get(name) == value for values in known)
    }
