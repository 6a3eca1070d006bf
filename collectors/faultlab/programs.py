"""Which programs are built in which processes, for the run at hand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from trace_analyzer.collectors.faultlab import runfiles
from trace_analyzer.collectors.faultlab.group import Group
from trace_analyzer.collectors.faultlab.groups import GroupKey, Groups
from trace_analyzer.collectors.faultlab.matrix import RunSpec
from trace_analyzer.collectors.faultlab.workload import BuildOptions, Workload

BUILD_TIMEOUT_S = 120.0
SHORT_TIMEOUT_S = 30.0
WARMUP_STEPS = 12
FIRST_WARMUP_STEPS = 40  # of a group: clocks and caches settle

Placed = tuple[GroupKey, BuildOptions]


@dataclass(kw_only=True)
class Programs:
    """The groups of one workload with what is built in them. All methods raise `GroupError`."""

    workload: Workload
    groups: Groups
    _built: dict[GroupKey, set[str]] = field(default_factory=dict)
    # sizes of the NCCL logs when a group was opened, and when the current run began in it
    _log_parts: dict[GroupKey, tuple[dict[int, int], dict[int, int]]] = field(default_factory=dict)

    @property
    def used(self) -> set[GroupKey]:
        """Groups that run."""
        return set(self._built)

    def group(self, key: GroupKey) -> Group:
        """Return a group with its process group open."""
        return self.groups.opened(key)

    def prepare(self, spec: RunSpec, wanted: Iterable[Placed]) -> dict[Placed, str]:
        """Hand the faults of a run to the groups, build what is not built, drop the rest.

        Returns the name of each wanted program.
        """
        pairs = list(wanted)
        keep = {program_key(self.workload, BuildOptions())}
        keep |= {program_key(self.workload, chosen) for _, chosen in pairs}
        for key in dict.fromkeys(key for key, _ in pairs):
            group = self.group(key)
            self._note_logs(key, group)
            group.ask(SHORT_TIMEOUT_S, do="faults", doses=[])
            group.ask(2 * SHORT_TIMEOUT_S, do="drop", keep=sorted(keep))
            self._built.setdefault(key, set())
            self._built[key] &= keep
            doses = [asdict(dose) for dose in spec.doses]
            group.ask(SHORT_TIMEOUT_S, do="faults", doses=doses, seed=spec.seed)
        return {(key, chosen): self._build(key, chosen) for key, chosen in pairs}

    def describe(self, key: GroupKey, options: BuildOptions, folder: Any) -> dict[str, str]:  # noqa: ANN401
        """Let the ranks write what they know into a folder; return their versions."""
        group = self.group(key)
        answers = group.ask(
            SHORT_TIMEOUT_S,
            do="describe",
            folder=str(folder),
            settings={
                "workload": asdict(self.workload),
                "bucket_cap_mb": options.bucket_cap_mb,
                "find_unused_parameters": options.find_unused_parameters,
                "broadcast_buffers": options.broadcast_buffers,
            },
            variables=dict(options.communicator_environment),
        )
        runfiles.copy_nccl_logs(self.groups.logs, group.pids, folder, self._log_parts[key])
        versions: dict[str, str] = answers[0]["versions"]
        return versions

    def forget(self, *keys: GroupKey) -> None:
        """Drop groups that have failed."""
        for key in set(keys):
            self.groups.forget(key)
            self._built.pop(key, None)
            self._log_parts.pop(key, None)

    def close(self) -> None:
        """End the groups, without waiting."""
        for key in list(self._built):
            self.groups.leave(key)
        self._built.clear()

    def _build(self, key: GroupKey, options: BuildOptions) -> str:
        program = program_key(self.workload, options)
        built = self._built[key]
        warmup = WARMUP_STEPS if built else FIRST_WARMUP_STEPS
        self.group(key).ask(
            BUILD_TIMEOUT_S,
            do="build",
            key=program,
            workload=asdict(self.workload),
            options=options.document(),
            warmup=0 if program in built else warmup,
        )
        built.add(program)
        return program

    def _note_logs(self, key: GroupKey, group: Group) -> None:
        """Note where this run begins in the logs, which the runs before share."""
        now = runfiles.log_sizes(self.groups.logs, group.pids)
        first = self._log_parts[key][0] if key in self._log_parts else now
        self._log_parts[key] = (first, now)


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
