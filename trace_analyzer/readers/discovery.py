"""From what a user types to the runs in it, and to one `Run`.

A RUN is a file, a folder, an archive or a URL. Files are taken by content, not by name. A bundle
manifest says what belongs together; without one, ranks, processes, versions and time do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from trace_analyzer.errors import SeveralRunsError, UnreadableInputError
from trace_analyzer.model import Run
from trace_analyzer.readers.bundles import bundled_runs
from trace_analyzer.readers.content import Content
from trace_analyzer.readers.entries import Opened, open_target
from trace_analyzer.readers.loading import Progress
from trace_analyzer.readers.loose import loose_runs
from trace_analyzer.readers.run_files import Damaged, RunFiles
from trace_analyzer.readers.workspace import Workspace

_LISTED_RUNS = 8
_WORKSPACE = Workspace()  # lives as long as the process: sidecars of a Run may be read later


def find_runs(target: str, *, workspace: Workspace | None = None) -> list[RunFiles]:
    """Return the runs inside `target`, in order of folder; only beginnings of files are read.

    A run whose files are all damaged is returned too: opening it says why. Raises
    `UnreadableInputError` where the target does not exist or holds nothing that is a trace.
    """
    if target in ("", "-"):
        shown = "an empty name" if not target else "-"
        raise UnreadableInputError(
            shown, "no trace is read from standard input", "give a file, a folder or an archive"
        )
    opened = open_target(target, workspace or _WORKSPACE)
    runs = runs_among(opened)
    if not runs:
        raise _nothing_found(opened)
    return runs


def runs_among(opened: Opened) -> list[RunFiles]:
    """Return the runs among files that are open already, in order of folder; maybe none."""
    bundled, rest, warnings = bundled_runs(opened)
    opened = replace(opened, warnings=(*opened.warnings, *warnings))
    return _named(sorted([*bundled, *loose_runs(rest, opened)], key=_folder_of))


def open_run(
    target: str,
    *,
    ranks: Sequence[int] | None = None,
    progress: Progress | None = None,
    jobs: int | None = 1,
    workspace: Workspace | None = None,
) -> Run:
    """Read the one run that `target` holds.

    `ranks` limits what is read. `jobs` is the number of processes that read, None for as many as
    pay off. What an archive or URL holds is copied to a temporary folder that lives as long as
    `workspace`, by default as long as this process.

    Raises `UnreadableInputError` with one line where nothing can be analysed, and
    `SeveralRunsError` where the target holds more than one run.
    """
    workspace = workspace or _WORKSPACE
    runs = find_runs(target, workspace=workspace)
    readable = [run for run in runs if run.processes or run.reports]
    if len(readable) > 1:
        raise several_runs(runs[0].opened.shown, readable)
    run = readable[0] if readable else runs[0]
    if len(runs) > 1:
        others = tuple(item for other in runs if other is not run for item in other.damaged)
        run = replace(run, damaged=(*run.damaged, *others))
    return open_files(run, ranks=ranks, progress=progress, jobs=jobs, workspace=workspace)


def open_files(
    run: RunFiles,
    *,
    ranks: Sequence[int] | None = None,
    progress: Progress | None = None,
    jobs: int | None = 1,
    workspace: Workspace | None = None,
) -> Run:
    """Read one of the runs that `find_runs` returned; parameters and errors as for `open_run`."""
    from trace_analyzer.readers.opening import read_run

    return read_run(
        run, ranks=ranks, progress=progress, jobs=jobs, workspace=workspace or _WORKSPACE
    )


def several_runs(shown: str, runs: Sequence[RunFiles]) -> SeveralRunsError:
    """Return the error that lists runs where one was expected."""
    listed = [f"{run.name} ({described(run)})" for run in runs[:_LISTED_RUNS]]
    if len(runs) > _LISTED_RUNS:
        listed.append(f"and {len(runs) - _LISTED_RUNS} more")
    return SeveralRunsError(
        shown,
        f"holds {len(runs)} runs: {', '.join(listed)}",
        "analyze one of them",
    )


def described(run: RunFiles) -> str:
    """Return in a few words what a run holds: kinds of traces and ranks."""
    if run.reports and not run.processes:
        return f"{len(run.reports)} nsys report{'s' if len(run.reports) > 1 else ''}"
    kinds = {file.kind.value for file in run.files}
    ranks = sorted({p.rank for p in run.processes if p.rank is not None})
    if len(ranks) == 1 and len(run.processes) == 1:
        return f"{'/'.join(sorted(kinds))}, rank {ranks[0]}"
    count = max(len(run.processes), sum(len(p.identity.pids) for p in run.processes))
    return f"{'/'.join(sorted(kinds))}, {count} rank{'s' if count > 1 else ''}"


def _nothing_found(opened: Opened) -> UnreadableInputError:
    if opened.single:
        problem = opened.entries[0].examined.problem
        return UnreadableInputError(
            opened.shown, problem, "give a Kineto JSON trace or an nsys SQLite export"
        )
    counted = Counter(entry.examined.content for entry in opened.entries)
    beside = counted[Content.SIDECAR]
    if not opened.entries:
        problem = "the folder is empty"
    else:
        problem = f"none of its {len(opened.entries)} files is a trace"
        problem += f" ({beside} belong beside one)" if beside else ""
    return UnreadableInputError(
        opened.shown, problem, "give the folder of Kineto JSON traces or nsys SQLite exports"
    )


def _folder_of(run: RunFiles) -> tuple[tuple[str, ...], str]:
    return (PurePosixPath(run.name).parts, run.files[0].name if run.files else "")


def _named(runs: list[RunFiles]) -> list[RunFiles]:
    """Name every run by its folder where that tells it apart, else by its first file."""
    used = Counter(run.name for run in runs)
    return [
        replace(run, name=run.files[0].name, title=PurePosixPath(run.files[0].name).name)
        if used[run.name] > 1 and run.files
        else run
        for run in runs
    ]


__all__ = [
    "Damaged",
    "RunFiles",
    "described",
    "find_runs",
    "open_files",
    "open_run",
    "runs_among",
    "several_runs",
]
