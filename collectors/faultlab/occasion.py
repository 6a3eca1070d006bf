"""One occasion: as many runs of a matrix as a time budget allows, resumed at the next."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trace_analyzer.collectors.faultlab.background import Background
from trace_analyzer.collectors.faultlab.group import GroupError
from trace_analyzer.collectors.faultlab.groups import GroupKey, Groups
from trace_analyzer.collectors.faultlab.matrix import KINETO, LABEL_ONLY, NSYS, RunSpec
from trace_analyzer.collectors.faultlab.nsys import Nsys, reports
from trace_analyzer.collectors.faultlab.pack import pack
from trace_analyzer.collectors.faultlab.programs import Programs, faulty_group
from trace_analyzer.collectors.faultlab.prune_nsys import traced_processes
from trace_analyzer.collectors.faultlab.runfiles import LABEL_NAME, write_bundle_manifest
from trace_analyzer.collectors.faultlab.session import FaultLostError, Session
from trace_analyzer.collectors.faultlab.timing import Measured, Protocol
from trace_analyzer.collectors.faultlab.workload import Workload

PACKING_S = 15.0  # kept back for exports, pruning and packing
PRUNING_S = 8.0  # a trace
OPENING_S = 6.0  # a group: CUDA, NCCL, building, warming up
ATTEMPTS = 2


@dataclass(kw_only=True)
class State:
    """What earlier occasions did; saved after every run."""

    path: Path
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> State:
        """Read the file, or begin anew where there is none."""
        if not path.exists():
            return cls(path=path)
        document = json.loads(path.read_text())
        return cls(path=path, done=document["done"], failed=document["failed"])

    def save(self) -> None:
        """Write the file."""
        document = {"schema_version": 1, "done": self.done, "failed": self.failed}
        partial = self.path.with_name(self.path.name + ".partial")
        partial.write_text(json.dumps(document, indent=1) + "\n")
        partial.replace(self.path)

    def wants(self, spec: RunSpec, recorder: str) -> bool:
        """Return whether this recording is still to be made."""
        run = f"{spec.key}.{recorder}"
        return run not in self.done and len(self.failed.get(run, ())) < ATTEMPTS


@dataclass(kw_only=True)
class Occasion:
    """Records runs until the budget is used up. `say` gets one line a run."""

    specs: Sequence[RunSpec]
    state: State
    out: Path
    work: Path
    budget_s: float
    size: int
    device: str
    nsys: Nsys | None
    protocol: Protocol
    say: Callable[[str], None]
    label: str = "occasion"

    def run(self) -> list[Path]:
        """Record, export, prune and pack; return the archives."""
        self._began = time.monotonic()
        self._folders: list[Path] = []
        self.work.mkdir(parents=True, exist_ok=True)
        (self.work / "raw").mkdir(exist_ok=True)
        self.out.mkdir(parents=True, exist_ok=True)
        self._background = Background(self.work / "background.log")
        self._exports: list[tuple[GroupKey, list[Path]]] = []
        self._groups = Groups(size=self.size, device=self.device, work=self.work, nsys=self.nsys)
        pending = self._pending()
        try:
            self._groups.start(self._wanted_groups(pending))
            for workload in dict.fromkeys(spec.workload for spec in pending):
                own = [spec for spec in pending if spec.workload == workload]
                self._record_workload(workload, own)
        finally:  # whatever went wrong, what is recorded is delivered
            self._groups.close()
            archives = self._deliver()
        return archives

    def _pending(self) -> list[RunSpec]:
        pending = []
        for spec in self.specs:
            traits = spec.workload.traits(device=self.device, world_size=self.size)
            missing = set[str]().union(*(dose.kind.needs for dose in spec.doses)) - traits
            if missing:
                self.say(f"{spec.key}: not possible here, needs {', '.join(sorted(missing))}")
            elif any(self._wants(spec, recorder) for recorder in spec.recorders or (LABEL_ONLY,)):
                pending.append(spec)
        return pending

    def _wants(self, spec: RunSpec, recorder: str) -> bool:
        if recorder == NSYS and self.nsys is None:
            return False
        return self.state.wants(spec, recorder)

    def _wanted_groups(self, pending: Sequence[RunSpec]) -> list[GroupKey]:
        keys: list[GroupKey] = []
        for workload in dict.fromkeys(spec.workload for spec in pending):
            own = [spec for spec in pending if spec.workload == workload]
            keys.append(GroupKey(workload=workload))
            keys += [faulty_group(spec) for spec in own]
            keys += self._nsys_groups(own)
        return list(dict.fromkeys(keys))

    def _nsys_groups(self, specs: Sequence[RunSpec]) -> list[GroupKey]:
        counts: dict[GroupKey, int] = {}
        for spec in specs:
            if NSYS in spec.recorders and self._wants(spec, NSYS):
                key = faulty_group(spec)
                counts[key] = counts.get(key, 0) + 1
        return [
            GroupKey(workload=key.workload, environment=key.environment, captures=count)
            for key, count in counts.items()
        ]

    def _left_s(self) -> float:
        return self.budget_s - self._packing_s() - (time.monotonic() - self._began)

    def _packing_s(self) -> float:
        return PACKING_S + self._pruning_s(len(self._folders))

    def _pruning_s(self, recordings: int) -> float:
        return PRUNING_S * 2 * recordings / self._background.at_once

    def _timing_s(self, spec: RunSpec, session: Session) -> float:
        nominal_s = spec.workload.scale.nominal_step_ms / 1e3
        protocol = self.protocol
        steps = 2 * protocol.pairs * (protocol.segment_steps + protocol.settle_steps)
        if all(dose.kind.quick for dose in spec.doses):
            steps = 2 * protocol.block_pairs * (protocol.block_steps + protocol.block_settle_steps)
        key = faulty_group(spec)
        opening = OPENING_S * len({key, GroupKey(workload=spec.workload)} - session.programs.used)
        return 1.5 * steps * nominal_s + opening + 1.0

    def _recording_s(self, spec: RunSpec) -> float:
        protocol = self.protocol
        steps = 3 * spec.active_steps + 4 * (protocol.settle_steps + protocol.segment_steps)
        each_s = 2.5 + steps * spec.workload.scale.nominal_step_ms / 1e3
        # Traces are pruned at the end, when nothing is measured any more.
        return len(spec.recorders) * each_s + self._pruning_s(len(spec.recorders))

    def _record_workload(self, workload: Workload, specs: Sequence[RunSpec]) -> None:
        session = Session(
            programs=Programs(workload=workload, groups=self._groups),
            protocol=self.protocol,
            background=self._background,
            work=self.work,
            clock="cuda-event" if self.device == "cuda" else "host",
        )
        measured: list[Measured] = []
        owed_s = 0.0
        for spec in specs:
            recording_s = self._recording_s(spec)
            if self._timing_s(spec, session) + recording_s + owed_s > self._left_s():
                self.say(f"{spec.key}: no time left")
                continue
            result = self._time_run(session, spec)
            if result is not None:
                measured.append(result)
                owed_s += recording_s
        for result in measured:
            if KINETO in result.spec.recorders and self.state.wants(result.spec, KINETO):
                self._profile_run(session, result)
        for key in self._nsys_groups([result.spec for result in measured]):
            self._capture(session, key, measured)
        session.programs.close()
        # The next groups open and build now; that is when the traces may be worked on.
        self._background.resume()

    def _time_run(self, session: Session, spec: RunSpec) -> Measured | None:
        self._background.pause()
        try:
            measured = session.measure(spec)
        except GroupError as error:
            for recorder in spec.recorders or (LABEL_ONLY,):
                self._fail(f"{spec.key}.{recorder}", str(error))
            return None
        truth = measured.truth
        self.say(
            f"{spec.key}: healthy {truth.healthy.step_ms:.2f}, faulty {truth.faulty.step_ms:.2f} ms, "
            f"cost {truth.cost_ms:+.2f} ± {truth.half_width_ms:.2f} ms "
            f"({100 * truth.half_width_share:.2f} %), {measured.seconds:.1f} s"
        )
        if not spec.recorders:
            self._done(f"{spec.key}.{LABEL_ONLY}", measured, measured.seconds)
        return measured

    def _profile_run(self, session: Session, measured: Measured) -> None:
        began = time.monotonic()
        run = f"{measured.spec.key}.{KINETO}"
        try:
            self._folders.append(session.record_kineto(measured))
        except (GroupError, FaultLostError) as error:
            self._fail(run, str(error))
            return
        seconds = time.monotonic() - began
        self.say(f"{run}: recorded, {seconds:.1f} s")
        self._done(run, measured, measured.seconds + seconds)

    def _capture(self, session: Session, key: GroupKey, measured: Sequence[Measured]) -> None:
        folders: list[Path] = []
        for result in measured:
            own = NSYS in result.spec.recorders and self._wants(result.spec, NSYS)
            if not own or faulty_group(result.spec).environment != key.environment:
                continue
            run = f"{result.spec.key}.{NSYS}"
            began = time.monotonic()
            if self._left_s() < OPENING_S:
                self.say(f"{run}: no time left")
                continue
            try:
                folders.append(session.capture_nsys(result, key))
            except GroupError as error:
                self._fail(run, str(error))
                break
            self.say(f"{run}: captured, {time.monotonic() - began:.1f} s")
            self._done(run, result, time.monotonic() - began)
        self._exports.append((key, folders))

    def _done(self, run: str, measured: Measured, seconds: float) -> None:
        self.state.done[run] = {
            "occasion": self.label,
            "seconds": round(seconds, 1),
            "set": measured.spec.set,
            "cost_ms": measured.label["cost_ms"],
            "half_width_share": measured.label["half_width_share"],
        }
        self.state.save()

    def _fail(self, run: str, problem: str) -> None:
        self.say(f"{run}: failed: {problem.strip().splitlines()[-1]}")
        self.state.failed.setdefault(run, []).append(problem[-2000:])
        self.state.save()

    def _deliver(self) -> list[Path]:
        for key, folders in self._exports:
            found = reports(self._groups.captures, key.name)
            if len(found) != len(folders):
                for folder in folders:
                    self.state.done.pop(folder.name, None)
                    self._fail(folder.name, f"nsys left {len(found)} reports, not {len(folders)}")
                continue
            for folder, raw in zip(folders, found, strict=True):
                self._folders.append(folder)
                self._background.add("export-nsys", str(raw), str(folder / "node0.sqlite"))
        self._background.finish(max(PACKING_S, self._left_s() + self._packing_s() - 5.0))
        for problem in self._background.failures:
            self.say(f"background: {problem}")
        ready = [folder for folder in self._folders if self._complete(folder)]
        archives, left_over = pack(ready, self.out, self.label)
        for folder in left_over:
            self.state.done.pop(folder.name, None)
            self._fail(folder.name, "no place in the archives")
        self.state.save()
        for folder in (self.work / "raw",):
            shutil.rmtree(folder, ignore_errors=True)
        return archives

    def _complete(self, folder: Path) -> bool:
        """Write the manifest of a run whose recording is there; else note the failure."""
        label = json.loads((folder / LABEL_NAME).read_text())
        names = {path.name for path in folder.iterdir()}
        if label["recorder"] == KINETO:
            wanted = {f"rank{rank}.pt.trace.json.gz" for rank in range(label["world_size"])}
        else:
            wanted = {"node0.sqlite"}
        if not wanted <= names:
            self.state.done.pop(folder.name, None)
            self._fail(folder.name, f"no {', '.join(sorted(wanted - names))}")
            return False
        # nsys sometimes begins to trace one of the ranks only when the window is over.
        if label["recorder"] == NSYS:
            traced = traced_processes(folder / "node0.sqlite")
            if traced != label["world_size"]:
                self.state.done.pop(folder.name, None)
                self._fail(folder.name, f"kernels of {traced} of {label['world_size']} ranks")
                return False
        spec = next(spec for spec in self.specs if folder.name.startswith(f"{spec.key}."))
        write_bundle_manifest(folder, spec, label["versions"])
        return True
