"""`trace-analyzer export`."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trace_analyzer.cli.folders import check_folder, filled_folder
from trace_analyzer.cli.group import InputError, debug_option
from trace_analyzer.cli.outputs import Output, check_outputs, refuse_inputs, replaced
from trace_analyzer.cli.progress import ProgressLine
from trace_analyzer.cli.values import Ranks, StepRange

if TYPE_CHECKING:
    from trace_analyzer.analyses.study import Study
    from trace_analyzer.findings import Report

_TRACE_ENDINGS = (".json", ".json.gz")
_BLOCK_BYTES = 1 << 20


@click.command(
    short_help="Hand a run over to Perfetto, SQLite or Parquet.",
    epilog="Example: trace-analyzer export runs/healthy --to perfetto -o healthy.json.gz",
)
@click.argument("run")
@click.option(
    "--to",
    "kind",
    type=click.Choice(["perfetto", "sqlite", "parquet"]),
    required=True,
    help="What to write: a trace for ui.perfetto.dev, a database, or a folder of tables.",
)
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    required=True,
    help="Where: a .json.gz or .json, a database file, or a folder; - is stdout (perfetto).",
)
@click.option("--step-range", metavar="NAME", help="Name of the range that repeats once a step.")
@click.option(
    "--steps", type=StepRange(), metavar="A:B", help="Make statistics of steps A to B only."
)
@click.option("--ranks", type=Ranks(), metavar="LIST", help="Export these ranks only, as in 0,2-5.")
@click.option("--force", is_flag=True, help="Replace what exists.")
@click.option("-q", "--quiet", is_flag=True, help="Write nothing on stderr but errors.")
@debug_option
def export(
    *,
    run: str,
    kind: str,
    output: str,
    step_range: str | None,
    steps: tuple[int, int] | None,
    ranks: tuple[int, ...] | None,
    force: bool,
    quiet: bool,
) -> None:
    """Write all events of a run, and what was computed of them, for other tools.

    perfetto: one Chrome trace of all ranks on one clock, with tracks for the partition, steps,
    waits and findings beside the recorded ones. sqlite and parquet: the tables of docs/export.md.
    """
    target = Output("-o", output)
    _check(target, kind, force=force)
    if kind == "perfetto" and not target.to_stdout:
        _refuse_inside(Path(output), Path(run))
    from trace_analyzer.assembly import Options
    from trace_analyzer.assembly.report import analyse, build_report
    from trace_analyzer.readers.discovery import open_run

    with ProgressLine(quiet=quiet) as progress:
        recorded = open_run(run, ranks=ranks, progress=progress, jobs=None)
    if kind != "parquet":
        refuse_inputs([target], run, [source.path for source in recorded.sources])
    options = Options(step_range=step_range, steps=steps, ranks=ranks)
    studied = analyse(recorded, options)
    report = build_report(recorded, options, studied=studied)
    with ProgressLine(quiet=quiet, doing="writing") as progress:
        _WRITERS[kind](target, studied, report, progress)
    if not target.to_stdout and not quiet:
        click.echo(f"Wrote {output}", err=True)


def _check(target: Output, kind: str, *, force: bool) -> None:
    """Refuse what cannot be written, before any work is done."""
    if kind == "perfetto" and not target.to_stdout and not _is_trace(target.target):
        raise InputError(f"{target.target}: a trace is named .json.gz or .json")
    if kind != "perfetto" and target.to_stdout:
        raise InputError(f"--to {kind} cannot be written to stdout; name a file or folder")
    if kind == "parquet":
        from trace_analyzer.export import parquet

        parquet.require()
        check_folder(Path(target.target), parquet.file_names(), force=force)
    else:
        check_outputs([target], force=force)


def _refuse_inside(path: Path, run: Path) -> None:
    """Refuse a trace among those that it is made of, where it would be read as one of them."""
    if run.is_dir() and path.resolve().is_relative_to(run.resolve()):
        raise InputError(
            f"{path}: lies inside {run}, where it would be taken for one of its traces; "
            "name a place elsewhere"
        )


def _is_trace(name: str) -> bool:
    """Tell whether a file is named like a trace, or is a device."""
    path = Path(name)
    return path.name.endswith(_TRACE_ENDINGS) or (path.exists() and not path.is_file())


def _write_perfetto(target: Output, study: Study, report: Report, progress: ProgressLine) -> None:
    from trace_analyzer.export import perfetto

    text = perfetto.trace(study, report.findings, progress)
    if target.to_stdout:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(text)
        sys.stdout.buffer.flush()
        return
    packed = _packed(text) if target.target.endswith(".gz") else text
    with replaced(target) as path, path.open("wb", buffering=_BLOCK_BYTES) as file:
        file.writelines(packed)


def _packed(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Compress as gzip, without time and name, so that the same run gives the same bytes."""
    from isal import isal_zlib

    packer = isal_zlib.compressobj(2, wbits=31)
    for block in blocks:
        yield packer.compress(block)
    yield packer.flush()


def _write_sqlite(target: Output, study: Study, report: Report, progress: ProgressLine) -> None:
    from trace_analyzer.export import contents, sqlite

    with replaced(target) as path:
        try:
            sqlite.write(
                path, contents.contents(study, report), contents.row_count(study), progress
            )
        except sqlite3.Error as error:
            raise InputError(f"{target.target}: cannot be written: {error}") from error


def _write_parquet(target: Output, study: Study, report: Report, progress: ProgressLine) -> None:
    from trace_analyzer.export import contents, parquet

    with filled_folder(Path(target.target)) as folder:
        parquet.write(folder, contents.contents(study, report), contents.row_count(study), progress)


_WRITERS: dict[str, Callable[[Output, Study, Report, ProgressLine], None]] = {
    "perfetto": _write_perfetto,
    "sqlite": _write_sqlite,
    "parquet": _write_parquet,
}
