"""Builds the report of a run."""

from __future__ import annotations

from trace_analyzer import __version__
from trace_analyzer.analyses.host_steps import range_names
from trace_analyzer.analyses.replay.replay import replay
from trace_analyzer.analyses.study import Study, StudyOptions, study
from trace_analyzer.analyses.unprofiled import unprofiled_step
from trace_analyzer.assembly.header import environment_doc, run_doc, steps_doc, warning_docs
from trace_analyzer.assembly.options import Options
from trace_analyzer.assembly.peers import (
    answer_docs,
    clock_docs,
    contention_docs,
    group_docs,
    late_rank_docs,
    lateness_doc,
    link_docs,
    transport_docs,
)
from trace_analyzer.assembly.ranks import rank_docs
from trace_analyzer.assembly.redact import redact
from trace_analyzer.assembly.replayed import replay_doc, with_replay
from trace_analyzer.assembly.tables import collective_docs, kernel_docs
from trace_analyzer.assembly.verdict import verdict_of
from trace_analyzer.errors import TraceAnalyzerError
from trace_analyzer.findings import SCHEMA_VERSION, Report, Tool
from trace_analyzer.model import Run
from trace_analyzer.rules.catalogue import chosen, rules
from trace_analyzer.rules.context import Context
from trace_analyzer.rules.judge import diagnose


def analyse(run: Run, options: Options) -> Study:
    """Run the analyses that the report and the timeline read from."""
    results = study(run, StudyOptions(step_range=options.step_range, steps=options.steps))
    if results.ranks and not any(len(item.steps) for item in results.ranks.values()):
        _refuse_range(results, options.step_range)
    elif results.ranks and options.steps is not None and not results.steady.used:
        numbers = sorted({int(n) for item in results.ranks.values() for n in item.steps.index})
        wanted = f"{options.steps[0]}:{options.steps[1]}"
        raise TraceAnalyzerError(
            f"--steps {wanted}: no such step; complete ones are {numbers[0]} to {numbers[-1]}"
        )
    return results


def _refuse_range(results: Study, step_range: str | None) -> None:
    if step_range is None:
        return
    names = sorted({name for rank in results.run.ranks for name in range_names(rank)})
    listed = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    raise TraceAnalyzerError(
        f"--step-range {step_range!r}: no step is cut by it; ranges that repeat: {listed or 'none'}"
    )


def build_report(
    run: Run, options: Options | None = None, *, studied: Study | None = None
) -> Report:
    """Return the report of a run; `studied` saves analysing it again."""
    options = options or Options()
    results = studied or analyse(run, options)
    plain = unprofiled_step(run.unprofiled, options.unprofiled_step_ms)
    answer = replay(results, None if plain is None else plain.step_ms * 1e6)
    withheld, replayed = (answer, None) if isinstance(answer, str) else ("", answer)
    context = Context(study=results, replay=replayed, withheld=withheld)
    asked = chosen(options.select, options.ignore)
    diagnosis = diagnose(context, asked)
    steps = with_replay(steps_doc(results, plain), replayed)
    ranks = rank_docs(results)
    report = Report(
        schema_version=SCHEMA_VERSION,
        tool=Tool(name="trace-analyzer", version=__version__, options=options.echo()),
        run=run_doc(run),
        warnings=warning_docs(results, steps),
        verdict=verdict_of(results, steps, ranks, diagnosis, len(rules()) - len(asked)),
        findings=diagnosis.findings,
        checks=diagnosis.checks,
        steps=steps,
        ranks=ranks,
        collectives=collective_docs(results),
        lateness=lateness_doc(results),
        late_ranks=late_rank_docs(results),
        contention=contention_docs(results),
        clock=clock_docs(results),
        groups=group_docs(results),
        links=link_docs(results),
        transports=transport_docs(results),
        replay=replay_doc(replayed, diagnosis.joint, options.what_if),
        answers=answer_docs(results),
        kernels=kernel_docs(results),
        environment=environment_doc(run),
    )
    return redact(report) if options.redact else report
