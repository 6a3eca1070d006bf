"""What every field of the documents of `scaling` and `compare` means, as `field_meanings` for reports.

A field without an entry, and an entry without a field, fail a test.
"""

from __future__ import annotations

from collections.abc import Mapping

from trace_analyzer.field_meanings import MEANINGS

_INTERVAL = "95 % interval, [low, high]; null where it cannot be given"
_COMMON: Mapping[str, Mapping[str, str]] = {
    **{name: MEANINGS[name] for name in ("Tool", "WarningDoc", "SourceDoc")},
    "Difference": {
        "what": "in what the runs differ",
        "base": "value of the base",
        "other": "value of the other run",
        "refuses": "whether it takes the meaning of the comparison away",
    },
}
_EFFICIENCY = {
    "efficiency": (
        "E of median steady steps: strong b T_b / (n T_n), weak T_b / T_n; null where the runs are "
        "not comparable"
    ),
    "efficiency_interval": _INTERVAL,
    "efficiency_wallclock": "E of mean steps, rare long steps included; null without step times",
    "efficiency_wallclock_interval": _INTERVAL,
    "loss_ms": "step minus ideal step; null where the runs are not comparable",
    "loss_interval_ms": _INTERVAL,
    "loss": "the loss in parts; with the residual they sum to it; empty without traces of both",
    "residual_ms": "what the parts leave of the loss; null without traces of both",
    "residual_share": "residual over loss, without its sign",
    "explained": (
        "whether the residual is at most 15 % of the loss; null without parts, or where the loss "
        "is not told from zero"
    ),
}

SCALING: Mapping[str, Mapping[str, str]] = {
    **_COMMON,
    "ScalingReport": {
        "schema_version": "version of this document's schema",
        "tool": "what made the document",
        "name": "names of the runs",
        "warnings": "what to know about the data before believing a number, worst first",
        "verdict": "the answer in short",
        "mode": "strong: the global batch stays; weak: the batch of a rank stays",
        "mode_basis": "how the mode is known",
        "n": "largest number of ranks: what the efficiency and the loss beside it are of",
        "base_n": "smallest number of ranks: what it is compared with",
        "comparable": "whether the runs do the same work; null where no trace tells",
        "differences": "in what they differ, what refuses the efficiency first",
        **_EFFICIENCY,
        "interval_scope": "what the interval covers: steps of one run each, or also several runs",
        "points": "every number of ranks, the base first",
        "curve": "step time as a function of the number of ranks; null with fewer than three",
        "runs": "every run that was measured",
    },
    "ScalingVerdict": {
        "state": (
            "scales: no loss is told from none; loses: time is lost; no-verdict: too few steps or "
            "no spread; not-comparable: the runs do not do the same work"
        ),
        "headline": "the answer in one or two sentences",
        "proof": "the numbers that it rests on",
        "do_next": "the next action",
    },
    "ScalingPoint": {
        "ranks": "number of ranks",
        "runs": "runs of that many ranks",
        "step_ms": "step time",
        "step_interval_ms": _INTERVAL,
        "comparable": "whether it does the same work as the base; null where no trace tells",
        "differences": "in what it differs from the base",
        **_EFFICIENCY,
        "speed_up": "work in a given time, over that of the base",
        "ideal_ms": "the base's step, divided by the ratio of ranks for strong scaling",
        "loss_rank": "the rank whose step the parts are of: the one that waits least for its peers",
        "primary": "code of the run's leading fault; null without one",
        "efficiency_without_primary": "E if that fault were fixed; null without its gain",
        "insufficient": "what is missing for a verdict; empty where nothing is",
    },
    "LossTerm": {
        "term": (
            "kernels: compute by itself; contention: what communication adds to it while it moves "
            "data; exposed-transfer, wait: communication that no compute hides; "
            "exposed-communication: the same where waiting is not told apart; copies; gaps: between "
            "operations on the device; host: idle before late launches"
        ),
        "ms": "what it adds to the loss",
        "base_share_ms": "the part in the base's step, divided as the ideal step is",
        "step_part_ms": "the part in the step of n ranks",
    },
    "ScalingRun": {
        "name": "name of the run or file, or the number as it was given",
        "ranks": "number of ranks",
        "basis": (
            "unprofiled: timed without a profiler; profiled: steps of the trace; given: a number of "
            "the command line"
        ),
        "step_ms": "median of the steady steps, or the given number",
        "mean_ms": "mean step; null for a number",
        "steps": "steps that were measured",
        "steady": "of these, those that the median is of",
        "warm_up": "long steps at the beginning, which count nowhere",
        "outliers": "single long steps of the chosen segment, which the median leaves out",
        "segments": "stretches at one level; the longest is used",
        "correlation": "how much neighbouring steps resemble each other; negative counts as 0",
        "effective": "how many independent steps the steady ones are worth",
        "steps_ms": "the step times, in order",
        "gpu": "model of the GPUs; null where it is not known",
        "versions": "versions of torch, CUDA, driver, NCCL …",
        "sources": "files that were read",
    },
    "Segment": {
        "first": "first step",
        "last": "step after the last one",
        "median_ms": "median step",
    },
    "Curve": {
        "fixed_ms": "what of a step does not shrink with more ranks",
        "shared_ms": "what is shared between them",
        "fixed_share": "share of a step of one rank that does not shrink",
        "fixed_share_interval": _INTERVAL,
        "misfit": "how far the curve is from the worst measured point",
        "fits": "whether that is at most 5 %; else nothing is projected",
        "assumptions": "what a projection takes for granted",
        "projections": "step and efficiency at more ranks",
    },
    "Projection": {
        "ranks": "number of ranks",
        "step_ms": "step time",
        "step_interval_ms": "95 % interval of the fit alone; null where it cannot be given",
        "efficiency": "E",
    },
}

_CHANGE = {
    "base_ms": "in the base",
    "other_ms": "in the other run",
    "change_ms": "other minus base",
    "change_interval_ms": _INTERVAL,
}
_DISTINGUISHABLE = "whether zero lies outside the interval, and two starts differ by less"

COMPARISON: Mapping[str, Mapping[str, str]] = {
    **_COMMON,
    "ComparisonReport": {
        "schema_version": "version of this document's schema",
        "tool": "what made the document",
        "name": "names of the runs",
        "warnings": "what to know about the data before believing a number, worst first",
        "verdict": "the answer in short",
        "comparable": "whether the runs can be compared; if not, numbers stand side by side",
        "differences": "in what they differ, what refuses the comparison first",
        "base": "the run that is compared with",
        "other": "the run in question",
        "step": "the change of the step time; null where one run has none",
        "rank": "the rank that the other run is looked at: it waits least for its peers",
        "ranks": "parts of the traced step, rank by rank",
        "kernels": "kernels and copies, those told from no change first, by change",
        "kernels_left_out": "rows that are not told from no change and too small to list",
        "collectives": "communication, likewise",
        "environment": "settings in which the runs differ",
        "findings": "findings that came, went or changed",
        "not_compared": "what could not be compared, and why",
        "history": "archived runs that stand as the base; null where it is one run",
    },
    "ComparisonVerdict": {
        "state": (
            "slower, faster: by more than chance; same: not told apart; no-verdict: the data does "
            "not tell; not-comparable: another machine, number of ranks or other work"
        ),
        "headline": "the answer in one or two sentences",
        "proof": "the numbers that it rests on",
        "do_next": "the next action",
    },
    "Side": {
        "name": "name of the run",
        "recorder": "kineto or nsys; empty for history",
        "world_size": "ranks of the job; null where the files do not tell",
        "recorded_ranks": "ranks with a trace",
        "gpu": "model of the GPUs",
        "started": "start of the recording, ISO 8601 UTC",
        "step_ms": "step time that is compared; null without any",
        "step_basis": "whether it was timed without a profiler or taken from the trace",
        "steps": "steady steps behind it",
        "profiled_ms": "step in the trace; null without one",
        "profiled_steps": "steady steps of the trace",
        "unprofiled_ms": "step without a profiler; null where it was not timed",
        "versions": "versions of torch, CUDA, driver, NCCL …",
        "sources": "files that were read",
    },
    "StepChange": {
        "basis": "which steps: without a profiler where both runs have them, else of the traces",
        **_CHANGE,
        "change_share": "change over base",
        "distinguishable": "whether zero lies outside the interval; null without one",
    },
    "RankChange": {
        "base_rank": "rank of the base",
        "other_rank": "rank of the other run",
        "step": "the whole step",
        "parts": "its parts",
    },
    "PartChange": {
        "part": (
            "compute; transfer, wait, unsplit: communication that no compute hides; copy; launch:…: "
            "idle before late launches, by what the launching thread did (launch: all of them); "
            "latency; other"
        ),
        **_CHANGE,
        "distinguishable": _DISTINGUISHABLE,
    },
    "KernelChange": {
        "name": "name of the kernel or copy",
        "category": "family, by name",
        "kind": (
            "what changed; replaced: another kernel runs in the places of one that is gone; "
            "more-calls, fewer-calls: the number of launches explains most of the change"
        ),
        "grid": "grid, [x, y, z]; null for copies",
        "block": "block, [x, y, z]",
        **_CHANGE,
        "base_calls": "launches in the base; null where it has no such kernel",
        "other_calls": "launches in the other run",
        "instead_of": "kernel that a replacing one stands for; empty otherwise",
        "places_changed": "places in a step in which its time differs by more than two starts do",
        "places": "places in a step where it runs; null where the runs differ in it",
        "base_beside": "how much of it runs beside communication in the base, which slows it down",
        "other_beside": "the same in the other run",
    },
    "CollectiveChange": {
        "operation": "allreduce, allgather, reducescatter, broadcast, send, …",
        "dtype": "element type",
        "bytes": "message size; null where a run does not know it",
        "base_calls": "launches in the base; null where it has no such collective",
        "other_calls": "launches in the other run",
        "base_channels": "NCCL channels in the base",
        "other_channels": "NCCL channels in the other run",
        "transfer": "time that moves data",
        "wait": "time that waits for peers",
        "exposed": "time while no computing kernel runs",
    },
    "ValueChange": {**_CHANGE, "distinguishable": _DISTINGUISHABLE},
    "FindingChange": {
        "code": "stable code of the rule",
        "name": "name of the rule",
        "state": "whether it is in the other run only, in the base only, or in both",
        "kind": "fault or opportunity",
        "title": "the finding in one sentence, of the other run where it has it",
        "base_recoverable_ms": "what fixing it would give back in the base; null where unknown",
        "other_recoverable_ms": "the same in the other run",
        "change_ms": "other minus base, where a finding that is not there counts as 0",
    },
    "NotCompared": {"what": "what could not be compared", "why": "why"},
    "History": {
        "index": "file of the archive's index",
        "used": "runs whose median stands as the base, newest first",
        "left_out": "runs of the archive that are not comparable with this one",
        "step_ms": "their step times, newest first",
    },
}

__all__ = ["COMPARISON", "SCALING"]
