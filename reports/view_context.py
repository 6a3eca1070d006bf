"""Where the numbers come from: environment, inputs, the command, what was checked."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from trace_analyzer.findings import Check, Report
from trace_analyzer.reports import summary, units
from trace_analyzer.reports.names import cut_middle
from trace_analyzer.reports.tables import Cell, Column, Table

KINDS = {
    "kineto": "Kineto trace",
    "nsys": "nsys export",
    "timer": "step timer",
    "environment": "environment",
    "calibration": "calibration",
    "sampler": "GPU sampler",
    "bench": "benchmark",
    "nccl-log": "NCCL log",
    "flight-recorder": "Flight Recorder",
    "manifest": "bundle manifest",
}
_HASH_DIGITS = 16
_ORDER = {"error": 0, "passed": 1, "not-distinguishable": 2, "not-applicable": 3}
_GLYPHS = {"error": "✕", "passed": "✓", "not-distinguishable": "≈", "not-applicable": "–"}
_WORDS = {
    "error": "error",
    "not-distinguishable": "not distinguishable",
    "not-applicable": "not applicable",
}
_LONGEST_VALUE = 400
_EACH_RANK_UP_TO = 8
_VERSIONS = {
    "cuda": "CUDA",
    "nccl": "NCCL",
    "cupti": "CUPTI",
    "hip": "HIP",
    "rocm": "ROCm",
    "rccl": "RCCL",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the environment; `differs` where ranks disagree."""

    name: str
    value: str
    differs: bool
    code: bool


@dataclass(frozen=True, slots=True)
class EnvironmentView:
    """What ran, differences between ranks first."""

    differences: tuple[str, ...]
    settings: tuple[Setting, ...]
    ranks: int


@dataclass(frozen=True, slots=True)
class CheckView:
    """One rule that is not listed as a finding."""

    glyph: str
    code: str
    text: str
    tone: str


@dataclass(frozen=True, slots=True)
class InputsView:
    """What was read and how to do it again."""

    table: Table | None
    command: str
    facts: tuple[str, ...]


def environment_view(report: Report) -> EnvironmentView:
    """Arrange the allow-listed values: those that differ between ranks first."""
    values: dict[str, dict[str, list[str]]] = {}
    for rank, given in report.environment.per_rank.items():
        for name, value in given.items():
            key = name.removeprefix("version.")
            if value == report.run.versions.get(key) or (key, value) == ("gpu", report.run.gpu):
                continue
            values.setdefault(key, {}).setdefault(value, []).append(rank)
    ranks = len(report.environment.per_rank)
    settings = [_setting(key, held, ranks) for key, held in sorted(values.items())]
    known = {setting.name for setting in settings}
    head = (
        [Setting("GPU", report.run.gpu or "", differs=False, code=False)] if report.run.gpu else []
    )
    if report.run.hosts:
        head.append(Setting("Hosts", ", ".join(report.run.hosts), differs=False, code=False))
    for key, value in sorted(report.run.versions.items()):
        if key not in known:
            head.append(Setting(_VERSIONS.get(key, key), value, differs=False, code=False))
    if report.run.command:
        head.append(Setting("Training command", report.run.command, differs=False, code=False))
    head = [replace(setting, value=cut_middle(setting.value, _LONGEST_VALUE)) for setting in head]
    settings.sort(key=lambda setting: not setting.differs)
    return EnvironmentView(tuple(report.environment.differences), (*head, *settings), ranks)


def _setting(key: str, held: dict[str, list[str]], ranks: int) -> Setting:
    code = key.isupper() or "_" in key
    owners = sum(len(members) for members in held.values())
    if len(held) == 1 and owners == ranks:
        return Setting(key, next(iter(held)), differs=False, code=code)
    parts = []
    for value, members in held.items():
        numbers = sorted(int(rank) for rank in members)
        parts.append(f"{value} ({units.ranks(numbers)})")
    if owners < ranks:
        parts.append(f"not set ({units.plural(ranks - owners, 'rank')})")
    return Setting(key, " · ".join(parts[:_EACH_RANK_UP_TO]), differs=True, code=code)


def inputs_view(report: Report) -> InputsView:
    """Arrange the files and the command."""
    rows = []
    for source in report.run.sources:
        counted = source.kind in {"kineto", "nsys"}
        rows.append(
            (
                Cell(source.path, "mono path"),
                Cell(KINDS.get(source.kind, source.kind), quiet=source.tool),
                Cell(units.ranges(source.ranks) if source.ranks else units.NOT_APPLICABLE),
                Cell(units.decimal(source.bytes / 1e3, 0)),
                Cell(units.integer(source.gpu_operations) if counted else units.NOT_APPLICABLE),
                Cell(digits(source.sha256), "mono", full=source.sha256),
            )
        )
    columns = (
        Column("File", numeric=False, wide=True),
        Column("Kind", numeric=False),
        Column("Rank", numeric=False),
        Column("Size", "kB"),
        Column("GPU operations"),
        Column("sha256", numeric=False),
    )
    table = Table("Files that were read", columns, tuple(rows)) if rows else None
    return InputsView(table, command(report), tuple(_facts(report)))


def digits(sha256: str) -> str:
    """Return the first digits of a hash."""
    return f"{sha256[:_HASH_DIGITS]}…" if len(sha256) > _HASH_DIGITS else sha256


REPEATED = ("ignore", "select", "what_if")  # options that take one value each time


def command(report: Report) -> str:
    """Return the command that makes this report, from the options that the report carries.

    `options["run"]` is the path as given (the run's name without it); the others become flags.
    """
    options = dict(report.tool.options)
    run = str(options.pop("run", "") or report.run.name)
    words = [report.tool.name, "analyze", run]
    for key, value in sorted(options.items()):
        flag = f"--{key.replace('_', '-')}"
        if value is None or value is False or value in ((), [], ""):
            continue
        if value is True:
            words.append(flag)
        elif key in REPEATED:
            words += [word for item in value for word in (flag, str(item))]
        elif isinstance(value, list | tuple):
            between = ":" if key == "steps" else ","  # a range A:B, or a list
            words += [flag, between.join(str(item) for item in value)]
        else:
            words += [flag, str(value)]
    return shlex.join(words)


def _facts(report: Report) -> list[str]:
    steps = report.steps
    facts = [f"{report.tool.name} {report.tool.version}", f"report schema {report.schema_version}"]
    if steps.boundary:
        facts.append(f"step boundary: {steps.boundary}")
    if steps.replay_error is not None:
        facts.append(f"replay error {units.percent(steps.replay_error)}")
    if steps.bound:
        facts.append(f"bound by the {steps.bound}" if steps.bound != "mixed" else "bound by both")
    bases = dict.fromkeys(rank.rank_basis for rank in report.ranks if rank.rank_basis)
    if bases:
        facts.append(f"ranks numbered by {' and '.join(bases)}")
    residual = max((clock.residual_us for clock in report.clock), default=None)
    if residual is not None:
        facts.append(f"clock residual {units.us(residual)}{units.NBSP}µs")
    return facts


def check_views(report: Report) -> tuple[CheckView, ...]:
    """Return errors first, then passed, then what could not be told or does not apply."""
    ordered = sorted(report.checks, key=lambda check: (_ORDER[check.state], check.code))
    return tuple(_check(check) for check in ordered)


def _check(check: Check) -> CheckView:
    words = [check.name, _WORDS.get(check.state, "")]
    text = ", ".join(word for word in words if word)
    reason = check.reason
    if check.needs and check.state == "not-applicable":
        reason = f"{reason.rstrip('.')}: needs {check.needs}" if reason else f"needs {check.needs}"
    tones = {"passed": "good", "error": "warn"}
    joined = f"{text}: {reason}" if text and reason else text or reason
    return CheckView(_GLYPHS[check.state], check.code, joined, tones.get(check.state, "quiet"))


def check_counts(report: Report) -> str:
    """Return how many causes were listed, passed and not applicable."""
    counts = {key: sum(check.state == key for check in report.checks) for key in _ORDER}
    total = len(report.checks) + len(report.findings)
    parts = [f"{len(report.findings)} listed above", f"{counts['passed']} passed"]
    for key, words in (
        ("not-distinguishable", "not distinguishable"),
        ("not-applicable", "not applicable"),
        ("error", "in error"),
    ):
        if counts[key]:
            parts.append(f"{counts[key]} {words}")
    return f"{units.plural(total, 'cause')}: {', '.join(parts)}."


def title(report: Report) -> str:
    """Return the document's title."""
    return f"{report.run.name}: {summary.state(report).words.split(' · ')[0]}"
