"""What `scaling` is given: runs, step-timer files, numbers, each with how many ranks it has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trace_analyzer.cli.group import InputError

if TYPE_CHECKING:
    from trace_analyzer.assembly.scaling_input import ScalingInput
    from trace_analyzer.cli.progress import ProgressLine

_RANKS = re.compile(r"(\d{1,6})=(.+)", re.DOTALL)
_NUMBER = r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_STATED = re.compile(
    rf"(?P<ms>{_NUMBER})\s*(?:ms)?(?:\s*(?:±|\+-|\+/-)\s*(?P<deviation>{_NUMBER})\s*(?:ms)?)?"
    r"(?:\s*x\s*(?P<count>\d{1,9}))?"
)
_SERIES = re.compile(rf"{_NUMBER}(?:\s*,\s*{_NUMBER})+")
_MOST_MS = 1e9


@dataclass(frozen=True, slots=True)
class Given:
    """One argument: the number of ranks where it was written, and the rest."""

    text: str
    ranks: int | None
    value: str


def parse(arguments: Sequence[str]) -> list[Given]:
    """Split the arguments; raises `InputError` for a number of ranks that is none."""
    found = []
    for text in arguments:
        match = _RANKS.fullmatch(text)
        if match is None or _is_file(text):
            found.append(Given(text, None, text))
            continue
        if int(match[1]) < 1:
            raise InputError(f"{text}: the number of ranks is at least 1")
        found.append(Given(text, int(match[1]), match[2].strip()))
    return found


def _is_file(text: str) -> bool:
    """Tell whether there is a file whose name happens to look like N=VALUE."""
    try:
        return Path(text).exists()
    except OSError:
        return False  # a list of step times is longer than a name may be


def read(
    given: Given, *, step_range: str | None, progress: ProgressLine
) -> tuple[ScalingInput, list[str]]:
    """Read one argument; returns it and the paths that were read: none for a number.

    Raises `InputError` and the errors of readers, each one line.
    """
    typed = _typed(given)
    if typed is not None:
        return typed, []
    from trace_analyzer.assembly.header import source_docs
    from trace_analyzer.assembly.scaling_input import ScalingInput
    from trace_analyzer.readers.timer_files import read_timers
    from trace_analyzer.readers.workspace import Workspace

    workspace = Workspace()
    timed = read_timers(given.value, workspace)
    if timed is None:
        return _traced(given, step_range=step_range, progress=progress)
    ranks = given.ranks or timed.world_size or len(timed.unprofiled)
    item = ScalingInput(
        name=timed.name,
        ranks=ranks,
        unprofiled=timed.unprofiled,
        versions=timed.versions,
        sources=tuple(source_docs(timed.sources)),
        warnings=timed.warnings,
    )
    return item, [given.value]


def _typed(given: Given) -> ScalingInput | None:
    from trace_analyzer.assembly.scaling_input import ScalingInput, Stated

    if given.ranks is None:
        return None
    if _SERIES.fullmatch(given.value):
        series = tuple(float(part) for part in given.value.split(","))
        _check(given, series)
        return ScalingInput(name=f"{len(series)} steps", ranks=given.ranks, series_ms=series)
    match = _STATED.fullmatch(given.value)
    if match is None:
        return None
    ms = float(match["ms"])
    deviation = None if match["deviation"] is None else float(match["deviation"])
    count = None if match["count"] is None else int(match["count"])
    _check(given, (ms,))
    if count == 0 or (deviation is not None and deviation >= ms):
        raise InputError(f"{given.text}: write it as 2=25.7±0.4x60: ms ± deviation x steps")
    stated = Stated(ms=ms, deviation_ms=deviation, count=count)
    return ScalingInput(name=f"{ms:g} ms", ranks=given.ranks, stated=stated)


def _check(given: Given, values: Sequence[float]) -> None:
    if not all(0 < value < _MOST_MS for value in values):
        raise InputError(f"{given.text}: a step takes more than 0 ms")


def _traced(
    given: Given, *, step_range: str | None, progress: ProgressLine
) -> tuple[ScalingInput, list[str]]:
    from trace_analyzer.assembly.header import run_doc
    from trace_analyzer.assembly.options import Options
    from trace_analyzer.assembly.report import analyse
    from trace_analyzer.assembly.scaling_input import ScalingInput
    from trace_analyzer.readers.discovery import open_run

    run = open_run(given.value, progress=progress, jobs=None)
    document = run_doc(run)
    item = ScalingInput(
        name=run.name,
        ranks=given.ranks or run.world_size or len(run.ranks),
        study=analyse(run, Options(step_range=step_range)),
        unprofiled=run.unprofiled,
        gpu=document.gpu,
        versions=document.versions,
        sources=tuple(document.sources),
    )
    return item, [str(Path(given.value) / source.path) for source in run.sources]


def with_primary(inputs: Sequence[ScalingInput]) -> list[ScalingInput]:
    """Return the inputs; those of the most ranks with their leading fault and its gain."""
    from trace_analyzer.assembly.report import build_report

    most = max(item.ranks for item in inputs)
    found = []
    for item in inputs:
        if item.study is None or item.ranks != most:
            found.append(item)
            continue
        verdict = build_report(item.study.run, studied=item.study).verdict
        code = verdict.primary
        found.append(
            item if code is None else replace(item, primary=(code, verdict.recoverable_ms))
        )
    return found
