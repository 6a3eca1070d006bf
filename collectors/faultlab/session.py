"""Measure and record the runs of one workload."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trace_analyzer.collectors.faultlab import runfiles
from trace_analyzer.collectors.faultlab.background import Background
from trace_analyzer.collectors.faultlab.group import Group, GroupError
from trace_analyzer.collectors.faultlab.groups import GroupKey, Groups
from trace_analyzer.collectors.faultlab.matrix import KINETO, NSYS, NSYS_STEPS, RunSpec
from trace_analyzer.collectors.faultlab.statistics import BLOCK_STEPS, Truth, truth_of
from trace_analyzer.collectors.faultlab.workload import BuildOptions, Workload

BUILD_TIMEOUT_S = 120.0
STEPS_TIMEOUT_S = 20.0  # plus what so many slow steps take
SLOWEST = 12.0  # nominal steps
GOOD_HALF_WIDTH = 0.005  # of the step


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How a state is timed. Healthy and faulty segments alternate, at least `pairs` of each."""

    segment_steps: int = 15  # a multiple of all periods of faults
    settle_steps: int = 4
    warmup_steps: int = 12
    first_warmup_steps: int = 40  # of a group: clocks and caches settle
    pairs: int = 4
    max_pairs: int = 6  # while the label's half-width is above half a per cent
    patience_s: float = 25.0  # of one run; no further pair is begun after it


@dataclass(kw_only=True)
class Measured:
    """What timing a run gave."""

    spec: RunSpec
    label: dict[str, Any]
    faulty_segments: list[list[dict[str, Any]]]  # segment, rank
    pids: list[int]
    truth: Truth
    options: tuple[BuildOptions, BuildOptions]
    seconds: float = 0.0


@dataclass(kw_only=True)
class Session:
    """One workload: a healthy group that stays, and others beside it where a fault needs them."""

    workload: Workload
    groups: Groups
    protocol: Protocol
    work: Path
    background: Background
    clock: str
    built: dict[GroupKey, set[str]] = field(default_factory=dict)
    used: set[GroupKey] = field(default_factory=set)
    # sizes of the NCCL logs when a group was opened, and when the current run began in it
    log_parts: dict[GroupKey, tuple[dict[int, int], dict[int, int]]] = field(default_factory=dict)

    def measure(self, spec: RunSpec) -> Measured:
        """Time both states in turn. Raises `GroupError`; the groups at fault are then ended."""
        began = time.monotonic()
        healthy_key, faulty_key = GroupKey(workload=self.workload), faulty_group(spec)
        options = built_options(spec)
        try:
            programs = self._prepare(spec, {healthy_key: options[0]}, {faulty_key: options[1]})
            keys = programs[healthy_key, options[0]], programs[faulty_key, options[1]]
            healthy: list[np.ndarray[Any, Any]] = []
            faulty: list[np.ndarray[Any, Any]] = []
            rows: list[list[dict[str, Any]]] = []
            while True:
                healthy.append(_times(self._steps(healthy_key, keys[0], faulty=False)))
                rows.append(self._steps(faulty_key, keys[1], faulty=True))
                faulty.append(_times(rows[-1]))
                if len(healthy) < self.protocol.pairs:
                    continue
                truth = self._truth(spec, healthy, faulty)
                tired = time.monotonic() - began > self.protocol.patience_s
                good = truth.half_width_share <= GOOD_HALF_WIDTH
                if good or tired or len(healthy) >= self.protocol.max_pairs:
                    break
            faulty_ranks = self.groups.world_size(faulty_key)
            label = runfiles.label_document(
                spec,
                truth,
                options=options,
                world_size=faulty_ranks,
                environment=dict(faulty_key.environment),
            )
            return Measured(
                spec=spec,
                label=label,
                faulty_segments=rows,
                pids=self.groups.opened(faulty_key).pids,
                truth=truth,
                options=options,
                seconds=time.monotonic() - began,
            )
        except GroupError:
            self._drop_groups({healthy_key, faulty_key})
            raise

    def record_kineto(self, measured: Measured) -> Path:
        """Record the faulty state with torch.profiler; return the run's folder.

        Comes after all runs of the session have been timed: once a profiler has been active in a
        process, its steps are not quite unprofiled any more.
        """
        spec, key = measured.spec, faulty_group(measured.spec)
        folder = self._folder(spec, KINETO)
        raw = self.work / "raw" / folder.name
        raw.mkdir(parents=True, exist_ok=True)
        try:
            program = self._prepare(spec, {key: measured.options[1]})[key, measured.options[1]]
            group = self.groups.opened(key)
            answers = group.ask(
                BUILD_TIMEOUT_S,
                do="profile",
                key=program,
                settle=self.protocol.settle_steps,
                steps=spec.active_steps,
                folder=str(raw),
                record_shapes=spec.record_shapes,
            )
            versions = self._describe(key, spec, measured.options[1], folder)
            after = self._after_recording(spec, key, program)
        except GroupError:
            self._drop_groups({key})
            raise
        for rank, answer in enumerate(answers):
            phases = self._unprofiled(measured, rank)
            phases += [("warmup", answer["warmup"]), ("profiled", answer["profiled"])]
            self._write_steps(measured, folder, rank, phases)
            trace = raw / f"rank{rank}.pt.trace.json"
            self.background.add("prune-kineto", str(trace), str(folder / f"{trace.name}.gz"))
        profiled = {
            "active_steps": spec.active_steps,
            "record_shapes": spec.record_shapes,
            "profiled_step_ms": [answer["profiled"]["step_ms"] for answer in answers],
            **after,
        }
        self._finish(measured, folder, KINETO, versions, profiled)
        return folder

    def capture_nsys(self, measured: Measured, key: GroupKey) -> Path:
        """Let the nsys group `key` record the faulty state; the export is made later."""
        spec = measured.spec
        folder = self._folder(spec, NSYS)
        try:
            group = self.groups.opened(key)
            self._note_logs(key, group)
            group.ask(10.0, do="faults", doses=_doses(spec), seed=spec.seed)
            program = self._build(key, group, measured.options[1])
            answers = group.ask(
                BUILD_TIMEOUT_S,
                do="capture",
                key=program,
                settle=self.protocol.settle_steps,
                steps=max(NSYS_STEPS, *(dose.kind.period + 1 for dose in spec.doses)),
            )
            versions = self._describe(key, spec, measured.options[1], folder)
            group.ask(10.0, do="faults", doses=[])
            keep = [program_key(self.workload, BuildOptions())]
            group.ask(60.0, do="drop", keep=keep)
            self.built[key] &= set(keep)
        except GroupError:
            self._drop_groups({key})
            raise
        for rank in range(len(answers)):
            self._write_steps(measured, folder, rank, self._unprofiled(measured, rank))
        profiled = {
            "active_steps": len(answers[0]["profiled"]["step_ms"]),
            "profiled_step_ms": [answer["profiled"]["step_ms"] for answer in answers],
        }
        self._finish(measured, folder, NSYS, versions, profiled, pids=group.pids)
        return folder

    def close(self) -> None:
        """End the session's groups, without waiting."""
        for key in list(self.used):
            self.groups.leave(key)
        self.used.clear()

    def _prepare(
        self, spec: RunSpec, *wanted: dict[GroupKey, BuildOptions]
    ) -> dict[tuple[GroupKey, BuildOptions], str]:
        """Hand the faults of a run to the groups, and build what is not built; drop the rest."""
        pairs = [pair for part in wanted for pair in part.items()]
        keep = {program_key(self.workload, BuildOptions())}
        keep |= {program_key(self.workload, chosen) for _, chosen in pairs}
        for key in dict.fromkeys(key for key, _ in pairs):
            group = self.groups.opened(key)
            self._note_logs(key, group)
            self.used.add(key)
            group.ask(30.0, do="faults", doses=[])
            group.ask(60.0, do="drop", keep=sorted(keep))
            self.built.setdefault(key, set())
            self.built[key] &= keep
            group.ask(30.0, do="faults", doses=_doses(spec), seed=spec.seed)
        return {
            (key, chosen): self._build(key, self.groups.opened(key), chosen)
            for key, chosen in pairs
        }

    def _warmup(self, built: set[str], program: str) -> int:
        if program in built:
            return 0
        return self.protocol.warmup_steps if built else self.protocol.first_warmup_steps

    def _after_recording(self, spec: RunSpec, key: GroupKey, program: str) -> dict[str, Any]:
        """Time a segment once more for runs without fault: what a past profiler leaves behind."""
        if any(dose.kind.causes for dose in spec.doses):
            return {}
        answers = self._steps(key, program, faulty=True)
        return {"steps_after_ms": [answer["step_ms"] for answer in answers]}

    def _build(self, key: GroupKey, group: Group, options: BuildOptions) -> str:
        program = program_key(self.workload, options)
        built = self.built.setdefault(key, set())
        self.used.add(key)
        group.ask(
            BUILD_TIMEOUT_S,
            do="build",
            key=program,
            workload=asdict(self.workload),
            options=options.document(),
            warmup=self._warmup(built, program),
        )
        built.add(program)
        return program

    def _steps(self, key: GroupKey, program: str, *, faulty: bool) -> list[dict[str, Any]]:
        settle, steps = self.protocol.settle_steps, self.protocol.segment_steps
        patience_s = SLOWEST * (settle + steps) * self.workload.scale.nominal_step_ms / 1e3
        return self.groups.opened(key).ask(
            STEPS_TIMEOUT_S + patience_s,
            do="steps",
            key=program,
            faulty=faulty,
            settle=settle,
            steps=steps,
        )

    def _truth(self, spec: RunSpec, healthy: list[Any], faulty: list[Any]) -> Truth:
        period = max(dose.kind.period for dose in spec.doses)
        block_steps = -(-BLOCK_STEPS // period) * period
        return truth_of(
            healthy,
            faulty,
            mean=runfiles.statistic_is_mean(spec),
            block_steps=block_steps,
            seed=spec.seed,
        )

    def _unprofiled(self, measured: Measured, rank: int) -> list[tuple[str, dict[str, Any]]]:
        return [("unprofiled", segment[rank]) for segment in measured.faulty_segments]

    def _write_steps(
        self, measured: Measured, folder: Path, rank: int, phases: list[tuple[str, dict[str, Any]]]
    ) -> None:
        runfiles.write_steps(
            folder,
            rank,
            phases,
            world_size=measured.label["world_size"],
            pid=measured.pids[rank],
            clock=self.clock,
        )

    def _note_logs(self, key: GroupKey, group: Group) -> None:
        """Note where this run begins in the logs, which the runs before share."""
        now = runfiles.log_sizes(self.groups.logs, group.pids)
        first = self.log_parts[key][0] if key in self.log_parts else now
        self.log_parts[key] = (first, now)

    def _describe(
        self, key: GroupKey, spec: RunSpec, options: BuildOptions, folder: Path
    ) -> dict[str, str]:
        group = self.groups.opened(key)
        settings = {"workload": asdict(spec.workload), "build": options.document()}
        answers = group.ask(
            30.0,
            do="describe",
            folder=str(folder),
            settings=settings,
            variables=dict(options.communicator_environment),
        )
        runfiles.copy_nccl_logs(self.groups.logs, group.pids, folder, self.log_parts[key])
        versions: dict[str, str] = answers[0]["versions"]
        return versions

    def _folder(self, spec: RunSpec, recorder: str) -> Path:
        folder = self.work / "runs" / f"{spec.key}.{recorder}"
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return folder

    def _finish(
        self,
        measured: Measured,
        folder: Path,
        recorder: str,
        versions: dict[str, str],
        recording: dict[str, Any],
        pids: list[int] | None = None,
    ) -> None:
        label = {
            "run": folder.name,
            **measured.label,
            "recorder": recorder,
            "recording": {**recording, "pids": pids or measured.pids},
            "versions": versions,
        }
        runfiles.write_label(folder, label)

    def _drop_groups(self, keys: set[GroupKey]) -> None:
        for key in keys:
            self.groups.forget(key)
            self.built.pop(key, None)
            self.log_parts.pop(key, None)
            self.used.discard(key)


def faulty_group(spec: RunSpec) -> GroupKey:
    """Return the group of the faulty state: the healthy one unless a fault needs variables."""
    variables: dict[str, str] = {}
    for dose in spec.doses:
        variables.update(dose.make().environment())
    return GroupKey(workload=spec.workload, environment=tuple(sorted(variables.items())))


def built_options(spec: RunSpec) -> tuple[BuildOptions, BuildOptions]:
    """Return how the healthy and the faulty program are built."""
    healthy = BuildOptions()
    for dose in spec.doses:
        healthy = dose.make().baseline_build(healthy)
    faulty = healthy
    for dose in spec.doses:
        faulty = dose.make().build(faulty)
    return healthy, faulty


def program_key(workload: Workload, options: BuildOptions) -> str:
    """Return the name under which workers keep a program."""
    text = json.dumps([asdict(workload), options.document()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _doses(spec: RunSpec) -> list[dict[str, Any]]:
    return [asdict(dose) for dose in spec.doses]


def _times(answers: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    return np.array([answer["step_ms"] for answer in answers], dtype=np.float64)
