"""Record the runs of one workload, once they are timed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from trace_analyzer.collectors.faultlab import runfiles
from trace_analyzer.collectors.faultlab.background import Background
from trace_analyzer.collectors.faultlab.group import GroupError
from trace_analyzer.collectors.faultlab.groups import GroupKey
from trace_analyzer.collectors.faultlab.matrix import KINETO, NSYS, NSYS_STEPS, RunSpec
from trace_analyzer.collectors.faultlab.programs import BUILD_TIMEOUT_S, Programs, faulty_group
from trace_analyzer.collectors.faultlab.statistics import present_share
from trace_analyzer.collectors.faultlab.timing import Measured, Protocol, Times, measure

# The cost is there or it is not: of 82 recordings 80 had more than 60 % of it, two less than 7 %.
LEAST_PRESENT_SHARE = 0.25
# A host's pace on a shared machine changes by up to 40 % within seconds; steps that the device
# bounds differ by less than this.
STEADY_SHARE = 0.02
RECORDINGS_AT_MOST = 3


class FaultLostError(Exception):
    """A fault that cost something when it was timed, and nothing right before the recording."""


@dataclass(kw_only=True)
class Session:
    """One workload: a healthy group that stays, and others beside it where a fault needs them."""

    programs: Programs
    protocol: Protocol
    work: Path
    background: Background
    clock: str

    def measure(self, spec: RunSpec) -> Measured:
        """Time both states. Raises `GroupError`."""
        return measure(self.programs, spec, self.protocol)

    def record_kineto(self, measured: Measured) -> Path:
        """Record the faulty state with torch.profiler; return the run's folder.

        The unprofiled steps beside the recording are those right before it and right after it.
        Where these two differ, the host's pace has changed meanwhile, as it does on shared machines:
        the recording is then made again, and the steadiest one stays. Raises `GroupError`, and
        `FaultLostError` where the steps show that the fault is gone.
        """
        spec, key, options = measured.spec, faulty_group(measured.spec), measured.options[1]
        folder = self._folder(spec, KINETO)
        raw = self.work / "raw" / folder.name
        try:
            program = self.programs.prepare(spec, [(key, options)])[key, options]
            best = self._steadiest(spec, key, program, raw)
            versions = self.programs.describe(key, options, folder)
        except GroupError:
            self.programs.forget(key)
            raise
        _check_fault_is_there(measured, best.answers)
        for rank, answer in enumerate(best.answers):
            phases = [
                ("unprofiled", answer["before"]),
                ("warmup", answer["warmup"]),
                ("profiled", answer["profiled"]),
                ("unprofiled", answer["after"]),
            ]
            self._write_steps(folder, rank, phases, measured)
            trace = best.folder / f"rank{rank}.pt.trace.json"
            self.background.add("prune-kineto", str(trace), str(folder / f"{trace.name}.gz"))
        recording = {
            "active_steps": spec.active_steps,
            "record_shapes": spec.record_shapes,
            "profiled_step_ms": [answer["profiled"]["step_ms"] for answer in best.answers],
            "pids": measured.pids,
            "steps_before_ms": [answer["before"]["step_ms"] for answer in best.answers],
            "steps_after_ms": [answer["after"]["step_ms"] for answer in best.answers],
            "attempts": best.attempts,
        }
        self._write_label(measured, folder, KINETO, versions, recording)
        return folder

    def _steadiest(self, spec: RunSpec, key: GroupKey, program: str, raw: Path) -> _Recording:
        best: _Recording | None = None
        for attempt in range(1, RECORDINGS_AT_MOST + 1):
            place = raw / str(attempt)
            place.mkdir(parents=True, exist_ok=True)
            answers = self.programs.group(key).ask(
                BUILD_TIMEOUT_S,
                do="profile",
                key=program,
                settle=self.protocol.settle_steps,
                plain=self.protocol.segment_steps,
                steps=spec.active_steps,
                folder=str(place),
                record_shapes=spec.record_shapes,
            )
            made = _Recording(folder=place, answers=answers, attempts=attempt)
            best = made if best is None or made.apart < best.apart else best
            best = replace(best, attempts=attempt)
            if best.apart <= STEADY_SHARE:
                break
        assert best is not None
        return best

    def capture_nsys(self, measured: Measured, key: GroupKey) -> Path:
        """Let the nsys group `key` record the faulty state; the export is made later.

        The step times beside it are those of the group without nsys. Raises `GroupError`.
        """
        spec, options = measured.spec, measured.options[1]
        folder = self._folder(spec, NSYS)
        try:
            program = self.programs.prepare(spec, [(key, options)])[key, options]
            group = self.programs.group(key)
            answers = group.ask(
                BUILD_TIMEOUT_S,
                do="capture",
                key=program,
                settle=self.protocol.settle_steps,
                steps=max(NSYS_STEPS, *(2 * dose.kind.period for dose in spec.doses)),
            )
            versions = self.programs.describe(key, options, folder)
        except GroupError:
            self.programs.forget(key)
            raise
        for rank in range(len(answers)):
            timed = [("unprofiled", row[rank]) for row in measured.faulty]
            self._write_steps(folder, rank, timed, measured)
        recording = {
            "active_steps": len(answers[0]["profiled"]["step_ms"]),
            "profiled_step_ms": [answer["profiled"]["step_ms"] for answer in answers],
            "pids": group.pids,
        }
        self._write_label(measured, folder, NSYS, versions, recording)
        return folder

    def _write_steps(
        self, folder: Path, rank: int, phases: list[tuple[str, dict[str, Any]]], measured: Measured
    ) -> None:
        runfiles.write_steps(
            folder,
            rank,
            phases,
            world_size=measured.label["world_size"],
            pid=measured.pids[rank],
            clock=self.clock,
        )

    def _folder(self, spec: RunSpec, recorder: str) -> Path:
        folder = self.work / "runs" / f"{spec.key}.{recorder}"
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return folder

    def _write_label(
        self,
        measured: Measured,
        folder: Path,
        recorder: str,
        versions: dict[str, str],
        recording: dict[str, Any],
    ) -> None:
        document = {
            "run": folder.name,
            **measured.label,
            "recorder": recorder,
            "recording": recording,
            "versions": versions,
        }
        runfiles.write_label(folder, document)


@dataclass(frozen=True, kw_only=True)
class _Recording:
    """One attempt: its folder and what the ranks answered."""

    folder: Path
    answers: Times
    attempts: int

    @property
    def apart(self) -> float:
        """By how much the steps before and after differ, as a share."""
        before, after = (
            max(float(median(answer[name]["step_ms"])) for answer in self.answers)
            for name in ("before", "after")
        )
        return abs(after - before) / min(before, after)


def _check_fault_is_there(measured: Measured, answers: Times) -> None:
    """Some faults wear off: what an autotuner has seen once is in its cache for good.

    A control has nothing to lose, whatever noise says.
    """
    if not any(dose.kind.causes for dose in measured.spec.doses):
        return
    mean = measured.label["statistic"] == "mean"
    steps_ms = [
        [float(ms) for name in ("before", "after") for ms in answer[name]["step_ms"]]
        for answer in answers
    ]
    share = present_share(measured.truth, steps_ms, mean=mean)
    if share is not None and share < LEAST_PRESENT_SHARE:
        msg = f"beside the recording {100 * share:.0f} % of the cost were left"
        raise FaultLostError(msg)
