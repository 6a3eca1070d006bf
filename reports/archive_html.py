"""The index page of an archive: every run in one table, causes, and jobs over time.

One file like the reports: no request, one style and one script that are named by their hashes.
The only links leave for the reports beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup, escape

from trace_analyzer.archive import ArchivePage, ArchiveRun, CauseCount, JobHistory, JobRun, Totals
from trace_analyzer.reports import svg_archive, units
from trace_analyzer.reports.names import cut_middle
from trace_analyzer.reports.page import content_hash, environment, static_text
from trace_analyzer.reports.svg import Scale

_LONGEST_NAME = 60
_LONGEST_CODE = 16
_LONGEST_REASON = 60
_SLOWER = 0.05  # a step that is longer by this against the run before is marked
_NONE, _TRUST, _ERROR = "none", "not judged", "error"
# "NVIDIA A100-SXM4-80GB" and "NVIDIA H100 80GB HBM3" are known as A100 and H100.
_MAKER_AND_MEMORY = re.compile(
    r"^(?:NVIDIA|AMD|Tesla|Instinct|\s)+|[\s-](?:SXM|PCI|\d+ ?GB).*$", re.IGNORECASE
)
_STATES = {"nothing": _NONE, "no-verdict": _TRUST, "failed": _ERROR}


@dataclass(frozen=True, slots=True)
class Chip:
    """A mark with a word: `tone` is a colour class, `about` stands beside it."""

    text: str
    tone: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class RunView:
    """A row of the table, as text; `values` are what its columns are sorted by."""

    name: str
    full: str
    href: str
    gone: bool
    gpus: str
    step: str
    star: bool
    spark: Markup
    chip: Chip
    ranks: str
    bar: Markup
    gain: str
    interval: str
    of_step: str
    warnings: tuple[str, ...]
    key: str
    words: str
    values: dict[str, str]


@dataclass(frozen=True, slots=True)
class JobRunView:
    """A run in the table of a job."""

    when: str
    commit: str
    name: str
    href: str
    step: str
    change: str
    slower: bool
    chip: Chip


@dataclass(frozen=True, slots=True)
class JobView:
    """One job over time."""

    heading: str
    about: str
    chart: Markup
    axis: Markup
    said: str
    runs: tuple[JobRunView, ...]


def render(page: ArchivePage) -> str:
    """Return one page of the index as a self-contained HTML document."""
    style = static_text("report.css", "archive.css")
    script = static_text("archive.js")
    gains = [run.recoverable_ms for run in page.runs if run.recoverable_ms is not None]
    upper = [run.recoverable_interval_ms[1] for run in page.runs if run.recoverable_interval_ms]
    scale = Scale.to(max([*gains, *upper], default=0.0))
    runs = [_run_view(run, scale) for run in page.runs]
    return (
        environment()
        .get_template("archive.html.j2")
        .render(
            page=page,
            title=f"{page.title} · trace-analyzer",
            counts=_counts(page.totals),
            headline=_headline(page.totals),
            lead=_lead(page),
            filters=_filters(page.runs),
            least=[units.tick_label(tick, scale.ticks[1]) for tick in scale.ticks[:-1]],
            axis=[units.tick_label(tick, scale.ticks[1]) for tick in scale.ticks],
            runs=runs,
            starred=any(run.star for run in runs),
            gone=any(run.gone for run in runs),
            causes=[_cause_view(cause) for cause in page.causes],
            jobs=[_job_view(job) for job in page.jobs],
            style=Markup(style),  # noqa: S704 - our own files
            script=Markup(script),  # noqa: S704 - likewise
            style_hash=content_hash(style),
            script_hash=content_hash(script),
        )
    )


def _counts(totals: Totals) -> list[str]:
    parts = [
        f"{totals.judged:,} judged",
        f"{totals.not_judged:,} not judged" if totals.not_judged else "",
        f"{totals.failed:,} failed" if totals.failed else "",
        f"{totals.gone:,} no longer there" if totals.gone else "",
    ]
    return [units.plural(totals.runs, "run"), ", ".join(part for part in parts if part)]


def _headline(totals: Totals) -> Markup:
    if not totals.judged:
        return escape("No run could be judged.")
    judged = units.plural(totals.judged, "judged run")
    if not totals.with_cause:
        return escape(f"None of {judged} has a cause that is worth fixing.")
    verb = "has" if totals.with_cause == 1 else "have"
    said = escape(f"{totals.with_cause:,} of {judged} {verb} a cause")
    if totals.largest is None:
        return said + "; no gain is known."
    value = f"{units.ms(totals.largest.recoverable_ms)}{units.NBSP}ms"
    gain = Markup('<span class="gain">{}</span>').format(value)
    return said + Markup("; the largest known gain is {} a step.").format(gain)


def _lead(page: ArchivePage) -> str:
    parts = []
    largest = page.totals.largest
    if largest is not None and largest.cause:
        name = cut_middle(largest.name, _LONGEST_NAME).replace("`", "'")
        parts.append(f"Most time: `{name}`, {largest.cause} {largest.cause_name}.")
    frequent = max(page.causes, key=lambda cause: cause.main_in, default=None)
    if frequent is not None and frequent.main_in > 1:
        parts.append(
            f"Most frequent: {frequent.code} {frequent.name}, "
            f"{units.plural(frequent.main_in, 'run')}."
        )
    return " ".join(parts)


def _filters(runs: tuple[ArchiveRun, ...]) -> list[tuple[str, str]]:
    """Return key and label of every chip that filters: codes by how often, then the states."""
    counted = Counter(_key(run) for run in runs)
    states = [state for state in (_NONE, _TRUST, _ERROR) if counted[state]]
    codes = sorted(set(counted) - set(states), key=lambda code: (-counted[code], code))
    return [
        (key, f"{cut_middle(key, _LONGEST_CODE)} · {counted[key]:,}") for key in (*codes, *states)
    ]


def _key(run: ArchiveRun) -> str:
    if run.state in {"failed", "no-verdict"} or run.cause is None:
        return _STATES.get(run.state, _NONE)
    return run.cause


def _chip(run: ArchiveRun) -> Chip:
    if run.state == "failed":
        return Chip("✕ error", "warn", _problem(run.reason))
    if run.state == "no-verdict":
        return Chip("! trust", "warn", "not judged")
    return _cause_chip(run.cause, run.cause_kind, run.cause_name)


def _problem(reason: str) -> str:
    """Return what is wrong, without the path before it and the advice after it."""
    where, _, problem = reason.partition(": ")
    shown = problem if problem and "/" in where else reason
    return cut_middle(shown.partition("; ")[0], _LONGEST_REASON)


def _cause_chip(code: str | None, kind: str | None, name: str) -> Chip:
    if code is None:
        return Chip("✓ none", "good", "nothing worth fixing")
    glyph, tone = ("▲", "bad") if kind != "opportunity" else ("△", "quiet")
    return Chip(f"{glyph} {cut_middle(code, _LONGEST_CODE)}", tone, cut_middle(name, _LONGEST_NAME))


def _run_view(run: ArchiveRun, scale: Scale) -> RunView:
    known = run.recoverable_ms
    judged = run.state not in {"failed", "no-verdict"}
    nothing = judged and run.cause is None
    step = units.NOT_APPLICABLE if run.state == "failed" else units.ms_cell(run.step_ms)
    gain = units.ms(known)
    if nothing:
        gain = "0"
    elif run.state == "failed":
        gain = units.NOT_APPLICABLE
    share = known / run.step_ms if known is not None and run.step_ms else None
    chip = _chip(run)
    words = " ".join((run.name, run.job, run.commit, run.gpu or "", chip.text, run.cause_name))
    return RunView(
        name=cut_middle(run.name, _LONGEST_NAME),
        full=run.name if len(run.name) > _LONGEST_NAME else "",
        href=quote(run.report),
        gone=not run.present,
        gpus=_gpus(run),
        step=step,
        star=run.step_basis == "profiled",
        spark=svg_archive.spark(run.steps_ms) if run.steps_ms else Markup(""),
        chip=chip,
        ranks=_ranks(run) if judged and run.cause else "",
        bar=(
            svg_archive.gain(scale, known, run.recoverable_interval_ms, run.cause_kind or "")
            if known is not None
            else Markup("")
        ),
        gain=gain,
        interval=units.interval(run.recoverable_interval_ms),
        of_step=units.NOT_APPLICABLE if share is None else units.percent(share),
        warnings=run.warnings,
        key=_key(run),
        words=words.lower(),
        values={
            "step": "" if run.step_ms is None else f"{run.step_ms:.4f}",
            "gain": f"{known:.4f}" if known is not None else "0" if nothing else "",
            "share": "" if share is None else f"{share:.4f}",
            "gpus": str(run.ranks),
        },
    )


def _gpus(run: ArchiveRun) -> str:
    name = _MAKER_AND_MEMORY.sub("", run.gpu or "").strip()
    if not run.ranks:
        return units.NOT_APPLICABLE
    if not name:
        return units.plural(run.ranks, "GPU")
    return f"{run.ranks:,}{units.NBSP}×{units.NBSP}{name}"


def _ranks(run: ArchiveRun) -> str:
    world = run.ranks or None
    named = units.ranks(run.cause_ranks, world)
    return "both" if named == "both ranks" else named


def _cause_view(cause: CauseCount) -> dict[str, object]:
    return {
        "chip": _cause_chip(cause.code, cause.kind, cause.name),
        "main_in": units.integer(cause.main_in),
        "runs": units.integer(cause.runs),
        "largest": units.ms(cause.largest_ms),
    }


def _job_view(job: JobHistory) -> JobView:
    gpus = f"{job.ranks:,} × {job.gpu}" if job.ranks and job.gpu else job.gpu or "GPU unknown"
    first, last = job.runs[0].step_ms, job.runs[-1].step_ms
    said = (
        f"Step time of {job.job} over {units.plural(len(job.runs), 'run')}: first "
        f"{units.ms(first)} ms, last {units.ms(last)} ms, highest "
        f"{units.ms(max(run.step_ms for run in job.runs))} ms."
    )
    earlier = f" · {job.earlier:,} earlier ones in index.db" if job.earlier else ""
    basis = (
        "under the profiler" if job.step_basis == "profiled" else f"{job.step_basis}, unprofiled"
    )
    return JobView(
        heading=cut_middle(job.job, _LONGEST_NAME),
        about=f"{gpus} · step {basis} · {units.plural(len(job.runs), 'run')}{earlier}",
        chart=svg_archive.history(job, said),
        axis=svg_archive.history_axis(job),
        said=said,
        runs=tuple(_job_run_view(run) for run in reversed(job.runs)),
    )


def _job_run_view(run: JobRun) -> JobRunView:
    slower = run.change is not None and run.change >= _SLOWER
    change = units.NOT_APPLICABLE if run.change is None else units.signed_percent(run.change)
    if run.state == "no-verdict":
        chip = Chip("! trust", "warn", "not judged")
    else:
        chip = _cause_chip(run.cause, None, run.cause_name)
    return JobRunView(
        when=run.started[:16].replace("T", " "),
        commit=cut_middle(run.commit, 16) or units.NOT_APPLICABLE,
        name=cut_middle(run.name, _LONGEST_NAME),
        href=quote(run.report),
        step=units.ms_cell(run.step_ms),
        change=f"▲ {change}" if slower else change,
        slower=slower,
        chip=chip,
    )


__all__ = ["render"]
