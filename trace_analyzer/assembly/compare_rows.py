"""The tables of the comparison document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from trace_analyzer.analyses.comparison import collectives, kernels, partition
from trace_analyzer.comparison_document import (
    CollectiveChange,
    FindingChange,
    KernelChange,
    PartChange,
    RankChange,
    ValueChange,
)
from trace_analyzer.findings import Finding, Report

MOST_KERNELS = 200
# A finding whose gain changes by less of the step is the same in both runs.
_CHANGED_SHARE = 0.01
# What a recorder stretches: comparing it over two recorders would compare these.
_HOST_PARTS = ("wait", "unsplit", "latency", "other", "step", "compute")


def rank_rows(changes: Sequence[partition.RankChange], *, same_recorder: bool) -> list[RankChange]:
    """Return the ranks; over two recorders no part is told apart but transfers and copies."""
    return [
        RankChange(
            base_rank=row.base_rank,
            other_rank=row.other_rank,
            step=_part(row.step, same_recorder=same_recorder),
            parts=[_part(part, same_recorder=same_recorder) for part in row.parts],
        )
        for row in changes
    ]


def _part(part: partition.PartChange, *, same_recorder: bool) -> PartChange:
    stretched = part.part in _HOST_PARTS or part.part.startswith("launch:")
    return PartChange(
        part=part.part,
        base_ms=_rounded(part.base_ms),
        other_ms=_rounded(part.other_ms),
        change_ms=_rounded(part.change_ms),
        change_interval_ms=_interval(part.interval_ms),
        distinguishable=part.apart and (same_recorder or not stretched),
    )


def kernel_rows(changes: Sequence[kernels.KernelChange]) -> tuple[list[KernelChange], int]:
    """Return the largest rows, those told from no change first, and how many are left out."""
    told = [row for row in changes if row.kind != "indistinguishable"]
    rest = [row for row in changes if row.kind == "indistinguishable"]
    shown = [*told, *rest[: max(MOST_KERNELS - len(told), 0)]]
    return [_kernel(row) for row in shown], len(changes) - len(shown)


def _kernel(row: kernels.KernelChange) -> KernelChange:
    return KernelChange(
        name=row.name,
        category=row.category,
        kind=row.kind,
        grid=None if row.grid is None else list(row.grid),
        block=None if row.block is None else list(row.block),
        base_ms=None if row.base_ms is None else _rounded(row.base_ms),
        other_ms=None if row.other_ms is None else _rounded(row.other_ms),
        change_ms=_rounded(row.change_ms),
        change_interval_ms=_interval(row.interval_ms),
        base_calls=None if row.base_calls is None else round(row.base_calls, 4),
        other_calls=None if row.other_calls is None else round(row.other_calls, 4),
        instead_of=row.instead_of,
        places_changed=None if row.positions is None else row.positions[0],
        places=None if row.positions is None else row.positions[1],
        base_beside=round(row.base_beside, 4),
        other_beside=round(row.other_beside, 4),
    )


def collective_rows(
    changes: Sequence[collectives.CollectiveChange], *, same_recorder: bool
) -> list[CollectiveChange]:
    """Return the collectives; waits of two recorders are not told apart."""
    return [
        CollectiveChange(
            operation=row.operation,
            dtype=row.dtype,
            bytes=row.bytes,
            base_calls=None if row.base_calls is None else round(row.base_calls, 4),
            other_calls=None if row.other_calls is None else round(row.other_calls, 4),
            base_channels=row.base_channels,
            other_channels=row.other_channels,
            transfer=_value(row.transfer, told=True),
            wait=_value(row.wait, told=same_recorder),
            exposed=_value(row.exposed, told=same_recorder),
        )
        for row in changes
    ]


def _value(value: collectives.ValueChange, *, told: bool) -> ValueChange:
    return ValueChange(
        base_ms=_rounded(value.base_ms),
        other_ms=_rounded(value.other_ms),
        change_ms=_rounded(value.change_ms),
        change_interval_ms=_interval(value.interval_ms),
        distinguishable=value.apart and told,
    )


def finding_rows(
    base: Report, other: Report, *, comparable: bool, step_ms: float
) -> list[FindingChange]:
    """Return the findings of both runs by code: new ones first, then gone, changed, unchanged.

    Nothing is recoverable where the runs are not comparable.
    """
    return findings_by_state(
        _by_code(base), _by_code(other), step_ms=step_ms, comparable=comparable
    )


class _Gain(Protocol):
    """What a finding says of itself, from a report or from an archive."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Any: ...  # noqa: ANN401
    @property
    def title(self) -> str: ...
    @property
    def recoverable_ms(self) -> float | None: ...


def findings_by_state(
    ours: Mapping[str, _Gain],
    theirs: Mapping[str, _Gain],
    *,
    step_ms: float,
    comparable: bool = True,
) -> list[FindingChange]:
    """Return findings by code: new ones first, then gone, changed, unchanged."""
    rows = []
    for code in dict.fromkeys([*theirs, *ours]):
        mine, others = ours.get(code), theirs.get(code)
        shown = others or mine
        assert shown is not None
        gains = [None if one is None else one.recoverable_ms for one in (mine, others)]
        if not comparable:
            gains = [None, None]
        change = _gain_change(mine, others, gains)
        state = "new" if mine is None else "gone" if others is None else "unchanged"
        if state == "unchanged" and change is not None and abs(change) >= _CHANGED_SHARE * step_ms:
            state = "changed"
        rows.append(
            FindingChange(
                code=code,
                name=shown.name,
                state=state,  # type: ignore[arg-type]
                kind=shown.kind,
                title=shown.title,
                base_recoverable_ms=gains[0],
                other_recoverable_ms=gains[1],
                change_ms=None if change is None else _rounded(change),
            )
        )
    order = ("new", "gone", "changed", "unchanged")
    return sorted(rows, key=lambda row: (order.index(row.state), -abs(row.change_ms or 0.0)))


def _by_code(report: Report) -> dict[str, Finding]:
    found: dict[str, Finding] = {}
    for finding in report.findings:
        found.setdefault(finding.code, finding)
    return found


def _gain_change(
    mine: _Gain | None, others: _Gain | None, gains: Sequence[float | None]
) -> float | None:
    """Return the change of the gain; a finding that is not there gives nothing back."""
    values = [
        0.0 if finding is None else gain
        for finding, gain in zip((mine, others), gains, strict=True)
    ]
    if values[0] is None or values[1] is None or gains == [None, None]:
        return None
    return values[1] - values[0]


def _rounded(value: float) -> float:
    return round(float(value), 6)


def _interval(bounds: tuple[float, float] | None) -> list[float] | None:
    return None if bounds is None else [_rounded(bound) for bound in bounds]
