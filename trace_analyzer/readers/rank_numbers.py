"""Which rank each recorded process is, and what is wrong with the set of them.

The content of a trace decides; then the manifest or the file's name; then order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trace_analyzer.errors import SeveralRunsError
from trace_analyzer.model import DataWarning, Rank, Severity
from trace_analyzer.readers.grouping import TraceFile
from trace_analyzer.readers.loading import Loaded
from trace_analyzer.readers.rank_names import ranks_from_template

CERTAIN = frozenset({"content", "payload"})
_MIN_OVERLAP = 0.5  # of the shortest window


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """The processes of a run in order of rank, each with the file that it came from."""

    ranks: tuple[Rank, ...]
    files: tuple[TraceFile, ...]
    warnings: tuple[DataWarning, ...]


@dataclass(slots=True)
class _Claim:
    rank: Rank
    file: TraceFile
    number: int | None
    basis: str


def number_ranks(loaded: Sequence[Loaded], shown: str) -> Numbered:
    """Give every process that was read its rank.

    Raises `SeveralRunsError` where two processes claim the same one.
    """
    claims = [_claim(rank, item) for item in loaded for rank in item.ranks]
    _count_in_names(claims)
    _refuse_conflicts(claims, shown)
    taken = {claim.number for claim in claims if claim.number is not None}
    free = (number for number in range(len(claims) + len(taken)) if number not in taken)
    for claim in claims:
        if claim.number is None:
            claim.number = next(free)
    claims.sort(key=lambda claim: claim.number or 0)
    return Numbered(
        ranks=tuple(_renumbered(claim) for claim in claims),
        files=tuple(claim.file for claim in claims),
        warnings=tuple(_doubts(claims)),
    )


def _claim(rank: Rank, item: Loaded) -> _Claim:
    if rank.rank_basis in CERTAIN:
        return _Claim(rank, item.file, rank.rank, rank.rank_basis)
    if len(item.ranks) == 1 and item.file.named_rank is not None:
        return _Claim(rank, item.file, item.file.named_rank, item.file.named_basis)
    return _Claim(rank, item.file, None, "order")


def _count_in_names(claims: Sequence[_Claim]) -> None:
    """Take `a_0.sqlite, a_1.sqlite` for ranks 0 and 1, where nothing else tells."""
    if any(claim.number is not None for claim in claims):
        return
    names = [claim.file.name for claim in claims]
    numbers = ranks_from_template(names) if len(set(names)) == len(names) else None
    for claim, number in zip(claims, numbers or (), strict=False):
        claim.number, claim.basis = number, "name"


def _refuse_conflicts(claims: Sequence[_Claim], shown: str) -> None:
    owners: dict[int, _Claim] = {}
    for claim in claims:
        if claim.number is None:
            continue
        other = owners.setdefault(claim.number, claim)
        if other is not claim:
            raise SeveralRunsError(
                shown,
                f"two processes claim rank {claim.number}: {other.file.name} and {claim.file.name}",
                "analyze one of them, or put the runs into folders of their own",
            )


def _renumbered(claim: _Claim) -> Rank:
    assert claim.number is not None
    number = claim.number
    return replace(
        claim.rank,
        rank=number,
        rank_basis=claim.basis,
        path=claim.file.name,
        warnings=tuple(replace(warning, ranks=(number,)) for warning in claim.rank.warnings),
    )


def _doubts(claims: Sequence[_Claim]) -> Iterable[DataWarning]:
    by_order = [claim for claim in claims if claim.basis == "order"]
    by_name = [claim for claim in claims if claim.basis == "name"]
    if by_order:
        yield DataWarning(
            code="TRC011",
            message="the recording does not tell "
            + ("which rank it is" if len(claims) == 1 else "which rank each process is"),
            effect=f"called {_rank_list(_numbers(by_order))}, in order of file and process",
            severity=Severity.NOTE if len(claims) == 1 else Severity.WARNING,
            count=len(by_order),
            ranks=_numbers(by_order),
        )
    if by_name:
        yield DataWarning(
            code="TRC011",
            message="the recording does not tell its rank",
            effect="taken from the file name",
            severity=Severity.NOTE,
            count=len(by_name),
            ranks=_numbers(by_name),
        )
    for claim in claims:
        named = claim.file.named_rank
        if claim.basis == "content" and named is not None and named != claim.number:
            yield DataWarning(
                code="TRC011",
                message=f"{claim.file.name} is named like rank {named}, "
                f"but was recorded by rank {claim.number}",
                effect="the recording is believed",
                severity=Severity.NOTE,
                ranks=(claim.number or 0,),
            )


def _numbers(claims: Iterable[_Claim]) -> tuple[int, ...]:
    return tuple(claim.number for claim in claims if claim.number is not None)


def world_size_of(ranks: Sequence[Rank], stated: int | None) -> int | None:
    """Return the world size that the traces or the manifest state, None where none does."""
    sizes = [rank.world_size for rank in ranks if rank.world_size]
    size = max(sizes, default=stated)
    return size if size is None or size > max((r.rank for r in ranks), default=-1) else None


def missing_ranks(
    ranks: Sequence[Rank], world_size: int | None, left_out: Iterable[int]
) -> Iterable[DataWarning]:
    """Warn of ranks without a recording; `left_out` were not asked for."""
    have = {rank.rank for rank in ranks} | set(left_out)
    # Without a world size only holes in the numbering are seen.
    last = world_size if world_size is not None else max(have, default=-1) + 1
    missing = [number for number in range(last) if number not in have]
    if missing:
        of = f" of {world_size}" if world_size is not None else ""
        yield DataWarning(
            code="TRC002",
            message=f"no recording of {_rank_list(missing)}{of}",
            effect="waiting for these ranks cannot be told from transfer",
            count=len(missing),
            ranks=tuple(missing),
        )


def misaligned_windows(ranks: Sequence[Rank]) -> Iterable[DataWarning]:
    """Warn where ranks on known clocks were recorded at different times."""
    windows = [window for rank in ranks if (window := _window_ns(rank)) is not None]
    if len(windows) < 2 or len(windows) < len(ranks):
        return
    latest_start = max(start for start, _ in windows)
    overlap = max(0, min(end for _, end in windows) - latest_start)
    shortest = min(end - start for start, end in windows)
    if shortest <= 0 or overlap >= _MIN_OVERLAP * shortest:
        return
    apart_s = (latest_start - min(start for start, _ in windows)) / 1e9
    yield DataWarning(
        code="TRC006",
        message=f"the ranks' windows share {100 * overlap / shortest:.0f} % of the shortest one; "
        f"the last starts {apart_s:.3g} s after the first",
        effect="collectives outside the common part have no counterpart",
        severity=Severity.WARNING if overlap else Severity.ERROR,
        ranks=tuple(rank.rank for rank in ranks),
    )


def _window_ns(rank: Rank) -> tuple[int, int] | None:
    """Return the window of a rank in Unix time: GPU operations, else host events."""
    if rank.clock_base_ns is None:
        return None
    table = rank.operations if len(rank.operations) else rank.events
    if not len(table):
        return None
    return (
        int(table.start_ns.min()) + rank.clock_base_ns,
        int(table.end_ns.max()) + rank.clock_base_ns,
    )


def window_start_ns(ranks: Sequence[Rank]) -> int | None:
    """Return the Unix time in ns at which the first rank's window starts, None where unknown."""
    return min((window[0] for rank in ranks if (window := _window_ns(rank))), default=None)


def _rank_list(numbers: Sequence[int]) -> str:
    """Return ranks in words: "rank 3", "ranks 1-3, 7"."""
    parts: list[str] = []
    for number in sorted(numbers):
        first, _, last = parts[-1].partition("-") if parts else ("", "", "")
        if parts and int(last or first) == number - 1:
            parts[-1] = f"{first}-{number}"
        else:
            parts.append(str(number))
    shown = parts if len(parts) <= 8 else [*parts[:8], f"… ({len(numbers)} in all)"]
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(shown)


__all__ = [
    "Numbered",
    "misaligned_windows",
    "missing_ranks",
    "number_ranks",
    "window_start_ns",
    "world_size_of",
]
