"""The fault lab's commands: `python -m trace_analyzer.collectors.faultlab --help`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO

import click

from trace_analyzer.collectors.faultlab.matrices import MATRICES, matrix
from trace_analyzer.collectors.faultlab.nsys import Nsys
from trace_analyzer.collectors.faultlab.occasion import Occasion, State
from trace_analyzer.collectors.faultlab.timing import Protocol

ANY_PATH = click.Path(path_type=Path)


@click.group()
def main() -> None:
    """Record training runs whose faults and costs are known."""


@main.command()
@click.option("--budget-s", type=float, required=True, help="Seconds that the call may take.")
@click.option("--out", type=ANY_PATH, required=True, help="Folder for the archives.")
@click.option("--state", "state_path", type=ANY_PATH, required=True, help="What is done already.")
@click.option("--matrix", "name", type=click.Choice(sorted(MATRICES)), required=True)
@click.option("--match", default="", help="Only runs whose name contains this.")
@click.option("--work", type=ANY_PATH, help="Folder for unpacked runs; kept. Default: temporary.")
@click.option("--label", default="occasion", show_default=True, help="Name of the archives.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True)
@click.option("--ranks", "size", type=int, default=2, show_default=True)
@click.option("--pairs", type=int, default=4, show_default=True, help="Healthy/faulty segments.")
@click.option("--max-pairs", type=int, default=6, show_default=True)
@click.option("--segment-steps", type=int, default=15, show_default=True)
@click.option("--nsys", "nsys_program", default="", help="nsys, for the runs that want it.")
@click.option("--nsys-importer", default="", help="QdstrmImporter, where nsys cannot import.")
@click.option("--nsys-libraries", default="", help="Folders of libraries for the importer.")
def record(  # noqa: PLR0913
    *,
    budget_s: float,
    out: Path,
    state_path: Path,
    name: str,
    match: str,
    work: Path | None,
    label: str,
    device: str,
    size: int,
    pairs: int,
    max_pairs: int,
    segment_steps: int,
    nsys_program: str,
    nsys_importer: str,
    nsys_libraries: str,
) -> None:
    """Record as many runs of a matrix as the budget allows; call again to go on."""
    folder = work or Path(tempfile.mkdtemp(prefix="faultlab-"))
    began = time.monotonic()

    def say(line: str) -> None:
        click.echo(f"[{time.monotonic() - began:6.1f} s] {line}", err=True)

    nsys = None
    if nsys_program:
        nsys = Nsys(program=nsys_program, importer=nsys_importer, libraries=nsys_libraries)
        os.environ["FAULTLAB_NSYS"] = nsys_program  # for the exports in the background
        os.environ["FAULTLAB_NSYS_IMPORTER"] = nsys_importer
        os.environ["FAULTLAB_NSYS_LIBRARIES"] = nsys_libraries
    try:
        archives = Occasion(
            specs=[spec for spec in matrix(name) if match in spec.key],
            state=State.load(state_path),
            out=out,
            work=folder,
            budget_s=budget_s,
            size=size,
            device=device,
            nsys=nsys,
            protocol=Protocol(pairs=pairs, max_pairs=max_pairs, segment_steps=segment_steps),
            say=say,
            label=label,
        ).run()
    finally:
        if work is None:
            shutil.rmtree(folder, ignore_errors=True)
    for archive in archives:
        click.echo(archive)


@main.command(name="list")
@click.option("--matrix", "name", type=click.Choice(sorted(MATRICES)))
def list_faults(name: str | None) -> None:
    """List all faults, or the runs of a matrix with their set."""
    from trace_analyzer.collectors.faultlab.fault import all_faults

    if name is not None:
        for spec in matrix(name):
            click.echo(f"{spec.set:5} {'+'.join(spec.recorders):12} {spec.key}")
        return
    for fault, kind in all_faults().items():
        amounts = ", ".join(f"{amount:g}" for amount in kind.magnitudes)
        click.echo(
            f"{fault:28} {' '.join(kind.causes) or '-':22} {' '.join(kind.codes()) or '-':24} "
            f"{amounts} {kind.unit}"
        )


@main.command()
@click.argument("folders", nargs=-1, required=True, type=ANY_PATH)
@click.option("-o", "--output", type=click.File("w"), default="-", help="File; else stdout.")
def index(folders: tuple[Path, ...], output: TextIO) -> None:
    """Write a table of the labelled runs in FOLDERS."""
    from trace_analyzer.collectors.faultlab.index import rows, write

    write(rows(folders), output)


@main.command(hidden=True)
@click.argument("address")
def worker(address: str) -> None:
    """Be one rank."""
    from trace_analyzer.collectors.faultlab.worker import main as work

    work([address])


@main.command(hidden=True)
@click.argument("size", type=int)
@click.argument("address")
def ranks(size: int, address: str) -> None:
    """Start all ranks of a group."""
    from trace_analyzer.collectors.faultlab.launch import run_ranks

    sys.exit(run_ranks(size, address))


@main.command(hidden=True, name="prune-kineto")
@click.argument("source", type=ANY_PATH)
@click.argument("target", type=ANY_PATH)
def prune_kineto(source: Path, target: Path) -> None:
    """Prune a torch.profiler trace and delete the original."""
    from trace_analyzer.collectors.faultlab.prune_kineto import prune

    click.echo(f"{target.parent.name}/{target.name}: {prune(source, target)}")
    source.unlink()


@main.command(hidden=True, name="export-nsys")
@click.argument("source", type=ANY_PATH)
@click.argument("target", type=ANY_PATH)
@click.option("--nsys", "program", envvar="FAULTLAB_NSYS", default="nsys")
@click.option("--importer", envvar="FAULTLAB_NSYS_IMPORTER", default="")
@click.option("--libraries", envvar="FAULTLAB_NSYS_LIBRARIES", default="")
def export_nsys(source: Path, target: Path, program: str, importer: str, libraries: str) -> None:
    """Export what nsys left to SQLite and prune it."""
    from trace_analyzer.collectors.faultlab.prune_nsys import prune

    whole = source.with_name(f"{source.stem}.whole.sqlite")
    nsys = Nsys(program=program, importer=importer, libraries=libraries)
    nsys.export(source, whole)
    click.echo(f"{target.parent.name}/{target.name}: {prune(whole, target)}")
    whole.unlink()


if __name__ == "__main__":
    main()
