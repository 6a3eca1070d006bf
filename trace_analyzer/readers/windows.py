"""Which of several windows of a run is analysed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trace_analyzer.model import DataWarning, Severity
from trace_analyzer.readers.grouping import SAME_TIME_NS, Process, TraceFile, window_ns

_NAMED = 4


@dataclass(slots=True)
class _Moment:
    """Windows of different processes that were recorded together."""

    files: list[TraceFile] = field(default_factory=list)
    end_ns: int = 0

    @property
    def length_ns(self) -> int:
        return min((window_ns(file) or 0 for file in self.files), default=0)


def choose_windows(processes: Sequence[Process]) -> tuple[list[TraceFile], list[DataWarning]]:
    """Return one window a process, all of the same moment, and a warning that names the others.

    The moment that most ranks recorded is taken, of these the longest, of these the last: a
    user who profiled several times wants one good answer, and can ask for another window by
    giving its files.
    """
    if all(len(process.windows) == 1 for process in processes):
        return [process.windows[0] for process in processes], []
    windows = [window for process in processes for window in process.windows]
    windows.sort(key=lambda file: file.identity.start_ns or 0)
    moments: list[_Moment] = []
    for window in windows:
        start_ns = window.identity.start_ns or 0
        if (
            not moments
            or start_ns > moments[-1].end_ns + SAME_TIME_NS
            or _twice(moments[-1], window)
        ):
            moments.append(_Moment())
        moment = moments[-1]
        moment.files.append(window)
        moment.end_ns = max(moment.end_ns, start_ns + (window_ns(window) or 0))
    best = max(
        enumerate(moments), key=lambda item: (len(item[1].files), item[1].length_ns, item[0])
    )[1]
    others = [file.name for moment in moments if moment is not best for file in moment.files]
    listed = ", ".join(others[:_NAMED]) + (", …" if len(others) > _NAMED else "")
    warning = DataWarning(
        code="TRC006",
        message=f"{len(moments)} windows of this run were recorded; "
        f"{best.files[0].name}{', …' if len(best.files) > 1 else ''} is the longest",
        effect=f"not analyzed: {listed}",
        severity=Severity.NOTE,
        count=len(moments) - 1,
    )
    return best.files, [warning]


def _twice(moment: _Moment, window: TraceFile) -> bool:
    """Tell whether the moment already holds a window of this process."""
    key = (window.rank, window.identity.pids)
    return any((file.rank, file.identity.pids) == key for file in moment.files)
