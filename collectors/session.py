"""Opens and closes recordings inside ranks, for the hook and for the two-line API."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trace_analyzer.collectors import contents, environment, finish, host, sampler
from trace_analyzer.collectors.options import ENVIRONMENT_VARIABLE, Options, Schedule
from trace_analyzer.collectors.ranks import (
    local_rank_of_process,
    rank_of_process,
    world_size_of_process,
)
from trace_analyzer.collectors.recorder import Recorder
from trace_analyzer.collectors.rendezvous import Rendezvous


def open_rank(options: Options, *, parts_every: int = 1) -> Recorder:
    """Open this rank's recording and store its environment; `begin()` starts it.

    `parts_every` is the step timer's.

    Raises `RecordingExistsError` where the folder holds this rank already, and `OSError` where
    the folder cannot be written.
    """
    options.path.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(options, parts_every=parts_every)
    environment.record(options.path, recorder.rank, host.read_facts(options.host_facts))
    return recorder


@contextmanager
def record(
    out: Path | str = "bundle",
    *,
    record_shapes: bool = False,
    with_stack: bool = False,
    calibrate: bool = True,
    sample_gpus: bool = True,
    force: bool = False,
    parts_every: int = 1,
    **counts: Any,  # noqa: ANN401
) -> Iterator[Recorder]:
    """Record the loop inside the `with` block into a bundle.

        with trace_analyzer.collectors.record(out="bundle") as rec:
            for batch in loader:
                ...
                rec.step()

    `rec.step()` stands at the end of every step, on every rank. `out` is the bundle's folder; under
    `trace-analyzer collect` the command line's folder, mode and counts are taken instead.
    `record_shapes` and `with_stack` are torch.profiler's, `calibrate` measures what the profiler
    costs once the steps are done, `sample_gpus` records clocks and power beside the run.
    `parts_every` n leaves the parts that the loop marks (`rec.part()`) to one step of n, as
    `StepTimer` does; the trace has all of them.
    `**counts` are fields of `Schedule`. Raises `RecordingExistsError` where the folder holds this
    rank already, unless `force`.
    """
    from trace_analyzer.collectors import hook

    hook.stand_down()  # the loop says itself where its steps are
    given = os.environ.get(ENVIRONMENT_VARIABLE)
    if given is not None:
        recorder = open_rank(Options.from_json(given), parts_every=parts_every)
        try:
            recorder.begin()
            yield recorder
        finally:
            recorder.close()
        return
    options = Options(
        folder=str(Path(out).absolute()),
        schedule=Schedule(**counts),
        record_shapes=record_shapes,
        with_stack=with_stack,
        calibrate=calibrate,
    )
    if force:
        contents.remove_recording(options.path, rank=rank_of_process())
    is_first_of_host = local_rank_of_process() == 0
    started = finish.now()
    beside = sampler.start_process(options.path) if sample_gpus and is_first_of_host else None
    recorder = open_rank(options, parts_every=parts_every)
    try:
        recorder.begin()
        yield recorder
    finally:
        recorder.close()
        Rendezvous("trace-analyzer/manifest").meet(timeout_s=60.0)
        if is_first_of_host:
            sampler.stop_process(beside)
            finish.write(options.path, started=started, world_size=world_size_of_process())
