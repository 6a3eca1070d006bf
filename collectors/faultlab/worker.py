"""One rank that builds, trains, times and records as the driver tells it.

Commands and answers are JSON lines over a local socket. Every command is answered; an error is
answered with its text, and the driver then ends the processes.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import platform
import socket
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from trace_analyzer.allowlist import allowed
from trace_analyzer.collectors.faultlab.fault import Dose, Fault
from trace_analyzer.collectors.faultlab.measure import (
    alternating_steps,
    captured_steps,
    profiled_steps,
    timed_steps,
)
from trace_analyzer.collectors.faultlab.plan import StepPlan
from trace_analyzer.collectors.faultlab.trainer import Trainer
from trace_analyzer.collectors.faultlab.workload import BuildOptions, Workload
from trace_analyzer.collectors.faultlab.world import World, close_world, open_world

MIN_CORES_TO_BIND = 4

Command = dict[str, Any]
Answer = dict[str, Any]


class Worker:
    """Holds the built programs and the faults of the current run."""

    def __init__(self) -> None:
        self._world: World | None = None
        self._trainers: dict[str, Trainer] = {}
        self._faults: list[Fault] = []
        self._actions: dict[str, Callable[[Command], Answer]] = {
            "open": self._open,
            "build": self._build,
            "drop": self._drop,
            "faults": self._choose,
            "steps": self._steps,
            "alternate": self._alternate,
            "profile": self._profile,
            "capture": self._capture,
            "describe": self._describe,
        }

    def answer(self, command: Command) -> Answer:
        """Do what a command asks and return what came of it."""
        return self._actions[command["do"]](command)

    def close(self) -> None:
        """Give everything back and leave the process group."""
        self._choose({"doses": []})
        for trainer in self._trainers.values():
            trainer.close()
        close_world()

    @property
    def world(self) -> World:
        """The process group. Raises `RuntimeError` before `open`."""
        if self._world is None:
            raise RuntimeError("the process group is not open")
        return self._world

    def _open(self, command: Command) -> Answer:
        self._world = open_world(command["device"])
        self.world.meet()
        return {"rank": self.world.rank, "pid": os.getpid()}

    def _build(self, command: Command) -> Answer:
        """Build a program unless it is built, and warm it up."""
        key = command["key"]
        if key not in self._trainers:
            options = BuildOptions.of_document(command["options"])
            self._trainers[key] = Trainer(Workload(**command["workload"]), options, self.world)
        trainer = self._trainers[key]
        plan = self._plan(trainer, faulty=False)
        trainer.apply_model_settings(plan)
        timed_steps(trainer, plan, command["warmup"])
        gc.collect()
        gc.freeze()
        parameters = sum(value.numel() for value in trainer.model.parameters())
        return {"parameters": parameters}

    def _drop(self, command: Command) -> Answer:
        """Let go of all programs but those named."""
        for key in [key for key in self._trainers if key not in command["keep"]]:
            gc.unfreeze()
            self._trainers.pop(key).close()
        return {}

    def _choose(self, command: Command) -> Answer:
        """End the faults of the run before; hold those of the next."""
        for fault in self._faults:
            fault.close()
        self._faults = [
            Dose(**dose).make(command.get("seed", 0) + position)
            for position, dose in enumerate(command["doses"])
        ]
        return {}

    def _steps(self, command: Command) -> Answer:
        trainer, faulty = self._trainers[command["key"]], command["faulty"]
        with self._state(trainer, faulty=faulty) as plan:
            timed = timed_steps(trainer, plan, command["steps"], settle=command["settle"])
        return timed.document()

    def _alternate(self, command: Command) -> Answer:
        """Time short blocks of healthy and faulty steps in turn; return times by pair."""
        healthy, faulty = (self._trainers[key] for key in command["keys"])
        states = (
            (healthy, self._plan(healthy, faulty=False)),
            (faulty, self._plan(faulty, faulty=True)),
        )
        times = alternating_steps(
            states, pairs=command["pairs"], steps=command["steps"], settle=command["settle"]
        )
        return {
            state: [part.document() for part in parts]
            for state, parts in zip(("healthy", "faulty"), times, strict=True)
        }

    def _profile(self, command: Command) -> Answer:
        trainer = self._trainers[command["key"]]
        path = Path(command["folder"]) / f"rank{self.world.rank}.pt.trace.json"
        with self._state(trainer, faulty=True) as plan:
            times = profiled_steps(
                trainer,
                plan,
                command["steps"],
                path,
                record_shapes=command["record_shapes"],
                around=(command["settle"], command["plain"]),
                delays=self._delays(),
            )
        return {name: timed.document() for name, timed in times.items()}

    def _capture(self, command: Command) -> Answer:
        trainer = self._trainers[command["key"]]
        with self._state(trainer, faulty=True) as plan:
            timed_steps(trainer, plan, command["settle"])
            timed = captured_steps(trainer, plan, command["steps"])
        return {"profiled": timed.document()}

    def _describe(self, command: Command) -> Answer:
        """Write the environment and the Flight Recorder's dump into a folder."""
        folder, rank = Path(command["folder"]), self.world.rank
        document = {
            "schema_version": 1,
            "rank": rank,
            "variables": allowed({**os.environ, **command["variables"]}),
            "versions": versions(),
            "gpus": gpus(),
            "settings": command["settings"],
        }
        (folder / f"env_rank{rank}.json").write_text(json.dumps(document, indent=1) + "\n")
        dump = flight_record()
        if dump is not None:
            (folder / f"flight_rank{rank}.pkl").write_bytes(dump)
        return {"versions": document["versions"]}

    def _plan(self, trainer: Trainer, *, faulty: bool) -> StepPlan:
        plan = StepPlan()
        for fault in self._faults:
            fault.baseline(plan, trainer)
        if faulty:
            for fault in self._faults:
                fault.edit_everywhere(plan, trainer)
                if fault.strikes(trainer):
                    fault.edit(plan, trainer)
        return plan

    @contextlib.contextmanager
    def _state(self, trainer: Trainer, *, faulty: bool) -> Any:  # noqa: ANN401
        plan = self._plan(trainer, faulty=faulty)
        trainer.apply_model_settings(plan)
        struck = [fault for fault in self._faults if faulty and fault.strikes(trainer)]
        for fault in struck:
            fault.switch_on(trainer)
        self.world.meet()
        try:
            yield plan
        finally:
            for fault in struck:
                fault.switch_off(trainer)

    def _delays(self) -> tuple[int, int]:
        """Return how many plain steps come before and after this rank's recording."""
        steps = sum(int(fault.magnitude) for fault in self._faults if fault.name == "late-start")
        return (steps, 0) if self.world.rank == self.world.last else (0, steps)


def versions() -> dict[str, str]:
    """Return the versions that a recording depends on."""
    found = {"torch": str(torch.__version__), "python": platform.python_version()}
    if torch.version.cuda:
        found["cuda"] = str(torch.version.cuda)
    if torch.cuda.is_available():
        found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return found


def gpus() -> list[dict[str, Any]]:
    """Return name, memory and multiprocessors of the GPUs that torch sees."""
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append(
            {
                "index": index,
                "name": properties.name,
                "memory_bytes": properties.total_memory,
                "multiprocessors": properties.multi_processor_count,
            }
        )
    return found


def flight_record() -> bytes | None:
    """Return the Flight Recorder's dump, or None where this torch or backend has none.

    Frames are left out: they hold paths of this machine.
    """
    dump = getattr(torch._C._distributed_c10d, "_dump_nccl_trace", None)  # noqa: SLF001
    if dump is None or distributed.get_backend() != "nccl":
        return None
    record: bytes = dump(includeStackTraces=False)
    return record


def main(arguments: Sequence[str]) -> None:
    """Connect to the driver's socket, the only argument, and answer until it says `exit`."""
    bind_to_own_cores()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(arguments[0])
    stream = connection.makefile("rwb")
    hello = {"rank": int(os.environ.get("RANK", "0")), "pid": os.getpid()}
    _send(stream, hello)
    worker = Worker()
    for line in stream:
        command = json.loads(line)
        if command["do"] == "exit":
            break
        try:
            answer = {"ok": True, **worker.answer(command)}
        except Exception:  # noqa: BLE001  (whatever a fault does, the driver must hear of it)
            answer = {"ok": False, "error": traceback.format_exc()}
        _send(stream, answer)
    with contextlib.suppress(Exception):  # the driver has what it wants
        worker.close()
    os._exit(0)  # communicators of ended peers may never close


def bind_to_own_cores() -> None:
    """Keep this rank on its share of the host's cores, as launchers do, where there are many."""
    cores = sorted(os.sched_getaffinity(0))
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    share = len(cores) // size
    if share >= MIN_CORES_TO_BIND:
        os.sched_setaffinity(0, cores[rank * share : (rank + 1) * share])


def _send(stream: Any, document: Answer) -> None:  # noqa: ANN401
    stream.write(json.dumps(document).encode() + b"\n")
    stream.flush()
