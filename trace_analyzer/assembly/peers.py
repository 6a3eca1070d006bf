"""What the ranks tell about each other, as the report states it."""

from __future__ import annotations

from typing import Literal

from trace_analyzer.analyses.answers import answers
from trace_analyzer.analyses.bandwidth import group_bandwidths, link_bandwidths
from trace_analyzer.analyses.cross_rank import CrossRank
from trace_analyzer.analyses.references import group_reference, link_reference, measured_links
from trace_analyzer.analyses.study import Study
from trace_analyzer.assembly.ranks import ms
from trace_analyzer.findings import (
    Check,
    ClockDoc,
    ContentionDoc,
    GroupDoc,
    LateRankDoc,
    LinkDoc,
    TransportDoc,
)
from trace_analyzer.model import DataWarning, Severity


def lateness_doc(study: Study) -> dict[str, dict[str, float | None]]:
    """Return step → rank → arrival at the step's first matched collective, ms after the first."""
    cross = study.cross
    if cross is None:
        return {}
    steps = sorted({step for by_step in cross.lateness_ns.values() for step in by_step})
    return {
        str(step): {
            str(rank): ms(by_step[step]) if step in by_step else None
            for rank, by_step in sorted(cross.lateness_ns.items())
        }
        for step in steps
    }


def clock_docs(study: Study) -> list[ClockDoc]:
    """Return the clock of every rank against that of the lowest one."""
    if study.cross is None:
        return []
    return [
        ClockDoc(
            rank=fit.rank,
            offset_us=round(fit.offset_ns / 1e3, 3),
            residual_us=round(fit.residual_ns / 1e3, 3),
        )
        for _, fit in sorted(study.cross.clocks.items())
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def late_rank_docs(study: Study) -> list[LateRankDoc]:
    """Return who was late and what they did meanwhile."""
    return [
        LateRankDoc(
            rank=item.rank,
            last_in=item.last_in,
            decided=item.decided,
            persistent=item.persistent,
            late_ms=ms(item.late_ns),
            before_ms={name: ms(ns) for name, ns in item.before_ns.items()},
        )
        for item in study.late
    ]


def contention_docs(study: Study) -> list[ContentionDoc]:
    """Return the slow-down of kernels beside communication, for runs that communicate."""
    if not study.collectives:
        return []
    found = study.contention
    return [
        ContentionDoc(
            kind="matrix" if name == "matrix" else "other",
            slowdown=None if alpha is None else round(1.0 + alpha, 4),
            pairs=found.pairs[name],
        )
        for name, alpha in found.alpha.items()
    ]


def group_docs(study: Study) -> list[GroupDoc]:
    """Return latency and bus bandwidth of every group whose message sizes are known."""
    cross = study.cross
    if cross is None:
        return []
    found = group_bandwidths(cross)
    reference, basis = group_reference(study.run)
    if reference is None and len(found) > 1:
        reference = max((item.busbw_gbs for item in found if item.busbw_gbs), default=None)
        basis = "best group of this run"
    return [
        GroupDoc(
            name=cross.events.groups[item.group].name,
            ranks=list(cross.events.groups[item.group].ranks),
            latency_us=_rounded(item.latency_us),
            busbw_gbs=_rounded(item.busbw_gbs),
            reference_gbs=_rounded(reference),
            reference_basis=basis,
        )
        for item in found
    ]


def link_docs(study: Study) -> list[LinkDoc]:
    """Return what pairs of ranks deliver: from the trace where it tells pairs, else benchmarked."""
    run = study.run
    told = [] if study.cross is None else link_bandwidths(study.cross)
    links = [
        LinkDoc(
            src=item.source,
            dst=item.destination,
            bytes=item.bytes,
            count=item.count,
            latency_us=_rounded(item.latency_us),
            bandwidth_gbs=_rounded(item.bandwidth_gbs),
            reference_gbs=_rounded(link_reference(run, item.source, item.destination)),
            basis="p2p" if item.basis == "p2p" else "pair-group",
        )
        for item in told
    ]
    seen = {(link.src, link.dst) for link in links}
    return links + [
        LinkDoc(
            src=item.source,
            dst=item.destination,
            bytes=item.bytes,
            count=None,
            latency_us=_rounded(item.latency_us),
            bandwidth_gbs=_rounded(item.bandwidth_gbs),
            reference_gbs=_rounded(item.limit_gbs),
            basis="bench",
        )
        for item in measured_links(run)
        if (item.source, item.destination) not in seen
    ]


def transport_docs(study: Study) -> list[TransportDoc]:
    """Return the ways between ranks that the NCCL logs name, each once."""
    seen: dict[tuple[int, int, str, str], int] = {}
    for log in study.run.nccl_logs:
        for item in log.transports:
            key = (item.source, item.destination, item.kind, item.detail)
            seen[key] = max(seen.get(key, 0), len(item.channels))
    return [
        TransportDoc(src=src, dst=dst, kind=kind, detail=detail, channels=channels)
        for (src, dst, kind, detail), channels in sorted(seen.items())
    ]


def answer_docs(study: Study) -> list[Check]:
    """Return which questions the recording can answer."""
    states: dict[str, Literal["passed", "not-distinguishable", "not-applicable"]] = {
        "yes": "passed",
        "partial": "not-distinguishable",
        "no": "not-applicable",
    }
    return [
        Check(
            code="",
            name=item.question,
            state=states[item.state],
            reason=item.reason,
            needs=item.needs,
        )
        for item in answers(study.run, {number: item.steps for number, item in study.ranks.items()})
    ]


def matching_warnings(cross: CrossRank | None) -> list[DataWarning]:
    """Say what could not be matched, and clocks that had to be moved."""
    if cross is None:
        return []
    warnings: list[DataWarning] = []
    reasons = sorted({reason for _, reason in cross.matches.unmatched})
    for reason in reasons:
        counts = {
            rank: count for (rank, why), count in cross.matches.unmatched.items() if why == reason
        }
        total = sum(counts.values())
        warnings.append(
            DataWarning(
                code="TRC006",
                # What lies before the first step is never compared: worth a note, not a doubt.
                severity=Severity.NOTE
                if reason == "outside the recorded steps"
                else Severity.WARNING,
                message=f"{total} communication operations are not matched: {reason}",
                effect="their wait and transfer are not told apart",
                count=total,
                ranks=tuple(sorted(counts)),
            )
        )
    moved = {rank: fit for rank, fit in cross.clocks.items() if fit.offset_ns or fit.drift}
    if moved:
        worst = max(abs(fit.offset_ns) for fit in moved.values())
        warnings.append(
            DataWarning(
                code="TRC005",
                message=f"clocks of {len(moved)} ranks differ from rank {min(cross.clocks)}'s "
                f"by up to {worst / 1e3:,.0f} µs",
                effect=f"times are moved; no order is claimed below {cross.residual_ns / 1e3:.0f} µs",
                count=len(moved),
                ranks=tuple(sorted(moved)),
            )
        )
    return warnings
