"""From a run's report to its rows in the index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from trace_analyzer.batch.rows import (
    CollectiveRow,
    FileRow,
    FindingRow,
    KernelRow,
    RankRow,
    RunRow,
    RunRows,
    WarningRow,
)
from trace_analyzer.findings import DATA_WARNING_NAMES, Finding, Report, SourceDoc

_SPARK_STEPS = 24
_SEVERITIES = ("low", "medium", "high")


def rows_of(report: Report, run: RunRow, files: Sequence[FileRow]) -> RunRows:
    """Return the rows of a run.

    `run` is filled as far as it is known without the report: place, manifest, files.
    """
    return RunRows(
        run=msgspec.structs.replace(run, **_verdict(report), **_facts(report)),
        files=_with_sources(files, report.run.sources),
        findings=[_finding(n, item) for n, item in enumerate(report.findings, start=1)],
        ranks=list(_ranks(report)),
        collectives=list(_collectives(report)),
        kernels=[
            KernelRow(
                name=item.name,
                category=item.category,
                count=item.count,
                count_per_step=item.count_per_step,
                total_ms=item.total_ms,
                mean_us=item.mean_us,
                grid=item.grid,
                block=item.block,
            )
            for item in report.kernels
        ],
        warnings=[
            WarningRow(
                code=item.code,
                name=DATA_WARNING_NAMES.get(item.code, ""),
                severity=item.severity,
                message=item.message,
                effect=item.effect,
                count=item.count,
                ranks=item.ranks,
            )
            for item in report.warnings
        ],
    )


def _verdict(report: Report) -> dict[str, object]:
    verdict = report.verdict
    code = verdict.primary or verdict.opportunity
    main = next((item for item in report.findings if item.code == code), None)
    low, high = _ends(verdict.recoverable_interval_ms)
    severities = [_SEVERITIES.index(item.severity) for item in report.findings]
    return {
        "state": verdict.state,
        "headline": verdict.headline,
        "do_next": verdict.do_next,
        "confidence": verdict.confidence,
        "cause": code,
        "cause_kind": None if code is None else "fault" if verdict.primary else "opportunity",
        "cause_name": main.name if main else "",
        "cause_ranks": main.ranks if main else [],
        "recoverable_ms": verdict.recoverable_ms,
        "recoverable_low_ms": low,
        "recoverable_high_ms": high,
        "joint_recoverable_ms": verdict.joint_recoverable_ms,
        "severity": _SEVERITIES[max(severities)] if severities else None,
    }


def _facts(report: Report) -> dict[str, object]:
    run, steps = report.run, report.steps
    unprofiled, basis = steps.unprofiled_ms, steps.unprofiled_basis
    if unprofiled is None and steps.predicted_unprofiled_ms is not None:
        unprofiled, basis = steps.predicted_unprofiled_ms, "predicted"
    profiled = "profiled" if steps.profiled_ms is not None else ""
    return {
        "title": run.name,
        "started": run.started,
        "world_size": run.world_size,
        "recorded_ranks": len(report.ranks),
        "hosts": len(run.hosts),
        "gpu": run.gpu,
        "step_ms": steps.profiled_ms if unprofiled is None else unprofiled,
        "step_basis": profiled if unprofiled is None else basis or "",
        "profiled_ms": steps.profiled_ms,
        "perturbation": steps.perturbation,
        "steps": steps.count,
        "steps_ms": _spark(steps.unprofiled_steps_ms or _slowest_steps(report)),
        "warning_codes": list(dict.fromkeys(item.code for item in report.warnings)),
        "tool_version": report.tool.version,
    }


def _slowest_steps(report: Report) -> list[float]:
    with_steps = [rank for rank in report.ranks if rank.steps]
    if not with_steps:
        return []
    slowest = max(with_steps, key=lambda rank: median(step.step_ms for step in rank.steps))
    return [step.step_ms for step in slowest.steps]


def _spark(steps_ms: Sequence[float]) -> list[float]:
    """Return at most 24 values: medians of groups of neighbours beyond that."""
    width = -(-len(steps_ms) // _SPARK_STEPS) or 1
    groups = [steps_ms[at : at + width] for at in range(0, len(steps_ms), width)]
    return [round(median(group), 4) for group in groups]


def _ends(interval: Sequence[float] | None) -> tuple[float | None, float | None]:
    return (None, None) if interval is None else (interval[0], interval[1])


def _finding(position: int, item: Finding) -> FindingRow:
    low, high = _ends(item.recoverable_interval_ms)
    return FindingRow(
        position=position,
        code=item.code,
        name=item.name,
        kind=item.kind,
        status=item.status,
        title=item.title,
        severity=item.severity,
        ranks=item.ranks,
        recoverable_ms=item.recoverable_ms,
        recoverable_low_ms=low,
        recoverable_high_ms=high,
        ceiling_ms=item.ceiling_ms,
        basis=item.basis,
        confidence=item.confidence,
        caused_by=item.caused_by,
        proof=item.proof,
        actions=item.actions,
    )


def _ranks(report: Report) -> Iterable[RankRow]:
    for rank in report.ranks:
        step = rank.step
        row = RankRow(rank=rank.rank, gpu=rank.gpu, host=rank.host)
        parts = set(RankRow.__struct_fields__) - {"rank", "gpu", "host"}
        yield (
            row
            if step is None
            else msgspec.structs.replace(row, **{part: getattr(step, part) for part in parts})
        )


def _collectives(report: Report) -> Iterable[CollectiveRow]:
    for item in report.collectives:
        yield CollectiveRow(
            operation=item.operation,
            group_name=item.group,
            ranks=len(item.ranks),
            dtype=item.dtype,
            bytes=item.bytes,
            count_per_step=item.count_per_step,
            channels=item.channels,
            threads=item.block[0] if item.block else None,
            duration_p50_us=item.duration_us.p50,
            transfer_p50_us=item.transfer_us.p50 if item.transfer_us else None,
            busbw_gbs=item.busbw_gbs,
            exposed_ms_per_step=item.exposed_ms_per_step,
            kernel=item.kernel,
        )


def _with_sources(files: Sequence[FileRow], sources: Sequence[SourceDoc]) -> list[FileRow]:
    read = {source.path: source for source in sources}
    return [
        msgspec.structs.replace(file, kind=read[file.path].kind, ranks=read[file.path].ranks)
        if file.path in read
        else file
        for file in files
    ]


__all__ = ["rows_of"]
