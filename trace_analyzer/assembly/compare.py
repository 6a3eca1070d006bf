"""Builds the document of `compare`: two analysed runs in, what changed between them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np

from trace_analyzer import __version__
from trace_analyzer.analyses.comparison.batch import batch_ratio
from trace_analyzer.analyses.comparison.collectives import compare_collectives
from trace_analyzer.analyses.comparison.comparability import (
    Difference,
    batch_difference,
    comparison_differences,
    setting_differences,
)
from trace_analyzer.analyses.comparison.fingerprint import Fingerprint, fingerprint
from trace_analyzer.analyses.comparison.kernels import compare_kernels
from trace_analyzer.analyses.comparison.partition import compare_partitions
from trace_analyzer.analyses.scaling.parts import run_parts
from trace_analyzer.analyses.scaling.resampling import Draws, median_draws
from trace_analyzer.analyses.scaling.series import CleanSeries, clean
from trace_analyzer.analyses.study import Study
from trace_analyzer.analyses.unprofiled import unprofiled_step
from trace_analyzer.assembly.compare_rows import (
    collective_rows,
    finding_rows,
    kernel_rows,
    rank_rows,
)
from trace_analyzer.assembly.compare_text import Told, verdict_of
from trace_analyzer.assembly.header import run_doc
from trace_analyzer.assembly.scaling import difference_docs
from trace_analyzer.assembly.scaling_input import traced_steps
from trace_analyzer.assembly.scaling_warnings import comparability_warnings, study_warnings
from trace_analyzer.comparison_document import ComparisonReport, NotCompared, Side, StepChange
from trace_analyzer.findings import SCHEMA_VERSION, Report, Tool, WarningDoc

# Steps from which the difference of two medians gets an interval here: with so few it is wide, and
# says what it is of.
LEAST_STEPS = 4
# Two starts of the same program differ by up to this in their step (docs/measurements.md), which
# steps of one start do not show.
RUN_TO_RUN_SHARE = 0.02
_SEED = 90
_PERTURBED = "parts, waits and late launches below are those of the profiled run"
_ORDER = ("error", "warning", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """A run with its analysis, its report, and what it is called here."""

    study: Study
    report: Report
    name: str


@dataclass(frozen=True, slots=True)
class _Steps:
    """The step time of one run: with and without the profiler."""

    plain: CleanSeries | None
    traced: CleanSeries | None


def build_comparison(
    base: ComparedRun, other: ComparedRun, options: Mapping[str, Any]
) -> ComparisonReport:
    """Return what changed from `base` to `other`."""
    one, two = base.study, other.study
    prints = fingerprint(one), fingerprint(two)
    differences = [
        *batch_difference(batch_ratio(one, two)),
        *comparison_differences(*prints),
    ]
    differences.sort(key=lambda item: not item.refuses)
    comparable = not any(item.refuses for item in differences)
    same_recorder = prints[0].recorder == prints[1].recorder
    steps = _steps(one), _steps(two)
    change = _step_change(*steps)
    pairs = _pairs(one, two)
    ranks = rank_rows(compare_partitions(one, two, pairs), same_recorder=same_recorder)
    common = [pair[0] for pair in pairs if pair[0] == pair[1]]
    kernels, left_out = kernel_rows(compare_kernels(one, two, common, spelt=not same_recorder))
    step_ms = max((row.step.base_ms for row in ranks), default=0.0)
    collectives = collective_rows(
        compare_collectives(one, two, common, step_ms), same_recorder=same_recorder
    )
    findings = finding_rows(base.report, other.report, comparable=comparable, step_ms=step_ms)
    environment = difference_docs(setting_differences(*prints))
    focus = focus_rank(two, [row.other_rank for row in ranks])
    sides = _side(base, steps[0], change), _side(other, steps[1], change)
    documents = difference_docs(differences)
    return ComparisonReport(
        schema_version=SCHEMA_VERSION,
        tool=Tool(name="trace-analyzer", version=__version__, options=dict(options)),
        name=f"{base.name} and {other.name}",
        warnings=_warnings(base, other, differences),
        verdict=verdict_of(
            sides,
            documents,
            Told(
                change=change,
                rank=next((row for row in ranks if row.other_rank == focus), None),
                kernels=kernels,
                collectives=collectives,
                environment=environment,
                findings=findings,
                same_recorder=same_recorder,
            ),
        ),
        comparable=comparable,
        differences=documents,
        base=sides[0],
        other=sides[1],
        step=change,
        rank=focus,
        ranks=ranks,
        kernels=kernels,
        kernels_left_out=left_out,
        collectives=collectives,
        environment=environment,
        findings=findings,
        not_compared=_not_compared(base, other, prints, pairs),
    )


def _steps(study: Study) -> _Steps:
    plain = unprofiled_step(study.run.unprofiled)
    return _Steps(None if plain is None else clean(plain.steps_ms), traced_steps(study))


def _step_change(base: _Steps, other: _Steps) -> StepChange | None:
    """Return the change of T, without a profiler where both runs were timed so."""
    basis, one, two = "unprofiled", base.plain, other.plain
    if one is None or two is None:
        basis, one, two = "profiled", base.traced, other.traced
    if one is None or two is None:
        return None
    streams = np.random.SeedSequence(_SEED).spawn(2)
    ours, theirs = (
        median_draws(series, np.random.default_rng(stream), least=LEAST_STEPS)
        for series, stream in zip((one, two), streams, strict=True)
    )
    before, after = one.median_ms, two.median_ms
    interval = _difference(ours, theirs)
    share = after / before - 1.0
    told = None if interval is None else not interval[0] <= 0.0 <= interval[1]
    return StepChange(
        basis=basis,  # type: ignore[arg-type]
        base_ms=_rounded(before),
        other_ms=_rounded(after),
        change_ms=_rounded(after - before),
        change_interval_ms=interval,
        change_share=_rounded(share),
        distinguishable=None if told is None else told and abs(share) >= RUN_TO_RUN_SHARE,
    )


def _difference(ours: Draws, theirs: Draws) -> list[float] | None:
    if ours.log_draws is None or theirs.log_draws is None:
        return None
    drawn = np.exp(theirs.log_draws) - np.exp(ours.log_draws)
    # Draws are widened around each value, and their difference belongs around that of the values.
    drawn += exp(theirs.log_value) - exp(ours.log_value) - float(np.median(drawn))
    low, high = np.percentile(drawn, [2.5, 97.5])
    return [_rounded(low), _rounded(high)]


def _pairs(base: Study, other: Study) -> list[tuple[int, int]]:
    """Return the ranks to compare: the same numbers, else the ranks that stand for their runs."""
    have = [
        {number for number, item in study.ranks.items() if bool(item.steady.any())}
        for study in (base, other)
    ]
    common = sorted(have[0] & have[1])
    if common:
        return [(number, number) for number in common]
    ours, theirs = run_parts(base), run_parts(other)
    return [] if ours is None or theirs is None else [(ours.rank, theirs.rank)]


def focus_rank(study: Study, ranks: list[int]) -> int | None:
    """Return the rank that shows by itself what makes the run slow: it waits least."""
    found = run_parts(study)
    if found is not None and found.rank in ranks:
        return found.rank
    return ranks[0] if ranks else None


def _side(run: ComparedRun, steps: _Steps, change: StepChange | None) -> Side:
    study, document = run.study, run_doc(run.study.run)
    basis = None if change is None else change.basis
    series = steps.plain if basis == "unprofiled" else steps.traced
    return Side(
        name=run.name,
        recorder=study.run.ranks[0].source.value if study.run.ranks else "",
        world_size=document.world_size,
        recorded_ranks=document.recorded_ranks,
        gpu=document.gpu,
        started=document.started,
        step_ms=None if series is None else _rounded(series.median_ms),
        step_basis=basis if series is not None else None,
        steps=None if series is None else len(series.steady_ms),
        profiled_ms=None if steps.traced is None else _rounded(steps.traced.median_ms),
        profiled_steps=len(study.steady.used),
        unprofiled_ms=None if steps.plain is None else _rounded(steps.plain.median_ms),
        versions=document.versions,
        sources=document.sources,
    )


def _warnings(
    base: ComparedRun, other: ComparedRun, differences: list[Difference]
) -> list[WarningDoc]:
    documents = difference_docs(differences)
    found = comparability_warnings(
        documents,
        f"{base.name} and {other.name}",
        "numbers stand side by side; nothing is called recoverable",
    )
    for run in (base, other):
        found += study_warnings(run.name, run.study, _PERTURBED)
    if _hashes(base) & _hashes(other):
        found.append(
            WarningDoc(
                code="TRC013",
                severity="note",
                message="both runs hold the same recording",
                effect="it is compared with itself",
                count=1,
                ranks=[],
            )
        )
    return sorted(found, key=lambda item: _ORDER.index(item.severity))


def _hashes(run: ComparedRun) -> set[str]:
    return {source.sha256 for source in run.study.run.sources if source.gpu_operations}


def _not_compared(
    base: ComparedRun,
    other: ComparedRun,
    prints: tuple[Fingerprint, Fingerprint],
    pairs: list[tuple[int, int]],
) -> list[NotCompared]:
    found: list[NotCompared] = []

    def add(what: str, why: str) -> None:
        found.append(NotCompared(what=what, why=why))

    if prints[0].recorder != prints[1].recorder:
        add(
            "step times, waiting and late launches",
            "torch.profiler and Nsight Systems slow a host down each in its own way; kernels, copies "
            "and transfers are compared",
        )
    for run, found_print in ((base, prints[0]), (other, prints[1])):
        if found_print.operators is None:
            add("operators", f"{run.name} holds none")
        if any(
            row.key.message_bytes is None and any(row.steady_count.values())
            for row in run.study.collectives
        ):
            add("collectives by size", f"{run.name} does not tell the size of all of them")
    timed = [bool(run.study.run.unprofiled) for run in (base, other)]
    if timed[0] != timed[1]:
        without = other.name if timed[0] else base.name
        add("steps without a profiler", f"{without} was not timed without one")
    compared = {rank for pair in pairs for rank in pair}
    alone = sorted(set(base.study.ranks) ^ set(other.study.ranks))
    if pairs and alone and len(compared) != len(set(base.study.ranks) | set(other.study.ranks)):
        listed = ", ".join(str(rank) for rank in alone[:8]) + (" …" if len(alone) > 8 else "")
        add(f"ranks {listed}", "only one of the runs has them")
    return found


def _rounded(value: float) -> float:
    return round(float(value), 6)
