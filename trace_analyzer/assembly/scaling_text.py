"""The sentences of the scaling document."""

from __future__ import annotations

from collections.abc import Sequence

from trace_analyzer.analyses.scaling.efficiency import VERDICT_STEPS, Mode
from trace_analyzer.scaling_document import ScalingPoint, ScalingRun, ScalingVerdict

TERM_WORDS = {
    "kernels": "kernels",
    "contention": "compute slowed while data moves",
    "exposed-transfer": "transfer that no compute hides",
    "wait": "waiting for late ranks",
    "exposed-communication": "communication that no compute hides",
    "copies": "copies that nothing hides",
    "gaps": "gaps between operations",
    "host": "late launches",
}
_NEXT = {
    "kernels": (
        "Compare the kernels of both runs (`trace-analyzer compare`): those that take more than "
        "their share work on too small a batch. A larger batch a rank, or fused kernels, gives it back."
    ),
    "contention": (
        "Try fewer NCCL channels for this run, and measure both: communication takes compute units "
        "and memory bandwidth from kernels."
    ),
    "exposed-transfer": (
        "Run `trace-analyzer analyze` on this run and look under NCCL: which collectives end after "
        "the compute that could hide them."
    ),
    "wait": "Run `trace-analyzer analyze` on this run: it says which rank comes late, and why.",
    "exposed-communication": (
        "Record every rank of this run: one alone cannot tell waiting for a peer from moving data."
    ),
    "copies": "Run `trace-analyzer analyze` on this run and look at its copies.",
    "gaps": (
        "Launch fewer, larger kernels (torch.compile, CUDA graphs): what passes between two kernels "
        "does not shrink with the batch."
    ),
    "host": "Run `trace-analyzer analyze` on this run: it says what the host did before late launches.",
}
_MORE_STEPS = (
    f"Time at least {VERDICT_STEPS} steps of each run without a profiler (`trace-analyzer collect "
    "torch` does), better in three runs each."
)


def percent(fraction: float) -> str:
    """Return "84.1 %"."""
    return f"{100 * fraction:.1f} %"


def _bounds(bounds: Sequence[float] | None, *, as_percent: bool = False) -> str:
    if bounds is None:
        return ""
    factor = 100 if as_percent else 1
    return f" [{factor * bounds[0]:.1f}, {factor * bounds[1]:.1f}]"


def verdict_of(
    docs: Sequence[ScalingPoint], mode: Mode, runs: Sequence[ScalingRun], *, profiled: bool
) -> ScalingVerdict:
    """Return the answer about the largest number of ranks."""
    base, top = docs[0], docs[-1]
    if top.comparable is False:
        return _refused(base, top)
    assert top.efficiency is not None
    assert top.loss_ms is not None
    word = f"{top.ranks} ranks, {mode} scaling"
    value = f"E = {percent(top.efficiency)}{_bounds(top.efficiency_interval, as_percent=True)}"
    proof = " ".join([_times(base, top), *_parts(top), *_stretches(runs)])
    if top.insufficient:
        return ScalingVerdict(
            state="no-verdict",
            headline=f"{word}: {value}. No verdict: {top.insufficient}.",
            proof=proof,
            do_next=_more(top.insufficient, profiled=profiled),
        )
    lost = top.loss_interval_ms is None or top.loss_interval_ms[0] > 0
    if not lost:
        told = "more than ideal" if top.loss_ms < 0 else "no loss is told from none"
        return ScalingVerdict(
            state="scales", headline=f"{word}: {value}, {told}.", proof=proof, do_next=""
        )
    return ScalingVerdict(
        state="loses",
        headline=f"{word}: {value}. Lost: {top.loss_ms:.1f} of {top.step_ms:.1f} ms a step.",
        proof=proof,
        do_next=_next(top),
    )


def _refused(base: ScalingPoint, top: ScalingPoint) -> ScalingVerdict:
    refusing = [item for item in top.differences if item.refuses]
    names = ", ".join(item.what for item in refusing)
    return ScalingVerdict(
        state="not-comparable",
        headline=f"The runs of {base.ranks} and {top.ranks} ranks are not comparable: {names}.",
        proof=" ".join(
            f"{item.what[:1].upper()}{item.what[1:]}: {item.base} against {item.other}."
            for item in refusing
        ),
        do_next="Record both with the same program, batch, versions and settings.",
    )


def _times(base: ScalingPoint, top: ScalingPoint) -> str:
    assert top.ideal_ms is not None
    assert top.loss_ms is not None
    return (
        f"A step takes {base.step_ms:.1f} ms on {base.ranks} and {top.step_ms:.1f} ms on "
        f"{top.ranks} ranks; ideal would be {top.ideal_ms:.1f} ms, so that {top.loss_ms:.1f} ms"
        f"{_bounds(top.loss_interval_ms)} a step are lost."
    )


def _parts(top: ScalingPoint) -> list[str]:
    if not top.loss or top.residual_ms is None:
        return []
    large = sorted(
        (term for term in top.loss if abs(term.ms) >= 0.05), key=lambda term: -abs(term.ms)
    )
    listed = [f"{term.ms:.1f} ms {TERM_WORDS[term.term]}" for term in large]
    listed.append(f"{top.residual_ms:.1f} ms not explained")
    sentences = [f"Of it {', '.join(listed)}.".replace("-", "−")]
    if top.explained is False and top.residual_share is not None:
        sentences.append(
            f"That leaves {100 * top.residual_share:.0f} % of the loss: it is not explained."
        )
    return sentences


def _stretches(runs: Sequence[ScalingRun]) -> list[str]:
    """Say where the level of the steps changed."""
    sentences = []
    for run in runs:
        if len(run.segments) > 1:
            levels = " → ".join(f"{part.median_ms:.1f}" for part in run.segments)
            steps = ", ".join(str(part.first) for part in run.segments[1:])
            sentences.append(
                f"The steps of {run.name} change their level ({levels} ms, at step {steps}); the "
                "longest stretch counts."
            )
    return sentences


def _more(lacking: str, *, profiled: bool) -> str:
    if "worth" in lacking:
        return (
            "Start each run three times: its steps resemble their neighbours, so that more of them "
            "in one start tell little."
        )
    if not profiled:
        return _MORE_STEPS
    return (
        "Time steps of each run without a profiler: under it the host is slower, and several ranks "
        "lose more by that than one."
    )


def _next(top: ScalingPoint) -> str:
    if top.explained is False:
        return (
            "Record both runs again with a step timer: what the traces show is not what was lost."
        )
    terms = [term for term in top.loss if term.ms > 0]
    if not terms:
        return "Record traces of both runs: they say where the loss goes."
    return _NEXT[max(terms, key=lambda term: term.ms).term]


def assumptions(mode: Mode) -> list[str]:
    """Return what a projection takes for granted."""
    work = (
        "the global batch stays, is shared equally, and kernels lose no more on smaller parts of it"
        if mode == "strong"
        else "every rank keeps its batch"
    )
    return [
        work,
        "further ranks are joined by links as fast as those measured, also between hosts",
        "communication is a ring's: what a rank sends grows as (n - 1) / n",
        "no rank is later than in the measured runs",
    ]
