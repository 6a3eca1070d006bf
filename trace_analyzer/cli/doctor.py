"""`trace-analyzer doctor`."""

from __future__ import annotations

import sys
import textwrap

import click

from trace_analyzer import __version__
from trace_analyzer.cli.group import InputError, debug_option
from trace_analyzer.cli.progress import ProgressLine
from trace_analyzer.cli.terminal import text_width, use_color

_COLORS = {"yes": "green", "partial": "yellow", "no": "red"}
_STATE_CHARACTERS = 9


@click.command(
    short_help="Say what this installation and a run can answer.",
    epilog="Example: trace-analyzer doctor runs/healthy",
)
@click.argument("run", required=False)
@debug_option
def doctor(*, run: str | None) -> None:
    """Say what this installation can do and, given a RUN, which questions it can answer."""
    width = text_width(sys.stdout)
    color = use_color(sys.stdout)
    _installation(color=color, width=width)
    if run is None:
        return
    from trace_analyzer.analyses.answers import answers
    from trace_analyzer.readers.discovery import open_run

    with ProgressLine() as progress:
        recorded = open_run(run, progress=progress, jobs=None)
    count = len(recorded.ranks)
    click.echo(f"\n{run}: {count} rank{'s' if count > 1 else ''}, {recorded.ranks[0].source}")
    for answer in answers(recorded):
        state = click.style(answer.state.ljust(_STATE_CHARACTERS), fg=_COLORS[answer.state])
        _item(state, answer.question, color=color, width=width)
        for text in (answer.reason, f"To know: {answer.needs}" if answer.needs else ""):
            if text:
                _item(" " * _STATE_CHARACTERS, text, color=color, width=width)


def _installation(*, color: bool, width: int) -> None:
    from trace_analyzer.installation import parts

    click.echo(f"trace-analyzer {__version__}")
    broken = []
    for part in parts():
        word = "yes" if part.present else "no"
        shown = "green" if part.present else "red" if part.needed else "yellow"
        state = click.style(word.ljust(_STATE_CHARACTERS), fg=shown)
        _item(state, f"{part.name} {part.detail}", color=color, width=width)
        if part.needed and not part.present:
            broken.append(part.name)
    if broken:
        raise InputError(
            f"this installation lacks {', '.join(broken)}; install trace-analyzer again"
        )


def _item(mark: str, text: str, *, color: bool, width: int) -> None:
    first, *rest = textwrap.wrap(text, width - _STATE_CHARACTERS) or [""]
    click.echo(mark + first, color=color)
    for line in rest:
        click.echo(" " * _STATE_CHARACTERS + line)
