"""The command group: verbs by name, errors in one line, exit codes by contract.

0 done; 1 findings at or above --fail-on; 2 usage or unreadable input; 130 interrupted; 141 and
143 as the shell names a closed pipe and a termination.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import click

from trace_analyzer.errors import TraceAnalyzerError

EXIT_FINDINGS = 1
EXIT_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141
EXIT_TERMINATED = 143
_DEBUG = "trace_analyzer.debug"


class InputError(click.ClickException):
    """An error that the user can mend: one line, exit code 2."""

    exit_code = EXIT_INPUT


@dataclass(frozen=True, slots=True)
class Verb:
    """Where a command is defined, and its line in the list of commands."""

    target: str  # "module:name"
    summary: str


class LazyGroup(click.Group):
    """A group that imports a command when it is called."""

    def __init__(self, *args: Any, verbs: Mapping[str, Verb], **settings: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **settings)
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names in the order in which they are declared."""
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a command, None where there is none of this name."""
        verb = self._verbs.get(cmd_name)
        if verb is None:
            return None
        module, _, name = verb.target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in self._verbs.items()])

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        """Run a command; turn what can go wrong into one line and exit code 2."""
        try:
            return super().invoke(ctx)
        except TraceAnalyzerError as error:
            _show_traceback(ctx)
            raise InputError(_one_line(error)) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            _discard_stdout()
            raise click.exceptions.Exit(EXIT_PIPE_CLOSED) from None
        except OSError as error:
            _show_traceback(ctx)
            where = f"{error.filename}: " if error.filename else ""
            raise InputError(where + (error.strerror or str(error))) from error
        except MemoryError as error:
            _show_traceback(ctx)
            raise InputError("not enough memory; analyze fewer ranks with --ranks") from error
        except Exception as error:
            _show_traceback(ctx)
            raise InputError(
                f"defect in trace-analyzer: {type(error).__name__}: {_one_line(error)}; "
                "run it again with --debug and report the output"
            ) from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Run the program and exit with its code (`standalone_mode`), or return its result."""
        settings = {"windows_expand_args": windows_expand_args, **extra}
        run = partial(
            super().main, args, prog_name, complete_var, standalone_mode=False, **settings
        )
        return _exit(run) if standalone_mode else run()


def debug_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--debug`, which shows the traceback of an error."""

    def note(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[_DEBUG] = value

    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=note,
        help="Show the traceback of an error.",
    )(function)


def _show_traceback(ctx: click.Context) -> None:
    if ctx.meta.get(_DEBUG):
        click.echo(traceback.format_exc(), err=True, nl=False)


def _discard_stdout() -> None:
    """Give what is still to be flushed, at the latest at exit, somewhere to go."""
    with contextlib.suppress(OSError, ValueError):  # a stdout that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _exit(run: Callable[[], Any]) -> NoReturn:
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign shows "?"
    try:
        code = run()
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("Interrupted.", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        _discard_stdout()
        sys.exit(EXIT_PIPE_CLOSED)
    sys.exit(code if isinstance(code, int) else 0)
