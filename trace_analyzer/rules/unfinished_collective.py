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

from collections.abc import Iterable

from trace_analyzer.analyses.hang_facts import Hang, HangKind, HangReport
from trace_analyzer.findings import Evidence, Finding

CODE, NAME = "COMM011", "unfinished-or-mismatched-collective"


def find(report: HangReport) -> list[Finding]:
    """Return one finding a hang, in order of first issue."""
    return [_finding(hang, report) for hang in report.hangs]


def _ranks(ranks: Iterable[int]) -> str:
    numbers = list(ranks)
    if not numbers:
        return "no rank"
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    shown = ", ".join(str(number) for number in numbers[:3])
    more = f" and {len(numbers) - 3} more" if len(numbers) > 3 else ""
    return f"ranks {shown}{more}"


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


def _finding(hang: Hang, report: HangReport) -> Finding:
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
    return Finding(
        code=CODE,
        name=NAME,
        kind="fault",
        status="experimental",
        title=_title(hang),
        severity="high",
        ranks=list(hang.ranks),
        recoverable_ms=None,
        recoverable_interval_ms=None,
        ceiling_ms=None,
        basis="evidence",
        confidence="low" if absent else "medium",
        confidence_reason=(
            f"{_ranks(absent)} left no dump" if absent else "every member of the group left a dump"
        ),
        caused_by=None,
        proof=_proof(hang),
        rival=f"Not a slow network: the dumps show who did not come{timeout}.",
        limits=(
            "A dump written while the job runs shows what is in flight as unfinished: compare the "
            "time of the dump with its last activity."
        ),
        evidence=[
            Evidence(
                title="What ranks issued",
                columns=["operation", "type", "elements in", "elements out", "ranks"],
                rows=rows,
            )
        ]
        if rows
        else [],
        ranges=[],
        actions=[
            f"Look at what {_ranks(hang.ranks)} executed when the others entered the collective.",
            "Check that all ranks get the same number of batches and take the same branches.",
        ],
    )
