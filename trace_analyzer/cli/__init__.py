"""The command line: verbs are loaded when they are called, so that `--help` answers at once."""

from __future__ import annotations

import os
import sys

import click

from trace_analyzer import __version__
from trace_analyzer.cli.group import LazyGroup, Verb

VERBS = {
    "analyze": Verb(
        "trace_analyzer.cli.analyze:analyze", "Say where the time of a run went, and why."
    ),
    "compare": Verb(
        "trace_analyzer.cli.compare:compare", "Say what changed from one run to another."
    ),
    "scaling": Verb(
        "trace_analyzer.cli.scaling:scaling",
        "Say what several GPUs give against one, and where the loss goes.",
    ),
    "export": Verb(
        "trace_analyzer.cli.export:export", "Hand a run over to Perfetto, SQLite or Parquet."
    ),
    "batch": Verb(
        "trace_analyzer.cli.batch:batch", "Analyze every run of an archive and index them."
    ),
    "demo": Verb(
        "trace_analyzer.cli.demo:demo", "Analyze the shipped sample and write its report."
    ),
    "collect": Verb("trace_analyzer.cli.collect:collect", "Run training and record a bundle."),
    "bench": Verb(
        "trace_analyzer.cli.bench:bench", "Measure what this host's GPUs and links give."
    ),
    "explain": Verb("trace_analyzer.cli.explain:explain", "Explain a code of a report."),
    "rules": Verb(
        "trace_analyzer.cli.explain:rules",
        "List the causes that are looked for, and the data warnings.",
    ),
    "doctor": Verb(
        "trace_analyzer.cli.doctor:doctor", "Say what this installation and a run can answer."
    ),
    "completion": Verb(
        "trace_analyzer.cli.completion:completion", "Print the completion script of a shell."
    ),
}


@click.group(
    cls=LazyGroup,
    verbs=VERBS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: trace-analyzer analyze runs/healthy --html report.html",
)
@click.version_option(__version__, "-V", "--version", prog_name="trace-analyzer")
def cli() -> None:
    """Say why a multi-GPU training step is slow, from its traces alone."""


def main() -> None:
    """Run the command line; this is the `trace-analyzer` program."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (>&-): there is nobody to tell
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    cli.main(prog_name="trace-analyzer")
