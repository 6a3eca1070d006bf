"""NCCL's environment: what is set, from every file that tells, and compared over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trace_analyzer.model import Run
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


def nccl_settings(run: Run, names: Iterable[str]) -> dict[str, str]:
    """Return those of some variables that any rank has set, with the first rank's value.

    Read from the recorded environment, the traces and NCCL's logs.
    """
    sources: list[Mapping[str, str]] = [values for _, values in sorted(run.environment.items())]
    sources += [rank.settings for rank in run.ranks]
    sources += [log.settings for log in run.nccl_logs]
    found = {}
    for name in names:
        values = [source[name] for source in sources if source.get(name)]
        if values:
            found[name] = values[0]
    return found


__all__ = ["DifferingSetting", "differing_settings", "nccl_settings"]
