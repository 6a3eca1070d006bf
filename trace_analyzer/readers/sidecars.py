"""What lies beside the traces: step times, environments, NCCL's logs, and where the rest is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from trace_analyzer.allowlist import allowed, shown_value
from trace_analyzer.bench_facts import BenchResult
from trace_analyzer.bundle import Role, read_json_object
from trace_analyzer.calibration_facts import Calibration
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.gpu_facts import GpuSamples
from trace_analyzer.model import DataWarning, Severity, UnprofiledSteps
from trace_analyzer.nccl_facts import FlightRecording, NcclLog
from trace_analyzer.readers import step_times


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarFile:
    """A sidecar that was found; `name` is its path inside RUN."""

    path: Path
    name: str
    role: Role
    rank: int | None = None
    pid: int | None = None


@dataclass(slots=True, kw_only=True)
class Sidecars:
    """What the sidecars of a run say."""

    unprofiled: dict[int, UnprofiledSteps] = field(default_factory=dict)
    timed_before: dict[int, int] = field(default_factory=dict)  # rank → how many of them, of timers
    environment: dict[int, dict[str, str]] = field(default_factory=dict)
    nccl_logs: list[NcclLog] = field(default_factory=list)
    flight: list[FlightRecording] = field(default_factory=list)
    bench: list[BenchResult] = field(default_factory=list)
    calibration: list[Calibration] = field(default_factory=list)
    gpu_samples: list[GpuSamples] = field(default_factory=list)
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict)  # role → real paths
    warnings: list[DataWarning] = field(default_factory=list)


def read_sidecars(files: Iterable[SidecarFile]) -> Sidecars:
    """Read what the model holds of them, and note the paths of all.

    A sidecar that cannot be read is a warning: the traces beside it can still be analysed.
    """
    found = Sidecars()
    by_role: dict[str, list[str]] = {}
    # Timer files after meta files, so that the richer of two wins.
    for file in sorted(files, key=lambda item: (item.name.endswith(".jsonl"), item.name)):
        by_role.setdefault(file.role.value, []).append(str(file.path))
        try:
            if file.role is Role.TIMER:
                _read_timer(file, found)
            elif file.role is Role.ENVIRONMENT:
                _read_environment(file, found)
            elif file.role is Role.NCCL_LOG:
                _read_nccl_log(file, found)
            elif file.role is Role.FLIGHT_RECORDER:
                _read_flight(file, found)
            elif file.role is Role.BENCH:
                _read_bench(file, found)
            elif file.role is Role.CALIBRATION:
                _read_calibration(file, found)
            elif file.role is Role.SAMPLER:
                _read_samples(file, found)
        except UnreadableInputError as error:
            found.warnings.append(
                DataWarning(
                    code="TRC009",
                    message=f"{file.name}: {error.problem}",
                    effect=f"left out: the {file.role.value} file {_whose(file)}",
                    ranks=() if file.rank is None else (file.rank,),
                )
            )
    found.flight.sort(key=lambda item: (item.rank is None, item.rank or 0))
    found.unprofiled, differing = step_times.without_later_steps(
        found.unprofiled, found.timed_before
    )
    found.warnings += [] if differing is None else [differing]
    found.calibration.sort(key=lambda item: item.rank)
    found.gpu_samples.sort(key=lambda item: item.gpu)
    found.paths = {role: tuple(paths) for role, paths in sorted(by_role.items())}
    return found


def _read_timer(file: SidecarFile, found: Sidecars) -> None:
    if file.name.endswith(".json"):
        _read_meta(file, found)
        return
    times = step_times.read(file.path, file.rank, display=file.name)
    if times.unreadable:
        found.warnings.append(_left_out_lines(file, times.unreadable))
    if times.unprofiled_ms:
        found.unprofiled[times.rank] = UnprofiledSteps(
            rank=times.rank,
            step_ms=times.unprofiled_ms,
            path=file.name,
            memory_peak_bytes=times.memory_peak_bytes,
        )
        found.timed_before[times.rank] = times.before


def _left_out_lines(file: SidecarFile, count: int) -> DataWarning:
    return _left_out(file, count, "line", "these step times are left out")


def _left_out(file: SidecarFile, count: int, what: str, effect: str) -> DataWarning:
    return DataWarning(
        code="TRC009",
        message=f"{file.name}: {count} {what}{'s' if count > 1 else ''} cannot be read",
        effect=effect,
        severity=Severity.NOTE,
        count=count,
        ranks=() if file.rank is None else (file.rank,),
    )


def _read_meta(file: SidecarFile, found: Sidecars) -> None:
    """Read a `meta_rank{r}.json`: `plain_ms` holds the unprofiled steps, `env` the variables."""
    document = read_json_object(file.path, display=file.name)
    rank = document.get("rank", file.rank)
    times = document.get("plain_ms")
    if not isinstance(rank, int) or not isinstance(times, list):
        raise UnreadableInputError(file.name, "no rank or no plain_ms in it")
    good = tuple(float(value) for value in times if _is_step_ms(value))
    if len(good) < len(times):
        found.warnings.append(_left_out_lines(file, len(times) - len(good)))
    if good:
        found.unprofiled[rank] = UnprofiledSteps(rank=rank, step_ms=good, path=file.name)
    environment = allowed(_texts(document.get("env")))
    environment |= {
        f"version.{key}": shown_value(str(document[key]))
        for key in ("torch", "nccl")
        if isinstance(document.get(key), str)
    }
    if isinstance(document.get("gpu"), str):
        environment["gpu"] = shown_value(document["gpu"])
    found.environment.setdefault(rank, {}).update(environment)


def _is_step_ms(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value < step_times.MAX_STEP_MS  # neither holds for what is not finite


def _read_environment(file: SidecarFile, found: Sidecars) -> None:
    document = read_json_object(file.path, display=file.name)
    if document.get("schema_version") != 1:
        raise UnreadableInputError(
            file.name, f"environment schema {document.get('schema_version')!r} is not 1"
        )
    rank = document.get("rank", file.rank)
    if not isinstance(rank, int) or isinstance(rank, bool):
        raise UnreadableInputError(file.name, "no rank in it")
    environment = allowed(_texts(document.get("variables")))
    for part, prefix in (("versions", "version"), ("settings", "setting")):
        texts = _texts(document.get(part))
        environment |= {f"{prefix}.{key}": shown_value(text) for key, text in texts.items()}
    found.environment.setdefault(rank, {}).update(environment)


def _read_nccl_log(file: SidecarFile, found: Sidecars) -> None:
    from trace_analyzer.readers import nccl_log

    logs = nccl_log.read(file.path, display=file.name)
    found.nccl_logs += logs
    damaged = sum(log.lines.not_understood for log in logs)
    if damaged:
        found.warnings.append(_left_out(file, damaged, "line", "what they say is left out"))


def _read_flight(file: SidecarFile, found: Sidecars) -> None:
    from trace_analyzer.readers import flight_recorder

    recording = flight_recorder.read(file.path, file.rank, display=file.name)
    found.flight.append(recording)
    if recording.malformed:
        message = "these entries, or parts of them, are missing"
        found.warnings.append(_left_out(file, recording.malformed, "value", message))


def _read_bench(file: SidecarFile, found: Sidecars) -> None:
    from trace_analyzer.readers import bench_results

    result = bench_results.read(file.path, display=file.name)
    if result is not None:
        found.bench.append(result)


def _read_samples(file: SidecarFile, found: Sidecars) -> None:
    from trace_analyzer.readers import gpu_samples

    found.gpu_samples.append(gpu_samples.read(file.path, display=file.name))


def _read_calibration(file: SidecarFile, found: Sidecars) -> None:
    from trace_analyzer.readers import calibrations

    found.calibration.append(calibrations.read(file.path, file.rank, display=file.name))


def _whose(file: SidecarFile) -> str:
    if file.rank is not None:
        return f"of rank {file.rank}"
    return f"of process {file.pid}" if file.pid is not None else file.name


def _texts(value: object) -> Mapping[str, str]:
    """Return the scalar members of an object as text; numbers and switches as JSON writes them."""
    if not isinstance(value, dict):
        return {}
    texts: dict[str, str] = {}
    for key, item in sorted(value.items()):
        if isinstance(item, str):
            texts[key] = item
        elif isinstance(item, bool | int | float):
            texts[key] = msgspec.json.encode(item).decode()
    return texts


__all__ = ["SidecarFile", "Sidecars", "read_sidecars"]
