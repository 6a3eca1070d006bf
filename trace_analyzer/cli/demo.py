"""`trace-analyzer demo`."""

from __future__ import annotations

from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from trace_analyzer.cli.analyze import print_verdict, report_run
from trace_analyzer.cli.group import InputError, debug_option
from trace_analyzer.cli.outputs import STDOUT, Output, check_outputs

_REPORT_NAME = "trace-analyzer-demo.html"


@click.command(
    short_help="Analyze the shipped sample and write its report.",
    epilog="Example: trace-analyzer demo --html /tmp/demo.html",
)
@click.option(
    "--html", metavar="F", default=_REPORT_NAME, show_default=True, help="Where to write."
)
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@debug_option
def demo(*, html: str, force: bool) -> None:
    """Analyze a real two-rank run that is shipped with the program, and write its report."""
    output = Output("--html", html)
    check_outputs([output], force=force)
    from trace_analyzer.assembly import Options
    from trace_analyzer.readers.discovery import open_run

    with as_file(sample()) as folder:
        report = report_run(open_run(str(folder)), Options(), [output], quiet=True)
    if html == STDOUT:
        return
    print_verdict(report)
    click.echo(f"\nThe report is at {Path(html).absolute()}")


def sample() -> Traversable:
    """Return the folder of the shipped sample.

    Raises `InputError` where this installation does not have it.
    """
    folder = files("trace_analyzer.data").joinpath("sample")
    if not folder.is_dir() or not any(True for _ in folder.iterdir()):
        raise InputError(
            "this installation has no sample; install trace-analyzer from a wheel, "
            "or analyze a run of your own"
        )
    return folder
