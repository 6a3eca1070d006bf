"""What was analysed and how far it can be trusted: run, steps, warnings, environment."""

from __future__ import annotations

from collections.abc import Iterable

from trace_analyzer.analyses.nccl_settings import differing_settings
from trace_analyzer.analyses.study import Study
from trace_analyzer.analyses.unprofiled import Unprofiled
from trace_analyzer.assembly.peers import matching_warnings
from trace_analyzer.assembly.ranks import ms
from trace_analyzer.findings import (
    EnvironmentDoc,
    ExcludedStep,
    RunDoc,
    SourceDoc,
    Steps,
    WarningDoc,
)
from trace_analyzer.kernels import is_fused_communication
from trace_analyzer.model import DataWarning, Run, Severity, Source

# From here on, what the profiler adds is as large as the smallest cause that is worth a finding.
PERTURBATION_WORTH_A_WARNING = 0.03
_SEVERITY_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def run_doc(run: Run) -> RunDoc:
    """Return the identity of the run."""
    names = sorted({device.name for rank in run.ranks for device in rank.devices if device.name})
    return RunDoc(
        name=run.name,
        world_size=run.world_size,
        started=run.started or None,
        hosts=sorted({rank.host for rank in run.ranks if rank.host}),
        gpu=" and ".join(names) or None,
        parallelism=None,
        command=run.command or None,
        sources=source_docs(run.sources),
        recorded_ranks=[rank.rank for rank in run.ranks],
        missing_ranks=list(run.missing_ranks),
        versions=_versions(run),
    )


def source_docs(sources: Iterable[Source]) -> list[SourceDoc]:
    """Return the files that were read."""
    return [
        SourceDoc(
            path=source.path,
            kind=str(source.kind),
            bytes=source.bytes,
            sha256=source.sha256,
            ranks=list(source.ranks),
            gpu_operations=source.gpu_operations,
            tool=source.tool,
            schema=source.schema,
        )
        for source in sources
    ]


def _versions(run: Run) -> dict[str, str]:
    """Return versions; where ranks differ, all of them."""
    found: dict[str, list[str]] = {}
    for rank in run.ranks:
        for name, value in rank.versions.items():
            values = found.setdefault(name, [])
            if value not in values:
                values.append(value)
    return {name: " / ".join(values) for name, values in sorted(found.items())}


def steps_doc(study: Study, plain: Unprofiled | None) -> Steps:
    """Return which steps were used and what they take with and without the profiler."""
    bases = sorted({item.steps.basis for item in study.ranks.values()})
    numbers = sorted({int(n) for item in study.ranks.values() for n in item.steps.index})
    profiled = None if study.step_ns is None else ms(study.step_ns)
    unprofiled = None if plain is None else round(plain.step_ms, 6)
    return Steps(
        boundary=", ".join(bases) or "none",
        count=len(numbers),
        used=list(study.steady.used),
        excluded=[ExcludedStep(step=n, reason=why) for n, why in study.steady.excluded],
        profiled_ms=profiled,
        profiled_mean_ms=None if study.step_mean_ns is None else ms(study.step_mean_ns),
        unprofiled_ms=unprofiled,
        unprofiled_basis=None if plain is None else plain.basis,  # type: ignore[arg-type]
        unprofiled_count=len(plain.steps_ms) or None if plain is not None else None,
        unprofiled_steps_ms=[] if plain is None else [round(ms, 6) for ms in plain.steps_ms],
        perturbation=(
            None if not unprofiled or profiled is None else round(profiled / unprofiled - 1.0, 6)
        ),
    )


def warning_docs(study: Study, steps: Steps) -> list[WarningDoc]:
    """Return what a reader must know before believing a number, worst first."""
    warnings = [
        *study.run.all_warnings(),
        *(warning for item in study.ranks.values() for warning in item.steps.warnings),
        *matching_warnings(study.cross),
        *_perturbation(steps),
        *_fused(study.run),
        *_few_steps(study),
    ]
    merged = _merge(warnings)
    merged.sort(key=lambda w: (_SEVERITY_ORDER[w.severity], w.code, w.message))
    return [
        WarningDoc(
            code=w.code,
            severity=w.severity.value,
            message=w.message,
            effect=w.effect,
            count=w.count,
            ranks=list(w.ranks),
        )
        for w in merged
    ]


def _merge(warnings: Iterable[DataWarning]) -> list[DataWarning]:
    """Join the same warning of several ranks into one."""
    joined: dict[tuple[str, str, str, Severity], tuple[int, set[int]]] = {}
    for w in warnings:
        key = (w.code, w.message, w.effect, w.severity)
        count, ranks = joined.get(key, (0, set()))
        joined[key] = (count + w.count, ranks | set(w.ranks))
    return [
        DataWarning(
            code=code,
            message=message,
            effect=effect,
            severity=severity,
            count=count,
            ranks=tuple(sorted(ranks)),
        )
        for (code, message, effect, severity), (count, ranks) in joined.items()
    ]


def _perturbation(steps: Steps) -> list[DataWarning]:
    share = steps.perturbation
    if share is None or abs(share) < PERTURBATION_WORTH_A_WARNING:
        return []
    return [
        DataWarning(
            code="TRC003",
            message=(
                f"steps take {abs(share) * 100:.0f} % {'longer' if share > 0 else 'less'} under "
                f"the profiler: {steps.profiled_ms:.1f} ms, {steps.unprofiled_ms:.1f} ms without it"
            ),
            effect="parts of a step, waits and late ranks below are those of the profiled run",
        )
    ]


def _fused(run: Run) -> list[DataWarning]:
    """Say which computing kernels also communicate: their exchange cannot be told apart."""
    count = 0
    ranks: list[int] = []
    for rank in run.ranks:
        names = [i for i, name in enumerate(rank.names) if is_fused_communication(name)]
        hits = int(sum((rank.operations.name == name).sum() for name in names))
        if hits:
            count += hits
            ranks.append(rank.rank)
    if not count:
        return []
    return [
        DataWarning(
            code="TRC004",
            severity=Severity.NOTE,
            message=f"{count} kernels reduce over the memory of other GPUs while they compute",
            effect="they count as compute; what of it is exchange cannot be told",
            count=count,
            ranks=tuple(ranks),
        )
    ]


def _few_steps(study: Study) -> list[DataWarning]:
    used = len(study.steady.used)
    if not study.ranks or used == 0:
        return []
    partial = [number for number, item in study.ranks.items() if item.steps.partial]
    if partial:
        return [
            DataWarning(
                code="TRC010",
                message=(
                    f"no complete step on {len(partial)} of {len(study.ranks)} ranks: the one shown "
                    "begins on the host and ends on the device"
                ),
                effect="its length includes the time until the first GPU operation; confidence is low",
                ranks=tuple(partial),
            )
        ]
    if used == 1:
        return [
            DataWarning(
                code="TRC010",
                message="only one complete step",
                effect="means and medians are those of one step; no interval, low confidence",
            )
        ]
    return []


def environment_doc(run: Run) -> EnvironmentDoc:
    """Return allow-listed settings a rank, and in which of them ranks differ."""
    per_rank: dict[int, dict[str, str]] = {}
    for rank in run.ranks:
        merged = {**rank.settings, **run.environment.get(rank.rank, {})}
        if merged:
            per_rank[rank.rank] = dict(sorted(merged.items()))
    for number, values in run.environment.items():
        per_rank.setdefault(number, dict(sorted(values.items())))
    names = sorted({name for values in per_rank.values() for name in values})
    per_process = {"RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"}
    differences = []
    for name in names:
        by_rank = {number: values.get(name, "not set") for number, values in per_rank.items()}
        if name not in per_process and len(set(by_rank.values())) > 1:
            each = ", ".join(f"rank {number}: {value}" for number, value in sorted(by_rank.items()))
            differences.append(f"{name}: {each}")
    told = {line.split(":", 1)[0] for line in differences}
    for setting in differing_settings(run.nccl_logs):
        if setting.name not in told:
            parts = [
                f"{'not set' if value is None else value} on {', '.join(map(str, ranks))}"
                for value, ranks in setting.ranks.items()
            ]
            differences.append(f"{setting.name} (NCCL log): {'; '.join(parts)}")
    return EnvironmentDoc(
        per_rank={str(number): values for number, values in sorted(per_rank.items())},
        differences=differences,
    )
