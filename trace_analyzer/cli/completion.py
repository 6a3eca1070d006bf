"""`trace-analyzer completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from trace_analyzer.cli.group import debug_option

_SHELLS = ("bash", "zsh", "fish")


@click.command(
    short_help="Print the completion script of a shell.",
    epilog='Example: eval "$(trace-analyzer completion bash)"',
)
@click.argument("shell", type=click.Choice(_SHELLS))
@debug_option
def completion(*, shell: str) -> None:
    """Print the script that completes commands and options; put it into your shell's profile."""
    from trace_analyzer.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None  # click ships these three
    script = kind(cli, {}, "trace-analyzer", "_TRACE_ANALYZER_COMPLETE")
    # The bash class's own source() starts a bash to ask for its version; the script is the same.
    click.echo(script.source_template % script.source_vars())
