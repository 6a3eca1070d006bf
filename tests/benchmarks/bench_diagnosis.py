"""How often the right cause comes first, and how far its milliseconds are from the truth.

Run by hand: `python tests/benchmarks/bench_diagnosis.py FOLDER… [--set tune|test] [--known]`. Every
folder below FOLDER that holds a `label.json` of the fault lab is a labelled run. Its own unprofiled
step times are left out unless `--known` is given, so that the profiled trace alone has to do. One
line a run: truth, what was found, gain against truth; then the scores, with n and Wilson intervals.

Of two faults injected together both have to be found unless one costs nothing there: 2 % of the step
or less by itself, or beyond the other, by the runs of the index that have one of them alone.
A fault that costs less than 3 % of the step is no test of the order of findings: where it costs
2 % or less, it must not be reported as a fault. Scores are given over all such runs, and over those
whose label proves it. Gains are compared only where the label's own 95 % half-width is at most 0.5 %
of the step.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

WORTH, NOTHING = 0.03, 0.02
SHARP_LABEL = 0.005
# Settled are runs whose unprofiled step is known well enough to judge a prediction by it: before and
# after the recording agree, and the middle half of the single steps lies close together.
SETTLED_APART, SETTLED_SCATTER = 0.03, 0.05
INDEX = Path(__file__).parents[1] / "data" / "faultlab" / "index.csv"


@dataclass
class Scored:
    """One run: what is true, what was said."""

    name: str
    set: str
    recorder: str
    kind: str
    wanted: list[list[str]]  # codes of each injected fault
    needed: list[list[str]]  # of those that cost something: a mix has to name them all
    cost_ms: float
    step_ms: float
    sharp: bool
    settled: bool  # whether the true step is sharp itself
    mean: bool
    found: list[tuple[str, str, float | None]] = field(default_factory=list)  # code, kind, ms
    predicted_ms: float | None = None
    interval_ms: tuple[float, float] | None = None
    label_ms: tuple[float, float] = (0.0, 0.0)  # 95 % interval of the cost
    gains_ms: list[tuple[str, float, float]] = field(default_factory=list)  # code, interval
    replay_error: float | None = None
    bound: str = ""
    seconds: float = 0.0
    failure: str = ""

    @property
    def share(self) -> float:
        """Cost of the fault as a share of the faulty step."""
        return self.cost_ms / self.step_ms

    @property
    def tested(self) -> bool:
        """Whether the run is a test of the order of findings."""
        return self.kind in ("fault", "opportunity", "mix") and self.share >= WORTH

    @property
    def proven(self) -> bool:
        """Whether the label tells what it is tested for: a cost from nothing, or nothing from one."""
        low, high = self.label_ms
        return low > 0 if self.tested else high <= WORTH * self.step_ms

    def faults(self, least: float = WORTH) -> list[tuple[str, float | None]]:
        """Return the reported faults of at least a share of the step."""
        return [
            (code, ms)
            for code, kind, ms in self.found
            if kind == "fault" and (ms is None or ms >= least * self.step_ms)
        ]

    @property
    def first(self) -> bool:
        """Whether the right cause comes first."""
        ordered = [code for code, kind, _ in self.found if kind == "fault"]
        if self.kind == "opportunity":
            # An opportunity leads its kind, and no fault of 3 % stands; it may as well lead all.
            leading = [code for code, kind, _ in self.found if kind == "opportunity"]
            if leading and not self.faults():
                return any(leading[0] in codes for codes in self.wanted)
        chosen = ordered or [code for code, _, _ in self.found]
        return bool(chosen) and any(chosen[0] in codes for codes in self.wanted)

    @property
    def among_three(self) -> bool:
        """Whether the right cause is one of the first three; for a mix, all of them are."""
        named = [code for code, _, _ in self.found][:3]
        hits = [any(code in codes for code in named) for codes in self.needed]
        return all(hits) if self.kind == "mix" else any(hits)

    @property
    def gain_error(self) -> float | None:
        """Gain of the right finding minus the cost, as a share of the step."""
        right = [ms for code, _, ms in self.found if any(code in codes for codes in self.wanted)]
        if self.kind == "mix" or not right or right[0] is None:
            return None
        return (right[0] - self.cost_ms) / self.step_ms

    @property
    def gain_inside(self) -> bool | None:
        """Whether the right finding's interval meets the label's."""
        right = [(low, high) for code, low, high in self.gains_ms if self._is_right(code)]
        if self.kind == "mix" or not right:
            return None
        return right[0][0] <= self.label_ms[1] and self.label_ms[0] <= right[0][1]

    def _is_right(self, code: str) -> bool:
        return any(code in codes for codes in self.wanted)

    @property
    def step_error(self) -> float | None:
        """Predicted unprofiled step against the one that was timed before any profiler ran."""
        return None if self.predicted_ms is None else self.predicted_ms / self.step_ms - 1.0


def true_step(label: dict[str, Any]) -> tuple[float, bool]:
    """Return the unprofiled step, ms, and whether it is settled.

    Newer recordings have plain steps right before and right after; older ones those of the label,
    timed in other seconds of the same process, whose pairs tell how much the step varied.
    """
    recording = label["recording"]
    if "attempts" not in recording:
        segments = label["faulty"]["segment_step_ms"]
        half = len(segments) // 2
        first, second = statistics.median(segments[:half]), statistics.median(segments[half:])
        return float(label["faulty"]["step_ms"]), _settled(first, second, segments)

    def step(ranks: list[list[float]]) -> float:
        mean = label["statistic"] == "mean"
        return max(statistics.fmean(row) if mean else statistics.median(row) for row in ranks)

    before, after = recording["steps_before_ms"], recording["steps_after_ms"]
    whole = [[*early, *late] for early, late in zip(before, after, strict=True)]
    slowest = max(whole, key=statistics.median)
    return step(whole), _settled(step(before), step(after), slowest)


def _settled(first: float, second: float, steps: Sequence[float]) -> bool:
    low, middle, high = statistics.quantiles(steps, n=4)
    agree = abs(second / first - 1.0) <= SETTLED_APART
    return agree and (high - low) / middle <= SETTLED_SCATTER


def labelled(roots: Iterable[Path]) -> list[Path]:
    """Return the folders of labelled runs, by name; of a run that lies twice the first."""
    found: dict[str, Path] = {}
    for root in roots:
        for path in sorted(root.rglob("label.json")):
            found.setdefault(path.parent.name, path.parent)
    return [found[name] for name in sorted(found)]


def _needed(label: dict[str, Any], faults: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the codes of the faults that cost more than nothing in a run."""
    if len(faults) < 2:
        return [fault["codes"] for fault in faults]
    alone = _costs_alone()
    names = [f"{fault['name']}={fault['magnitude']:g}" for fault in faults]
    costs = [alone.get((label["workload"]["name"], name)) for name in names]
    least_ms = NOTHING * label["faulty"]["step_ms"]
    found = []
    for position, fault in enumerate(faults):
        own, others = costs[position], [*costs[:position], *costs[position + 1 :]]
        beyond = None if None in others else label["cost_ms"] - sum(filter(None, others))
        if all(cost is None or cost > least_ms for cost in (own, beyond)):
            found.append(fault["codes"])
    return found or [fault["codes"] for fault in faults]


@cache
def _costs_alone() -> dict[tuple[str, str], float]:
    """Return what single faults cost, by workload and fault, ms a step."""
    with INDEX.open() as stream:
        rows = [row for row in csv.DictReader(stream) if "+" not in row["faults"]]
    return {(row["workload"], row["faults"]): float(row["cost_ms"]) for row in rows}


def score(job: tuple[Path, bool]) -> Scored:
    """Analyse one run as a user would."""
    from trace_analyzer.assembly.report import build_report
    from trace_analyzer.readers.discovery import open_run

    folder, known = job
    label: dict[str, Any] = json.loads((folder / "label.json").read_text())
    faults = [fault for fault in label["faults"] if fault["codes"]]
    kind = "mix" if len(faults) > 1 else label["kind"]
    step_ms, settled = true_step(label)
    result = Scored(
        name=folder.name,
        set=label["set"],
        recorder=label["recorder"],
        kind=kind if faults else "control",
        wanted=[fault["codes"] for fault in faults],
        needed=_needed(label, faults),
        cost_ms=label["cost_ms"],
        step_ms=step_ms,
        sharp=label["half_width_share"] <= SHARP_LABEL,
        settled=settled,
        mean=label["statistic"] == "mean",
        label_ms=tuple(label["cost_interval_ms"]),
    )
    began = time.perf_counter()
    try:
        run = open_run(str(folder))
        report = build_report(run if known else replace(run, unprofiled=()))
    except Exception as problem:  # noqa: BLE001 (the table shows it; the others go on)
        result.failure = f"{type(problem).__name__}: {problem}"
        return result
    result.seconds = time.perf_counter() - began
    result.found = [
        (
            finding.code,
            finding.kind,
            finding.recoverable_ms if finding.basis == "replay" else finding.ceiling_ms,
        )
        for finding in report.findings
    ]
    result.gains_ms = [
        (finding.code, finding.recoverable_interval_ms[0], finding.recoverable_interval_ms[1])
        for finding in report.findings
        if finding.recoverable_interval_ms is not None
    ]
    steps = report.steps
    result.predicted_ms = (
        steps.predicted_unprofiled_mean_ms if result.mean else steps.predicted_unprofiled_ms
    )
    if steps.predicted_interval_ms is not None:
        low, high = steps.predicted_interval_ms
        result.interval_ms = (low, high)
    result.replay_error, result.bound = steps.replay_error, steps.bound or ""
    return result


def wilson(hits: int, total: int) -> str:
    """Return "90 % (9 of 10) [60, 98]"."""
    if not total:
        return "no runs"
    z, share = 1.959964, hits / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = (
        z
        / (1 + z * z / total)
        * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    )
    low, high = 100 * max(middle - half, 0.0), 100 * min(middle + half, 1.0)
    return f"{100 * share:.0f} % ({hits} of {total}) [{low:.0f}, {high:.0f}]"


def spread(values: Sequence[float]) -> str:
    """Return median and 90th percentile of absolute shares, in percent."""
    if not values:
        return "no runs"
    ordered = sorted(100 * abs(value) for value in values)
    rank = min(len(ordered) - 1, math.ceil(0.9 * len(ordered)) - 1)
    middle = (
        ordered[len(ordered) // 2]
        if len(ordered) % 2
        else (sum(ordered[len(ordered) // 2 - 1 : len(ordered) // 2 + 1]) / 2)
    )
    return f"median {middle:.2f} %, p90 {ordered[rank]:.2f} % (n {len(ordered)})"


def line(run: Scored) -> str:
    """Return one run of the table."""
    if run.failure:
        return f"{run.name:64s} FAILED {run.failure[:90]}"
    names = ["/".join(codes) for codes in run.wanted] or ["-"]
    named = " ".join(
        f"{code}{'' if kind == 'fault' else 'o'}:{'?' if ms is None else f'{ms:.1f}'}"
        for code, kind, ms in run.found[:4]
    )
    mark = mark_of(run)
    step = "" if run.step_error is None else f"{100 * run.step_error:+.1f} %"
    return (
        f"{run.name:64s} {run.set:4s} {mark:5s} cost {run.cost_ms:7.2f} of {run.step_ms:7.2f} "
        f"{run.bound:6s} {step:>8s} want {'+'.join(names):24s} | {named}"
    )


def scores(runs: Sequence[Scored]) -> list[str]:
    """Return the scores of some runs."""
    good = [run for run in runs if not run.failure]
    tested = [run for run in good if run.tested]
    quiet = [run for run in good if run.kind == "control"]
    proven = [run for run in tested if run.proven]
    small = [run for run in good if run.kind != "control" and run.share <= NOTHING]
    proven_small = [run for run in small if run.proven]
    sharp = [run for run in tested if run.sharp and run.gain_error is not None]
    errors = [run.step_error for run in good if run.step_error is not None]
    settled = [run for run in good if run.step_error is not None and run.settled]
    by_bound = {
        bound: [run.step_error for run in good if run.bound == bound and run.step_error is not None]
        for bound in ("device", "mixed", "host")
    }
    inside = [
        run.interval_ms[0] <= run.step_ms <= run.interval_ms[1]
        for run in good
        if run.interval_ms is not None and not run.mean
    ]
    met = [run.gain_inside for run in tested if run.gain_inside is not None]
    replayed = [run.replay_error for run in good if run.replay_error is not None]
    return [
        f"right cause first     {wilson(sum(run.first for run in tested), len(tested))}",
        f"among the first three {wilson(sum(run.among_three for run in tested), len(tested))}",
        f"  first, proven       {wilson(sum(run.first for run in proven), len(proven))}",
        f"  three, proven       {wilson(sum(run.among_three for run in proven), len(proven))}",
        f"quiet controls        {wilson(sum(not run.faults() for run in quiet), len(quiet))}",
        f"quiet where it costs <= 2 %  {wilson(sum(not run.faults() for run in small), len(small))}",
        f"  the same, proven    {wilson(sum(not run.faults() for run in proven_small), len(proven_small))}",
        f"gain against truth    {spread([run.gain_error or 0.0 for run in sharp])}",
        f"gain, all labels      {spread([r.gain_error or 0.0 for r in tested if r.gain_error is not None])}",
        f"gain's interval meets the label's  {wilson(sum(met), len(met))}",
        f"predicted step        {spread(errors)}",
        *(f"  {bound:6s}              {spread(values)}" for bound, values in by_bound.items()),
        f"predicted, settled    {spread([run.step_error or 0.0 for run in settled])}",
        f"  host-bound          {spread([r.step_error or 0.0 for r in settled if r.bound == 'host'])}",
        f"interval holds truth  {wilson(sum(inside), len(inside))}",
        f"self-replay           {spread(replayed)}",
        f"replayed              {len(replayed)} of {len(runs)}, failed {len(runs) - len(good)}",
    ]


def document(runs: Sequence[Scored], known: Sequence[Scored]) -> str:
    """Return the scores and the table as Markdown, for the documents."""
    lines = [
        "# Diagnosis, measured",
        "",
        "Made by `python tests/benchmarks/bench_diagnosis.py FOLDER… --markdown FILE` from labelled",
        "recordings of the fault lab: one or two NVIDIA H200, torch 2.11, NCCL 2.28, a GPT and a",
        "convolution model in three sizes, alone, DDP, FSDP and compiled, torch.profiler and nsys. The",
        "cost of every fault was measured without a profiler. The *test* half (other magnitudes, the",
        "convolution model, other seeds) was set aside by a rule before the first threshold was set.",
        "Every run is listed that was at hand when this was made; index.csv of the recordings has all.",
        "Unless said otherwise the profiled trace alone had to do, without unprofiled step times. The",
        "true step is that of the plain steps right before and right after each recording (of nsys, those",
        "of the label); *settled* are runs in which both agree to 3 % and the middle half of the single",
        "steps lies within 5 %. *Proven* is a cost whose 95 % interval excludes 0, and silence where it",
        "excludes 3 % of the step.",
    ]
    for half in ("test", "tune"):
        chosen = [run for run in runs if run.set == half]
        told = [run for run in known if run.set == half]
        lines += ["", f"## The {half} half", "", "```", *scores(chosen), "```"]
        lines += ["", "The same with the unprofiled step times of each bundle:", ""]
        lines += ["```", *scores(told), "```", ""]
        lines += [
            "| run | mark | cost, ms a step | 95 % ± | of | predicted step | wanted | found, ms |",
            "|---|---|---|---|---|---|---|---|",
            *(_row(run) for run in chosen),
        ]
    lines += [
        "",
        "Marks: *1st* the right cause comes first, *top3* it is among the first three, *ok* no fault",
        "of 3 % of the step or more was to be reported and none was, *–* a cost between 2 and 3 % of the",
        "step, which tests nothing.",
        "An *o* behind a code says opportunity.",
    ]
    return "\n".join(lines) + "\n"


def _row(run: Scored) -> str:
    if run.failure:
        return f"| {run.name} | failed | | | | | | {run.failure} |"
    half = (run.label_ms[1] - run.label_ms[0]) / 2
    step = "" if run.step_error is None else f"{100 * run.step_error:+.1f} %"
    wanted = " + ".join("/".join(codes) for codes in run.wanted) or "–"
    found = ", ".join(
        f"{code}{'' if kind == 'fault' else ' o'} {'?' if ms is None else f'{ms:.1f}'}"
        for code, kind, ms in run.found[:3]
    )
    return (
        f"| {run.name} | {mark_of(run)} | {run.cost_ms:.2f} | {half:.2f} | {run.step_ms:.1f} | "
        f"{step} | {wanted} | {found or '–'} |"
    )


def mark_of(run: Scored) -> str:
    """Return the mark of a run in the table."""
    if run.tested:
        return "1st" if run.first else "top3" if run.among_three else "MISS"
    if run.kind == "control" or run.share <= NOTHING:
        return "ok" if not run.faults() else "FALSE"
    return "–"


def main() -> None:
    """Print the table and the scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("roots", nargs="+", type=Path)
    parser.add_argument("--set", choices=["tune", "test"])
    parser.add_argument("--known", action="store_true", help="use the runs' unprofiled steps")
    parser.add_argument("--markdown", type=Path, help="write table and scores of both halves")
    parser.add_argument("--only", default="", help="runs whose name holds this")
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    folders = [path for path in labelled(chosen.roots) if chosen.only in path.name]
    if chosen.set:
        folders = [
            path
            for path in folders
            if json.loads((path / "label.json").read_text())["set"] == chosen.set
        ]
    if not folders:
        sys.exit("no labelled runs there")
    with multiprocessing.Pool(chosen.jobs) as pool:
        runs = list(pool.imap(score, [(path, chosen.known) for path in folders]))
        known = (
            list(pool.imap(score, [(path, True) for path in folders])) if chosen.markdown else []
        )
    if chosen.markdown:
        chosen.markdown.write_text(document(runs, known), encoding="utf-8")
        return
    for run in runs:
        print(line(run))
    print()
    print("\n".join(scores(runs)))


if __name__ == "__main__":
    main()
