from __future__ import annotations

import gzip
import json
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

torch = pytest.importorskip("torch")

from torch import autograd, distributed, nn  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402
from torch.utils.data.dataloader import _BaseDataLoaderIter  # noqa: E402

from trace_analyzer.bundle import Role, read_manifest  # noqa: E402
from trace_analyzer.collectors import (  # noqa: E402
    calibration,
    captures,
    hook,
    part_hooks,
    part_sampling,
    probes,
    ranges,
    record,
    rendezvous,
    settings,
)
from trace_analyzer.collectors.options import Mode, Options, Schedule  # noqa: E402
from trace_analyzer.collectors.recorder import Recorder, RecordingExistsError  # noqa: E402

pytestmark = pytest.mark.torch

SHORT = Schedule(skip=2, settle=1, unprofiled=4, warmup=1, active=3, after=4)


class Loop:
    """A small training script."""

    def __init__(self) -> None:
        self.model = nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(TensorDataset(torch.zeros(400, 8)), batch_size=4)
        self.batches = iter(self.loader)

    def step(self, accumulate: int = 1) -> None:
        self.optimizer.zero_grad()
        for _ in range(accumulate):
            (batch,) = next(self.batches)
            self.model(batch).sum().backward()
        self.optimizer.step()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def phases(folder: Path) -> Counter[str]:
    records = lines(folder / "steps_rank0.jsonl")
    return Counter(item["phase"] for item in records if item["kind"] == "step")


def trace_names(folder: Path) -> Counter[str]:
    document = json.loads(gzip.decompress((folder / "rank0.pt.trace.json.gz").read_bytes()))
    return Counter(event.get("name", "") for event in document["traceEvents"])


def schema(name: str) -> Any:
    text = files("trace_analyzer.data").joinpath("schemas", f"{name}.schema.json").read_text()
    return json.loads(text)


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[Callable[..., hook.Observer]]:
    """Watch this process as `collect` would; the hooks are taken out after the test."""
    observers: list[hook.Observer] = []

    def observe(**more: Any) -> hook.Observer:
        options = Options(folder=str(tmp_path), **{"schedule": SHORT, "calibrate": False, **more})
        observer = hook.Observer(options)
        observer.install()
        observers.append(observer)
        return observer

    yield observe
    for observer in observers:
        if observer._recorder is not None:
            observer._recorder.close()
        observer.remove()


def test_the_two_line_api_leaves_a_whole_bundle(tmp_path: Path) -> None:
    loop = Loop()
    counts: dict[str, Any] = {
        "skip": 2,
        "settle": 1,
        "unprofiled": 4,
        "warmup": 1,
        "active": 3,
        "after": 4,
    }
    with record(out=tmp_path / "bundle", calibrate=False, **counts) as rec:
        for _ in range(20):
            with rec.part("forward"):
                loss = loop.model(torch.zeros(4, 8)).sum()
            with rec.part("backward"):
                loss.backward()
            rec.step()
    bundle = tmp_path / "bundle"
    assert rec.complete
    assert phases(bundle) == {"warmup": 5, "unprofiled": 8, "profiled": 3}
    records = lines(bundle / "steps_rank0.jsonl")
    for item in records:
        jsonschema.validate(item, schema("steps"))
    assert records[-1] == {"kind": "end", "complete": True}
    assert {"forward_ms", "backward_ms", "other_host_ms"} <= set(records[5])
    names = trace_names(bundle)
    assert sorted(name for name in names if name.startswith("ProfilerStep#")) == [
        "ProfilerStep#1",
        "ProfilerStep#2",
        "ProfilerStep#3",
    ]
    assert names["backward"] == 3
    environment = json.loads((bundle / "env_rank0.json").read_text())
    jsonschema.validate(environment, schema("environment"))
    assert environment["versions"]["torch"] == str(torch.__version__)
    manifest = read_manifest(bundle)
    assert {item.role for item in manifest.files} >= {Role.KINETO, Role.TIMER, Role.ENVIRONMENT}
    jsonschema.validate(json.loads((bundle / "bundle.json").read_text()), schema("bundle"))
    with pytest.raises(RecordingExistsError, match="recorded already; choose another folder"):
        record(out=bundle).__enter__()
    with record(out=bundle, force=True, calibrate=False, **counts) as again:
        again.step()
    assert not again.complete
    assert not (bundle / "rank0.pt.trace.json.gz").exists()


def test_a_loop_that_fails_keeps_what_was_recorded(tmp_path: Path) -> None:
    def train() -> None:
        with record(out=tmp_path, skip=1, settle=1, unprofiled=3, active=3, warmup=1) as rec:
            for number in range(9):
                torch.zeros(4).add_(1.0)
                rec.step()
                1 / (8 - number)

    with pytest.raises(ZeroDivisionError):
        train()
    assert phases(tmp_path)["unprofiled"] == 3
    assert phases(tmp_path)["profiled"] >= 2
    assert trace_names(tmp_path)["aten::add_"] >= 2
    notes = [item["message"] for item in lines(tmp_path / "steps_rank0.jsonl") if "message" in item]
    assert len(notes) == 1
    assert "before the recording was complete" in notes[0]
    assert read_manifest(tmp_path).of_role(Role.KINETO)


def test_the_hook_finds_steps_and_parts_of_an_unmodified_loop(
    tmp_path: Path, observed: Callable[..., hook.Observer]
) -> None:
    backward, next_batch = torch.autograd.backward, _BaseDataLoaderIter.__next__
    observer = observed()
    loop = Loop()
    for _ in range(30):
        loop.step()
    assert observer._recorder is not None
    assert observer._recorder.complete
    # skip=2: two rounds are watched, the third ends where the recording begins.
    assert phases(tmp_path) == {"warmup": 3, "unprofiled": 8, "profiled": 3}
    header, *others = lines(tmp_path / "steps_rank0.jsonl")
    jsonschema.validate(header, schema("steps"))
    assert header["parts_every"] == part_sampling.HOOKED_PARTS_EVERY
    records = [item for item in others if item["kind"] == "step"]
    with_parts = [item for item in records if any(key.endswith("_host_ms") for key in item)]
    found = Counter(item["phase"] for item in with_parts)
    # Of each four unprofiled steps the first two; warm-up steps come alone, as first of a phase.
    assert found == {"warmup": 3, "unprofiled": 4, "profiled": 3}
    for item in with_parts:
        assert {"data_ms", "forward_ms", "backward_ms", "optimizer_ms"} <= set(item)
        parts = sum(item[f"{part}_host_ms"] for part in recorder_parts())
        assert parts == pytest.approx(item["host_ms"], abs=1.0)
    names = trace_names(tmp_path)
    assert names["backward"] == 3
    assert names["Optimizer.step#SGD.step"] == 3
    assert torch.autograd.backward is backward
    assert _BaseDataLoaderIter.__next__ is next_batch


def test_steps_without_parts_run_torch_as_it_is(
    tmp_path: Path, observed: Callable[..., hook.Observer]
) -> None:
    backward, next_batch = torch.autograd.backward, _BaseDataLoaderIter.__next__
    schedule = Schedule(skip=2, settle=0, unprofiled=12, after=0)
    observer = observed(mode=Mode.TIMER, schedule=schedule)
    calls = Counter[str]()
    loop = Loop()
    loop.model.register_forward_hook(lambda *_: calls.update(forward=1))
    own = register_optimizer_step_post_hook(lambda *_: calls.update(own=1))
    wrapped = []
    try:
        for _ in range(18):
            replaced = torch.autograd.backward is not backward
            assert (_BaseDataLoaderIter.__next__ is not next_batch) is replaced
            wrapped.append(replaced)
            loop.step()
            assert not nn.modules.module._has_any_global_hook()
    finally:
        own.remove()
    assert calls == {"forward": 18, "own": 18}
    # Three steps are watched; of the twelve after them the first, second and tenth have parts.
    assert [number - 3 for number, replaced in enumerate(wrapped) if replaced] == [0, 1, 9]
    records = [item for item in lines(tmp_path / "steps_rank0.jsonl") if item["kind"] == "step"]
    assert [item["index"] for item in records if "backward_ms" in item] == [0, 1, 9]
    assert len(records) == 12
    # The script's own hook follows: ours is still in torch's list, and says nothing.
    assert observer._passive


def test_a_wrapper_that_somebody_wrapped_stays_and_is_not_doubled() -> None:
    class Owner:
        @staticmethod
        def call() -> list[str]:
            return ["call"]

    def around(original: Callable[[], list[str]]) -> Callable[[], list[str]]:
        return lambda: ["ours", *original()]

    plain = Owner.call
    swap = part_hooks.Swap(Owner, "call", around)
    swap.put_in()
    swap.put_in()
    assert Owner.call() == ["ours", "call"]
    ours = Owner.call
    theirs = lambda: ["theirs", *ours()]  # noqa: E731
    Owner.call = theirs  # type: ignore[method-assign]
    swap.take_out()
    assert Owner.call is theirs
    Owner.call = ours  # type: ignore[method-assign]
    swap.take_out()
    assert Owner.call is plain


def test_backward_inside_backward_is_one_part() -> None:
    class Parts:
        ranges = ranges.NoRanges()

        def __init__(self) -> None:
            self.marked: list[str] = []

        def mark(self, part: str, *, on_device: bool = True) -> None:
            self.marked.append(part)

    class Nested(autograd.Function):
        @staticmethod
        def forward(context: Any, value: Any) -> Any:
            return value.clone()

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            with torch.enable_grad():
                torch.zeros(1, requires_grad=True).sum().backward()
            return gradient

    recorder = Parts()
    hooks = part_hooks.PartHooks(lambda: recorder)  # type: ignore[arg-type,return-value]
    hooks.put_in()
    try:
        nested = Nested.apply(torch.ones(1, requires_grad=True))  # type: ignore[no-untyped-call]
        nested.sum().backward()
    finally:
        hooks.take_out()
    assert recorder.marked == ["forward", "backward"]


def recorder_parts() -> tuple[str, ...]:
    return ("data", "forward", "backward", "optimizer", "other")


def test_accumulated_gradients_are_one_step(
    tmp_path: Path, observed: Callable[..., hook.Observer]
) -> None:
    observed(mode=Mode.TIMER)
    loop = Loop()
    for _ in range(13):
        loop.step(accumulate=3)
    records = [item for item in lines(tmp_path / "steps_rank0.jsonl") if item["kind"] == "step"]
    assert len(records) == 9
    assert [item["phase"] for item in records] == ["warmup"] + ["unprofiled"] * 8


def test_a_scaler_that_skips_the_optimizer_still_ends_a_step(
    tmp_path: Path, observed: Callable[..., hook.Observer]
) -> None:
    observed(mode=Mode.TIMER, schedule=Schedule(skip=2, settle=0, unprofiled=6, after=0))
    loop = Loop()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for number in range(9):
        loop.optimizer.zero_grad()
        loss = loop.model(torch.ones(4, 8)).sum() * (float("inf") if number == 4 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(loop.optimizer)
        scaler.update()
    assert phases(tmp_path) == {"unprofiled": 6}


def test_two_optimizers_are_one_step(
    tmp_path: Path, observed: Callable[..., hook.Observer]
) -> None:
    observed(mode=Mode.TIMER, schedule=Schedule(skip=2, settle=0, unprofiled=4, after=0))
    first, second = Loop(), Loop()
    for _ in range(8):
        first.step()
        second.step()
    records = [item for item in lines(tmp_path / "steps_rank0.jsonl") if item["kind"] == "step"]
    assert len(records) == 4


def test_other_threads_are_not_taken_for_training(
    tmp_path: Path, observed: Callable[..., hook.Observer]
) -> None:
    observed(mode=Mode.TIMER, schedule=Schedule(skip=2, settle=0, unprofiled=5, after=0))
    loop, other = Loop(), Loop()
    for number in range(5):
        loop.step()
        if number == 3:
            thread = threading.Thread(target=lambda: deque(map(other.step, [1] * 9)))
            thread.start()
            thread.join()
    loop.step()
    assert phases(tmp_path).total() == 0  # five steps are asked for, three were made


def test_a_forked_child_leaves_the_recording_to_its_parent(
    tmp_path: Path, observed: Callable[..., hook.Observer]
) -> None:
    observed(mode=Mode.TIMER, schedule=Schedule(skip=2, settle=0, unprofiled=5, after=0))
    loop = Loop()
    for _ in range(5):
        loop.step()
    child = os.fork()
    if child == 0:
        for _ in range(9):
            loop.step()
        os._exit(0)
    os.waitpid(child, 0)
    for _ in range(3):
        loop.step()
    assert phases(tmp_path) == {"unprofiled": 5}


def test_a_child_that_trains_in_its_parents_place_is_recorded(
    tmp_path: Path, observed: Callable[..., hook.Observer]
) -> None:
    observed(mode=Mode.TIMER, schedule=Schedule(skip=2, settle=0, unprofiled=2, after=0))
    child = os.fork()  # as launchers do that import torch before they fork
    if child == 0:
        loop = Loop()
        for _ in range(5):
            loop.step()
        os._exit(0)
    os.waitpid(child, 0)
    assert phases(tmp_path) == {"unprofiled": 2}


def test_training_can_be_ended_when_everything_is_recorded(
    tmp_path: Path, observed: Callable[..., hook.Observer]
) -> None:
    schedule = Schedule(skip=2, settle=0, unprofiled=2, after=0)
    observed(mode=Mode.TIMER, schedule=schedule, stop_when_done=True)
    loop = Loop()

    def train() -> None:
        for _ in range(50):
            loop.step()

    with pytest.raises(SystemExit) as stopped:
        train()
    assert stopped.value.code == 0
    assert phases(tmp_path) == {"unprofiled": 2}


def test_a_second_process_of_the_same_rank_stays_passive(
    tmp_path: Path,
    observed: Callable[..., hook.Observer],
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "steps_rank0.jsonl").write_text("of the first process\n")
    observed()
    loop = Loop()
    for _ in range(6):
        loop.step()
    assert "this process is not recorded: " in capfd.readouterr().err
    assert (tmp_path / "steps_rank0.jsonl").read_text() == "of the first process\n"


def test_a_defect_of_the_recorder_does_not_end_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(captures.TorchCapture, "start", broken)
    rec = Recorder(Options(folder=str(tmp_path), schedule=SHORT, calibrate=False))
    rec.begin()
    for _ in range(30):
        rec.step()
    assert rec.done
    assert not rec.complete
    assert (
        "recording stopped, training goes on: RuntimeError: no such luck" in capfd.readouterr().err
    )
    assert phases(tmp_path)["unprofiled"] == 4


def test_sample_seconds_sets_the_number_of_steps(tmp_path: Path) -> None:
    schedule = Schedule(skip=1, settle=0, unprofiled=5, warmup=1, after=0, sample_seconds=0.2)
    rec = Recorder(Options(folder=str(tmp_path), schedule=schedule, calibrate=False))
    monkey_ms = iter([10.0] * 5)
    rec._timer.drain = lambda **_: [  # type: ignore[method-assign]
        {"phase": "unprofiled", "step_ms": ms} for ms in monkey_ms
    ]
    rec.begin()
    for _ in range(60):
        torch.zeros(2)
        rec.step()
    assert phases(tmp_path)["profiled"] == 20
    assert rec.complete


def test_a_process_that_stays_slow_after_the_profiler_is_noted(tmp_path: Path) -> None:
    rec = Recorder(Options(folder=str(tmp_path), schedule=SHORT, calibrate=False))
    rows = iter([[20.0] * 30, [24.0] * 30])
    rec._timer.drain = lambda **_: [  # type: ignore[method-assign]
        {"phase": "unprofiled", "step_ms": ms} for ms in next(rows)
    ]
    rec.begin()
    for _ in range(40):
        rec.step()
    records = lines(tmp_path / "steps_rank0.jsonl")
    jsonschema.validate(records[-2], schema("steps"))
    assert records[-2]["message"] == (
        "unprofiled steps after the profiled ones take 24.00 ms, those before 20.00 ms: "
        "only those before count"
    )
    assert records[-1] == {"kind": "end", "complete": True}


def test_a_terminated_rank_waits_for_nothing(tmp_path: Path) -> None:
    rec = Recorder(Options(folder=str(tmp_path), mode=Mode.TIMER, schedule=SHORT))
    rec.begin()
    for _ in range(6):
        rec.step()
    rec.abandon("the launcher ended this process")
    records = lines(tmp_path / "steps_rank0.jsonl")
    assert records[-1] == {"kind": "end", "complete": False}
    assert sum(item["kind"] == "step" for item in records) >= 5
    rec.step()
    rec.close()
    assert lines(tmp_path / "steps_rank0.jsonl") == records


def test_a_cut_off_trace_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "rank0.pt.trace.json"
    assert "was not written" in captures._incomplete(path)
    path.write_text('{"traceEvents": [{"na')
    assert "is cut off: is the disk full?" in captures._incomplete(path)
    path.write_text('{"traceEvents": []}\n')
    assert captures._incomplete(path) == ""


def test_nvtx_ranges_of_steps_and_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    open_: dict[int, str] = {}

    def start(name: str) -> int:
        events.append(f"+{name}")
        open_[len(events)] = name
        return len(events)

    monkeypatch.setattr(torch.cuda.nvtx, "range_start", start)
    monkeypatch.setattr(torch.cuda.nvtx, "range_end", lambda h: events.append(f"-{open_.pop(h)}"))
    nvtx = ranges.NvtxRanges()
    nvtx.begin("data")  # outside of a step: nothing
    nvtx.begin_step(7)
    nvtx.begin("forward")
    nvtx.begin_step(8)
    nvtx.end_step()
    nvtx.end_step()
    assert events == ["+step 7", "+forward", "-forward", "-step 7", "+step 8", "-step 8"]
    assert not open_


def test_calibration_keeps_the_kinds_apart(tmp_path: Path) -> None:
    options = Options(folder=str(tmp_path))
    costs = calibration.measure(options, rounds=2)
    by_name = {cost.name: cost for cost in costs}
    assert set(by_name) == {"aten_op", "aten_compute", "autograd_node", "annotation", "mixed_step"}
    assert by_name["aten_op"].cpu_ops == 1.0
    assert by_name["annotation"].cpu_ops == 1.0
    assert by_name["autograd_node"].cpu_ops >= 3.0
    assert by_name["mixed_step"].cpu_ops > 100.0
    jsonschema.validate(calibration.document(options, 0, costs), schema("calibration"))


def test_the_median_of_nine_is_covered_by_all_but_the_extremes() -> None:
    assert calibration.median_interval([9, 1, 5, 3, 7, 2, 8, 4, 6]) == (2, 8)
    assert calibration.median_interval([3, 1, 2]) == (1, 3)


def test_a_probe_that_cannot_run_is_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    def broken(_: object) -> None:
        raise OSError("no compiler")

    assert not calibration._works(probes.Probe(name="triton_launch", calls=1, run=broken))
    assert "not calibrated: triton_launch: OSError: no compiler" in capfd.readouterr().err


def test_settings_of_the_program_are_seen() -> None:
    loop = Loop()
    found = settings.read_settings()
    assert found["optimizer.type"] == "SGD"
    assert found["optimizer.parameters"] == 9
    assert found["dataloader.batch_size"] == 4
    assert found["dataloader.sampler"] == "SequentialSampler"
    assert all(isinstance(value, str | int | float | bool) for value in found.values())
    compiled_before = int(found["compile.modules"])
    loop.model._compiled_call_impl = loop.model.forward  # as loop.model.compile() does
    assert settings.read_settings()["compile.modules"] == compiled_before + 1


class Store:
    """The store of a group of two, of which the other rank comes when the test says so."""

    def __init__(self, others: int) -> None:
        self.others, self.values, self.polls = others, Counter[str](), 0

    def add(self, key: str, amount: int) -> int:
        self.values[key] += amount
        self.polls += amount == 0
        return self.values[key] + (self.others if self.polls > 2 else 0)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    def join(store: object) -> None:
        monkeypatch.setattr(distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
        monkeypatch.setattr(distributed, "get_rank", lambda: 1)
        monkeypatch.setattr(distributed.distributed_c10d, "_get_default_store", lambda: store)

    return join


def test_ranks_meet_without_a_collective(group: Callable[[object], None]) -> None:
    store = Store(others=1)
    group(store)
    place = rendezvous.Rendezvous()
    assert place.meet()
    assert place.meet()
    assert store.values == {"trace-analyzer/meeting/1": 1, "trace-analyzer/meeting/2": 1}


def test_a_rank_that_never_comes_is_not_waited_for_twice(group: Callable[[object], None]) -> None:
    group(Store(others=0))
    place = rendezvous.Rendezvous()
    assert not place.meet(timeout_s=0.01)
    assert "1 of 2 ranks did not reach the same step" in place.problem
    assert not place.meet(timeout_s=60.0)


def test_a_store_that_is_gone_is_a_note(group: Callable[[object], None]) -> None:
    class Gone:
        def add(self, key: str, amount: int) -> int:
            raise RuntimeError("Connection reset by peer\nmore")

    group(Gone())
    place = rendezvous.Rendezvous()
    assert not place.meet()
    assert place.problem == "the ranks' store does not answer: Connection reset by peer"


def test_alone_there_is_nobody_to_meet() -> None:
    assert "WORLD_SIZE" not in os.environ
    place = rendezvous.Rendezvous()
    assert place.meet()
    assert place.share(7) == 7


def test_step_files_of_a_traced_run_have_a_name_of_their_own() -> None:
    names = [Options(folder=".", mode=mode).timer_name(3) for mode in Mode]
    assert names == ["steps_rank3.jsonl", "steps_rank3_nsys.jsonl", "steps_rank3.jsonl"]
