"""Record the runs of one workload, once they are timed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trace_analyzer.collectors.faultlab import runfiles
from trace_analyzer.collectors.faultlab.background import Background
from trace_analyzer.collectors.faultlab.group import GroupError
from trace_analyzer.collectors.faultlab.groups import GroupKey
from trace_analyzer.collectors.faultlab.matrix import KINETO, NSYS, NSYS_STEPS, RunSpec
from trace_analyzer.collectors.faultlab.programs import BUILD_TIMEOUT_S, Programs, faulty_group
from trace_analyzer.collectors.faultlab.statistics import present_share
from trace_analyzer.collectors.faultlab.timing import Measured, Protocol, Times, measure, segment

# The cost is there or it is not: of 82 recordings 80 had more than 60 % of it, two less than 7 %.
LEAST_PRESENT_SHARE = 0.25


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

        Comes after all runs of the session have been timed: once a profiler has been active in a
        process, its steps are not quite unprofiled any more. The unprofiled steps beside the
        recording are therefore those that were timed first; those right before it are in the
        label. Raises `GroupError`, and `FaultLostError` where these show that the fault is gone.
        """
        spec, key, options = measured.spec, faulty_group(measured.spec), measured.options[1]
        folder = self._folder(spec, KINETO)
        raw = self.work / "raw" / folder.name
        raw.mkdir(parents=True, exist_ok=True)
        try:
            program = self.programs.prepare(spec, [(key, options)])[key, options]
            before = self._before_recording(key, program)
            _check_fault_is_there(measured, before)
            answers = self.programs.group(key).ask(
                BUILD_TIMEOUT_S,
                do="profile",
                key=program,
                settle=self.protocol.settle_steps,
                steps=spec.active_steps,
                folder=str(raw),
                record_shapes=spec.record_shapes,
            )
            versions = self.programs.describe(key, options, folder)
            after = self._after_recording(spec, key, program)
        except GroupError:
            self.programs.forget(key)
            raise
        for rank, answer in enumerate(answers):
            phases = [
                *(("unprofiled", row[rank]) for row in measured.faulty),
                ("warmup", answer["warmup"]),
                ("profiled", answer["profiled"]),
            ]
            self._write_steps(folder, rank, phases, measured)
            trace = raw / f"rank{rank}.pt.trace.json"
            self.background.add("prune-kineto", str(trace), str(folder / f"{trace.name}.gz"))
        recording = {
            "active_steps": spec.active_steps,
            "record_shapes": spec.record_shapes,
            "profiled_step_ms": [answer["profiled"]["step_ms"] for answer in answers],
            "pids": measured.pids,
            "steps_before_ms": [
                [ms for row in before for ms in row[rank]["step_ms"]]
                for rank in range(len(answers))
            ],
            **after,
        }
        self._write_label(measured, folder, KINETO, versions, recording)
        return folder

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

    def _before_recording(self, key: GroupKey, program: str) -> list[Times]:
        """Time the faulty state right before it is recorded, in the state that the process is in.

        Processes get slower once a profiler has been active in them: by how much is seen here.
        """
        return [segment(self.programs, key, program, self.protocol) for _ in range(2)]

    def _after_recording(self, spec: RunSpec, key: GroupKey, program: str) -> dict[str, Any]:
        """Time a segment once more for runs without fault: what a past profiler leaves behind."""
        if any(dose.kind.causes for dose in spec.doses):
            return {}
        answers = segment(self.programs, key, program, self.protocol)
        return {"steps_after_ms": [answer["step_ms"] for answer in answers]}

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


def _check_fault_is_there(measured: Measured, before: list[Times]) -> None:
    """Some faults wear off: what an autotuner has seen once is in its cache for good.

    A control has nothing to lose, whatever noise says.
    """
    if not any(dose.kind.causes for dose in measured.spec.doses):
        return
    mean = measured.label["statistic"] == "mean"
    steps_ms = [
        [float(ms) for row in before for ms in row[rank]["step_ms"]]
        for rank in range(len(before[0]))
    ]
    share = present_share(measured.truth, steps_ms, mean=mean)
    if share is not None and share < LEAST_PRESENT_SHARE:
        msg = f"right before the recording {100 * share:.0f} % of the cost were left"
        raise FaultLostError(msg)
