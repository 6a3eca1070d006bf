"""COMM011 unfinished-or-mismatched-collective.

## What it finds
A collective that some ranks never issued, that ranks issued differently (operation, size or type),
or that did not end on every rank, in Flight Recorder dumps.

## Why it costs
The other ranks wait in it until their timeout: the job stands still, and then dies.

## How it is measured
Collectives are matched by process group and sequence number. No milliseconds are given: a job that
stands still has no step time.

## When it is wrong
A dump that was written while the job ran shows what was in flight as unfinished. Compare its last
activity with the time it was written.

## What to do
Look at what the named ranks were executing when the others entered the collective: a branch that
only some ranks take, a data loader that ran dry, an exception, or unequal numbers of batches.

## References
PyTorch: Flight Recorder for debugging stuck jobs (documentation of torch.distributed).
"""

from __future__ import annotations

from trace_analyzer.analyses.hang_facts import Hang, HangKind, HangReport
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context
from trace_analyzer.rules.context import rank_list as _ranks
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule


def find(context: Context) -> Answer:
    """Return one cause a hang, in order of first issue."""
    report = context.study.hangs
    if report is None:
        return NotApplicable(reason="no Flight Recorder dump was recorded")
    if not report.hangs:
        return Passed(reason="every collective in the dumps ended on all of its ranks")
    return [_cause(hang, report) for hang in report.hangs]


def _what(hang: Hang) -> str:
    number = "" if hang.sequence is None else f" number {hang.sequence}"
    group = hang.description or hang.group
    return f"{hang.operation}{number} of group {group}"


def _title(hang: Hang) -> str:
    who = _ranks(hang.ranks)
    if hang.kind == HangKind.MISSING:
        return f"{who.capitalize()} never issued {_what(hang)}, in which others wait."
    if hang.kind == HangKind.MISMATCHED:
        return f"{who.capitalize()} issued something else than the others as {_what(hang)}."
    return f"{_what(hang).capitalize()} did not end on {who}."


def _proof(hang: Hang) -> str:
    issued = f"{_ranks(hang.present).capitalize()} issued it; it ended on {_ranks(hang.ended)}."
    waiting = " ".join(
        f"Rank {item.rank} itself waits in {item.operation} of group {item.group}."
        for item in hang.reached
        if item.operation
    )
    later = (
        f" {hang.later} later operations of the group are in the same state." if hang.later else ""
    )
    return f"{issued} {waiting}".strip() + later


def _cause(hang: Hang, report: HangReport) -> Cause:
    rows: list[list[str | float | int | None]] = [
        [
            variant.operation,
            variant.dtype or None,
            variant.in_elements,
            variant.out_elements,
            _ranks(variant.ranks),
        ]
        for variant in hang.variants
    ]
    timeout = "" if report.timeout_ms is None else f" (timeout {report.timeout_ms / 1e3:.0f} s)"
    absent = hang.without_dump
    return Cause(
        title=_title(hang),
        ranks=tuple(hang.ranks),
        ceiling_ns=None,
        size=1.0,
        confidence="low" if absent else "medium",
        confidence_reason=(
            f"{_ranks(absent)} left no dump" if absent else "every member of the group left a dump"
        ),
        proof=_proof(hang),
        rival=f"Not a slow network: the dumps show who did not come{timeout}.",
        limits=(
            "A dump written while the job runs shows what is in flight as unfinished: compare the "
            "time of the dump with its last activity."
        ),
        evidence=(
            (
                Evidence(
                    title="What ranks issued",
                    columns=["operation", "type", "elements in", "elements out", "ranks"],
                    rows=rows,
                ),
            )
            if rows
            else ()
        ),
        actions=(
            f"Look at what {_ranks(hang.ranks)} executed when the others entered the collective.",
            "Check that all ranks get the same number of batches and take the same branches.",
        ),
        explains_late=False,
    )


RULE = Rule(
    code="COMM011",
    name="unfinished-or-mismatched-collective",
    kind="fault",
    status="experimental",
    needs="Flight Recorder dumps",
    find=find,
    evidence_only=True,
)
