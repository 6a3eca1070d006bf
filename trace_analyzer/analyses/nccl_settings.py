"""NCCL's environment as its logs show it, compared over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trace_analyzer.nccl_facts import NcclLog

# Named differently on purpose, or without effect on what NCCL does.
_PER_PROCESS = frozenset({"NCCL_DEBUG_FILE", "NCCL_HOSTID"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferingSetting:
    """A variable that is not the same on all ranks; the value None stands for "not set"."""

    name: str
    ranks: Mapping[str | None, tuple[int, ...]]  # value → ranks


def differing_settings(logs: Iterable[NcclLog]) -> tuple[DifferingSetting, ...]:
    """Return the variables that ranks set differently, by name.

    NCCL logs a variable when it reads it, and only with the ENV subsystem: a log without any
    variable says nothing, and its rank is left out.
    """
    telling = {log.rank: log.settings for log in logs if log.rank is not None and log.settings}
    names = sorted({name for settings in telling.values() for name in settings} - _PER_PROCESS)
    found = []
    for name in names:
        ranks: dict[str | None, list[int]] = {}
        for rank, settings in sorted(telling.items()):
            ranks.setdefault(settings.get(name), []).append(rank)
        if len(ranks) > 1:
            by_value = {value: tuple(items) for value, items in ranks.items()}
            found.append(DifferingSetting(name=name, ranks=by_value))
    return tuple(found)


__all__ = ["DifferingSetting", "differing_settings"]
