"""The rows of `index.db`, one type a table: fields are columns, their descriptions label them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct


def _is(description: str) -> Meta:
    return Meta(description=description)


class Row(Struct, frozen=True, kw_only=True):
    """A row; lists and dictionaries are stored as JSON text."""


class RunRow(Row, frozen=True, kw_only=True):
    """One run of the archive: what was found, or why nothing could be."""

    id: Annotated[str, _is("Hash of the run's place in the archive")]
    name: Annotated[str, _is("Place in the archive: folder, file or archive, and folder inside it")]
    unit: Annotated[str, _is("Folder or archive that was searched for runs")]
    present: Annotated[bool, _is("0 where the archive does not hold it any more")] = True
    state: Annotated[str, _is("fault, likely, nothing, no-verdict, or failed")]
    reason: Annotated[str, _is("Why it failed, in one line")] = ""
    failure: Annotated[
        str,
        _is("unreadable, unreachable, memory, time, crashed, killed or defect, where it failed"),
    ] = ""
    report: Annotated[str, _is("The run's page, relative to this index")] = ""
    title: Annotated[str, _is("Name in the report")] = ""
    job: Annotated[str, _is("Job name in the bundle's manifest")] = ""
    job_id: Annotated[str, _is("Identity of the run in the bundle's manifest")] = ""
    commit: Annotated[str, _is("Commit or tag of the training code, from the manifest")] = ""
    started: Annotated[str | None, _is("When the recording began, ISO 8601, UTC")] = None
    world_size: Annotated[int | None, _is("Ranks of the job")] = None
    recorded_ranks: Annotated[int, _is("Ranks that were recorded")] = 0
    hosts: Annotated[int, _is("Hosts that the recording names")] = 0
    gpu: Annotated[str | None, _is("Name of the GPUs")] = None
    step_ms: Annotated[
        float | None, _is("Median step of the slowest rank, ms, without profiler where known")
    ] = None
    step_basis: Annotated[
        str, _is("measured, given or predicted (without profiler), or profiled")
    ] = ""
    profiled_ms: Annotated[float | None, _is("Median step in the trace, ms")] = None
    perturbation: Annotated[float | None, _is("Profiled step / unprofiled step − 1")] = None
    steps: Annotated[int, _is("Recorded steps")] = 0
    steps_ms: Annotated[
        list[float], _is("Step times in order, ms; medians of neighbours beyond 24")
    ] = []
    headline: Annotated[str, _is("The verdict")] = ""
    do_next: Annotated[str, _is("What to do next")] = ""
    confidence: Annotated[str | None, _is("high, medium or low")] = None
    cause: Annotated[str | None, _is("Code of the main cause")] = None
    cause_kind: Annotated[str | None, _is("fault or opportunity")] = None
    cause_name: Annotated[str, _is("Name of the main cause")] = ""
    cause_ranks: Annotated[list[int], _is("Ranks of the main cause")] = []
    recoverable_ms: Annotated[
        float | None, _is("What fixing the main cause gives back, ms a step")
    ] = None
    recoverable_low_ms: Annotated[float | None, _is("Lower end of its interval, ms a step")] = None
    recoverable_high_ms: Annotated[float | None, _is("Upper end of its interval, ms a step")] = None
    joint_recoverable_ms: Annotated[
        float | None, _is("What fixing all faults together gives back, ms a step")
    ] = None
    severity: Annotated[str | None, _is("Highest severity of its findings")] = None
    warning_codes: Annotated[list[str], _is("Codes of its data warnings, worst first")] = []
    bytes: Annotated[int, _is("Size of its files, bytes")] = 0
    digest: Annotated[str, _is("SHA-256 over names and contents of its files")] = ""
    tool_version: Annotated[str, _is("Version of trace-analyzer that analysed it")] = ""


class FindingRow(Row, frozen=True, kw_only=True):
    """A cause that was found in a run."""

    position: Annotated[int, _is("Place in the report, from 1")]
    code: Annotated[str, _is("Code of the cause")]
    name: Annotated[str, _is("Name of the cause")]
    kind: Annotated[str, _is("fault or opportunity")]
    status: Annotated[str, _is("stable or experimental")]
    title: Annotated[str, _is("What is wrong")]
    severity: Annotated[str, _is("high: 10 % of the step or more; medium: 3 %; low: less")]
    ranks: Annotated[list[int], _is("Ranks that it concerns")]
    recoverable_ms: Annotated[float | None, _is("What fixing it gives back, ms a step")]
    recoverable_low_ms: Annotated[float | None, _is("Lower end of the interval, ms a step")]
    recoverable_high_ms: Annotated[float | None, _is("Upper end of the interval, ms a step")]
    ceiling_ms: Annotated[float | None, _is("Time in the step attributed to it, ms")]
    basis: Annotated[str, _is("replay, ceiling or evidence")]
    confidence: Annotated[str, _is("high, medium or low")]
    caused_by: Annotated[str | None, _is("Code of the finding that explains it")]
    proof: Annotated[str, _is("What shows it")]
    actions: Annotated[list[str], _is("What to do, most likely first")]


class RankRow(Row, frozen=True, kw_only=True):
    """Where one rank's step goes; means over steady steps that sum to the step."""

    rank: Annotated[int, _is("Rank")]
    gpu: Annotated[str | None, _is("Name of its GPU")]
    host: Annotated[str | None, _is("Host")]
    step_ms: Annotated[float | None, _is("Mean step in the trace, ms")] = None
    step_median_ms: Annotated[float | None, _is("Median step in the trace, ms")] = None
    compute_ms: Annotated[float | None, _is("Compute, ms a step")] = None
    comm_exposed_ms: Annotated[
        float | None, _is("Communication that no compute hides, ms a step")
    ] = None
    comm_exposed_transfer_ms: Annotated[float | None, _is("Of it moving data, ms a step")] = None
    comm_exposed_wait_ms: Annotated[float | None, _is("Of it waiting for a peer, ms a step")] = None
    copy_exposed_ms: Annotated[float | None, _is("Copies that nothing hides, ms a step")] = None
    idle_ms: Annotated[float | None, _is("Idle, ms a step")] = None
    idle_launch_ms: Annotated[float | None, _is("Of it: the host launched late, ms a step")] = None


class CollectiveRow(Row, frozen=True, kw_only=True):
    """Communication kernels of one operation, group, type, size and launch shape."""

    operation: Annotated[str, _is("Operation")]
    group_name: Annotated[str | None, _is("Process group")]
    ranks: Annotated[int, _is("Ranks that took part")]
    dtype: Annotated[str | None, _is("Data type")]
    bytes: Annotated[int | None, _is("Message size, bytes")]
    count_per_step: Annotated[float | None, _is("Calls a step")]
    channels: Annotated[int | None, _is("NCCL channels (grid x)")]
    threads: Annotated[int | None, _is("Threads a channel (block x)")]
    duration_p50_us: Annotated[float, _is("Median duration, µs")]
    transfer_p50_us: Annotated[float | None, _is("Median transfer, µs")]
    busbw_gbs: Annotated[float | None, _is("Bus bandwidth, GB/s")]
    exposed_ms_per_step: Annotated[float | None, _is("Not hidden by compute, ms a step")]
    kernel: Annotated[str, _is("Kernel")]


class KernelRow(Row, frozen=True, kw_only=True):
    """Kernels or copies of one name and launch shape."""

    name: Annotated[str, _is("Kernel, in the table kernel_names")]
    category: Annotated[str, _is("What it is")]
    count: Annotated[int, _is("Launches over ranks and window")]
    count_per_step: Annotated[float | None, _is("Launches a step")]
    total_ms: Annotated[float, _is("Sum of durations over ranks and window, ms")]
    mean_us: Annotated[float, _is("Mean duration, µs")]
    grid: Annotated[list[int] | None, _is("Blocks")]
    block: Annotated[list[int] | None, _is("Threads a block")]


class WarningRow(Row, frozen=True, kw_only=True):
    """What a reader must know before believing the run's numbers."""

    code: Annotated[str, _is("Code of the warning")]
    name: Annotated[str, _is("Name of the warning")]
    severity: Annotated[str, _is("error, warning or note")]
    message: Annotated[str, _is("What is wrong with the data")]
    effect: Annotated[str, _is("What it changes")]
    count: Annotated[int, _is("How often")]
    ranks: Annotated[list[int], _is("Ranks that it concerns")]


class FileRow(Row, frozen=True, kw_only=True):
    """A file of a run."""

    sha256: Annotated[str, _is("SHA-256 of its content; empty where it could not be read")]
    path: Annotated[str, _is("Path inside the unit")]
    bytes: Annotated[int, _is("Size, bytes")]
    kind: Annotated[str, _is("What it holds, where it was used")] = ""
    ranks: Annotated[list[int], _is("Ranks in it")] = []


class RunRows(Row, frozen=True, kw_only=True):
    """Everything that the index holds of one run."""

    run: RunRow
    files: list[FileRow] = []
    findings: list[FindingRow] = []
    ranks: list[RankRow] = []
    collectives: list[CollectiveRow] = []
    kernels: list[KernelRow] = []
    warnings: list[WarningRow] = []


TABLES: dict[str, type[Row]] = {
    "findings": FindingRow,
    "ranks": RankRow,
    "collectives": CollectiveRow,
    "kernels": KernelRow,
    "warnings": WarningRow,
    "files": FileRow,
}


def columns(row: type[Row]) -> dict[str, tuple[type, str]]:
    """Return, for every column of a table, its SQLite type and its description."""
    schema = msgspec.json.schema_components([row])[1][row.__name__]["properties"]
    return {
        name: (_sql_type(declared), declared["description"]) for name, declared in schema.items()
    }


def _sql_type(declared: dict[str, object]) -> type:
    alternatives = declared.get("anyOf")
    kinds = (
        [str(item["type"]) for item in alternatives]
        if isinstance(alternatives, list)
        else [str(declared["type"])]
    )
    kind = next(kind for kind in kinds if kind != "null")
    return {"string": str, "integer": int, "number": float, "boolean": int}.get(kind, str)


def values(row: Row) -> dict[str, str | int | float | None]:
    """Return a row as SQLite stores it."""
    stored: dict[str, str | int | float | None] = {}
    for name in row.__struct_fields__:
        value = getattr(row, name)
        if isinstance(value, bool):
            stored[name] = int(value)
        elif value is None or isinstance(value, str | int | float):
            stored[name] = value
        else:
            stored[name] = msgspec.json.encode(value).decode()
    return stored


__all__ = [
    "TABLES",
    "CollectiveRow",
    "FileRow",
    "FindingRow",
    "KernelRow",
    "RankRow",
    "Row",
    "RunRow",
    "RunRows",
    "WarningRow",
    "columns",
    "values",
]
