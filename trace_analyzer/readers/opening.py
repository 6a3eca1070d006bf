"""One run's files become a `Run`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from trace_analyzer.errors import SeveralRunsError, UnreadableInputError
from trace_analyzer.model import DataWarning, Rank, Run, Severity
from trace_analyzer.readers.content import Content, Examined
from trace_analyzer.readers.cross_check import same_job
from trace_analyzer.readers.entries import Entry
from trace_analyzer.readers.grouping import Process, TraceFile, group_traces
from trace_analyzer.readers.loading import Loaded, Progress, load
from trace_analyzer.readers.nccl_log import with_ranks
from trace_analyzer.readers.provenance import hash_differences, sources, started
from trace_analyzer.readers.rank_numbers import (
    Numbered,
    misaligned_windows,
    missing_ranks,
    number_ranks,
    world_size_of,
)
from trace_analyzer.readers.run_files import Damaged, RunFiles, trace_file
from trace_analyzer.readers.sidecars import read_sidecars
from trace_analyzer.readers.windows import choose_windows
from trace_analyzer.readers.workspace import Workspace


def read_run(
    run: RunFiles,
    *,
    ranks: Sequence[int] | None,
    progress: Progress | None,
    jobs: int | None,
    workspace: Workspace,
) -> Run:
    """Read a run; see `discovery.open_run` for parameters and errors."""
    if run.reports and not run.processes:
        run = _exported(run, workspace)
    if not run.processes:
        raise _all_damaged(run)
    wanted = None if ranks is None else set(ranks)
    chosen, window_warnings = choose_windows(run.processes)
    files = [file for file in chosen if not _surely_unwanted(file, wanted)]
    if not files:
        raise _no_such_rank(run, wanted or set(), {f.rank for f in chosen if f.rank is not None})
    loaded = load(files, jobs=jobs, progress=progress)
    damaged = [
        *run.damaged,
        *(Damaged(name=i.file.name, problem=i.problem) for i in loaded if i.problem),
    ]
    good = [item for item in loaded if item.ranks]
    if not good:
        raise _unreadable(run, loaded)
    everyone = number_ranks(good, run.opened.shown)
    unread = {file.rank for file in chosen if file not in files and file.rank is not None}
    recorded = unread | {rank.rank for rank in everyone.ranks}
    if wanted is not None and not wanted <= recorded - unread:
        raise _no_such_rank(run, wanted - recorded, recorded)
    numbered = everyone if wanted is None else _only(everyone, wanted)
    left_out = recorded - {rank.rank for rank in numbered.ranks}
    others, check_warnings, check_loaded = _cross_check(run, numbered.ranks, jobs)
    return _assembled(
        run,
        numbered,
        others=others,
        loaded=[*good, *check_loaded],
        warnings=[
            *run.warnings,
            *window_warnings,
            *numbered.warnings,
            *_damage(damaged),
            *hash_differences(run, [*good, *check_loaded]),
            *check_warnings,
        ],
        left_out=left_out,
    )


def _surely_unwanted(file: TraceFile, wanted: set[int] | None) -> bool:
    known = file.identity.rank
    return wanted is not None and known is not None and known not in wanted


def _only(numbered: Numbered, wanted: set[int]) -> Numbered:
    pairs = [
        (rank, file)
        for rank, file in zip(numbered.ranks, numbered.files, strict=True)
        if rank.rank in wanted
    ]
    return Numbered(
        ranks=tuple(rank for rank, _ in pairs),
        files=tuple(file for _, file in pairs),
        warnings=numbered.warnings,
    )


def _no_such_rank(run: RunFiles, missing: set[int], have: set[int]) -> UnreadableInputError:
    listed = ", ".join(str(rank) for rank in sorted(have)[:16]) or "none that is named"
    asked = ", ".join(str(rank) for rank in sorted(missing))
    return UnreadableInputError(
        run.opened.shown, f"no recording of rank {asked}", f"the run has ranks {listed}"
    )


def _all_damaged(run: RunFiles) -> UnreadableInputError:
    if not run.damaged:
        return UnreadableInputError(
            run.opened.shown,
            "a bundle without any trace",
            "record it again; trace-analyzer collect says why there is none",
        )
    first = run.damaged[0]
    more = len(run.damaged) - 1
    problem = first.problem + (f" (and {more} more files cannot be read)" if more else "")
    closed = "permission" in first.problem
    return UnreadableInputError(
        run.opened.shown_path(first.name),
        problem,
        "make it readable for this user" if closed else "record or copy it again",
    )


def _unreadable(run: RunFiles, loaded: Sequence[Loaded]) -> UnreadableInputError:
    first = loaded[0]
    more = len(loaded) - 1 + len(run.damaged)
    problem = first.problem or "nothing was recorded in it"
    problem += f" (and {more} more files cannot be read)" if more else ""
    return UnreadableInputError(run.opened.shown_path(first.file.name), problem, first.hint)


def _damage(damaged: Iterable[Damaged]) -> Iterable[DataWarning]:
    for item in damaged:
        yield DataWarning(
            code="TRC001",
            message=f"{item.name} cannot be read: {item.problem}",
            effect="left out",
            severity=Severity.ERROR,
        )


def _exported(run: RunFiles, workspace: Workspace) -> RunFiles:
    """Return the run with its nsys reports exported by the installed nsys."""
    from trace_analyzer.readers import nsys

    files: list[TraceFile] = []
    for report in run.reports:
        shown = run.opened.shown_path(report.name)
        try:
            path = nsys.export_report(report.path, workspace.folder())
        except UnreadableInputError as error:
            raise UnreadableInputError(shown, error.problem, error.hint) from error
        content = Examined(content=Content.NSYS)
        files.append(trace_file(Entry(path=path, name=report.name, examined=content)))
    groups = group_traces(files)
    if len(groups) > 1:
        names = ", ".join(group.files[0].name for group in groups)
        raise SeveralRunsError(
            run.opened.shown, f"holds {len(groups)} runs: {names}", "analyze one of them"
        )
    return replace(run, processes=tuple(groups[0].processes))


def _cross_check(
    run: RunFiles, ranks: Sequence[Rank], jobs: int | None
) -> tuple[tuple[Rank, ...], list[DataWarning], list[Loaded]]:
    if not run.cross_check:
        return (), [], []
    chosen, warnings = choose_windows(run.cross_check)
    loaded = load(chosen, jobs=jobs)
    damaged = [Damaged(name=i.file.name, problem=i.problem) for i in loaded if i.problem]
    warnings += list(_damage(damaged))
    good = [item for item in loaded if item.ranks]
    if not good:
        return (), warnings, []
    numbered = number_ranks(good, run.opened.shown)
    if run.manifest is None and not same_job(ranks, numbered.ranks):
        raise SeveralRunsError(
            run.opened.shown,
            f"holds 2 runs: {_names(run.processes)} (kineto) and {_names(run.cross_check)} (nsys), "
            "whose kernels differ",
            "analyze one of them",
        )
    warnings.append(
        DataWarning(
            code="TRC013",
            message=f"the same job was also recorded by Nsight Systems ({_names(run.cross_check)})",
            effect="shown as a cross-check, never pooled: another profiler, another run",
            severity=Severity.NOTE,
        )
    )
    return numbered.ranks, warnings, good


def _names(processes: Sequence[Process]) -> str:
    first = processes[0].windows[0].name
    return first if len(processes) == 1 else f"{first}, …"


def _assembled(
    run: RunFiles,
    numbered: Numbered,
    *,
    others: tuple[Rank, ...],
    loaded: Sequence[Loaded],
    warnings: list[DataWarning],
    left_out: set[int],
) -> Run:
    manifest = run.manifest
    world_size = world_size_of(numbered.ranks, manifest.world_size if manifest else None)
    if left_out:
        warnings.append(
            DataWarning(
                code="TRC002",
                message=f"{len(left_out)} recorded ranks were not asked for",
                effect="waiting for them cannot be told from transfer",
                severity=Severity.NOTE,
                count=len(left_out),
                ranks=tuple(sorted(left_out)),
            )
        )
    sidecars = read_sidecars(run.sidecars)
    warnings += missing_ranks(numbered.ranks, world_size, left_out)
    warnings += misaligned_windows(numbered.ranks)
    warnings += sidecars.warnings
    return Run(
        name=run.title,
        ranks=numbered.ranks,
        sources=tuple(sources(run, [*numbered.ranks, *others], loaded)),
        world_size=world_size,
        unprofiled=tuple(times for _, times in sorted(sidecars.unprofiled.items())),
        environment=dict(sorted(sidecars.environment.items())),
        sidecars=sidecars.paths,
        nccl_logs=with_ranks(sidecars.nccl_logs, numbered.ranks, world_size),
        flight=tuple(sidecars.flight),
        bench=tuple(sidecars.bench),
        calibration=tuple(sidecars.calibration),
        gpu_samples=tuple(sidecars.gpu_samples),
        cross_check=others,
        command=manifest.command if manifest else "",
        started=started(manifest, numbered.ranks),
        warnings=tuple(warnings),
    )


__all__ = ["read_run"]
