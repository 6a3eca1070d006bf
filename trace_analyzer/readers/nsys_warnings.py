"""What has to be said of the data of one process, in TRC codes."""

from __future__ import annotations

from trace_analyzer.model import DataWarning, Severity
from trace_analyzer.readers.nsys_trust import Balance, Diagnostics

LEAST_LOST_SHARE = 0.01  # below it, edges of the recording explain the difference
SEVERE_LOST_SHARE = 0.05


def event_warnings(found: Balance, pid: int | None, diagnostics: Diagnostics) -> list[DataWarning]:
    """Return what is to be said of lost events (TRC004)."""
    warnings: list[DataWarning] = []
    told = diagnostics.lost.get(pid or 0, 0) if pid is not None else sum(diagnostics.lost.values())
    share = found.lost_share
    counts = (
        f"{found.without_kernel} of {found.launches} launches have no kernel, "
        f"{found.without_launch} of {found.kernels} kernels have no launch"
    )
    if found.launches and not found.kernels:
        warnings.append(
            DataWarning(
                code="TRC004",
                severity=Severity.ERROR,
                count=found.launches,
                message=f"{found.launches} kernels were launched and none was recorded",
                effect="nothing can be said about this process's GPU time; "
                "record again with one profiler only and with the GPU work inside the capture range",
            )
        )
    elif found.kernels and not found.calls:
        warnings.append(
            DataWarning(
                code="TRC004",
                message="no CUDA calls were recorded or exported for this process",
                effect="it cannot be told when kernels were launched, nor whether any were lost",
            )
        )
    elif share >= LEAST_LOST_SHARE:
        warnings.append(
            DataWarning(
                code="TRC004",
                severity=Severity.ERROR if share >= SEVERE_LOST_SHARE else Severity.WARNING,
                count=found.without_kernel + found.without_launch,
                message=f"GPU events were lost in the recording: {counts}",
                effect="idle time is too high by what was lost; record fewer steps at a time",
            )
        )
    elif told:
        warnings.append(
            DataWarning(
                code="TRC004",
                severity=Severity.NOTE,
                count=told,
                message="nsys says that CUDA events might be missing; "
                + (counts if share else f"each of {found.launches} launches has its kernel"),
                effect="the recording is taken as complete",
            )
        )
    errors = diagnostics.errors.get(pid or 0, 0)
    if errors:
        warnings.append(
            DataWarning(
                code="TRC004",
                count=errors,
                message=f"nsys reported {errors} errors for this process",
                effect="see the diagnostics page of the report in Nsight Systems",
            )
        )
    if diagnostics.old.get(pid or 0, 0):
        warnings.append(
            DataWarning(
                code="TRC004",
                severity=Severity.NOTE,
                message="this nsys is older than the installed driver",
                effect="record with a newer nsys if kernel times look wrong",
            )
        )
    return warnings


def graph_warnings(found: Balance, whole_graphs: int) -> list[DataWarning]:
    """Return what is to be said of kernels that CUDA graphs hide (TRC008)."""
    hidden = whole_graphs + found.empty_graph_launches
    if not hidden:
        return []
    shown = (
        f"{whole_graphs} graph runs are counted as computing, communication inside them included"
        if whole_graphs
        else "their time is not in the report"
    )
    return [
        DataWarning(
            code="TRC008",
            severity=Severity.ERROR,
            count=hidden,
            message=f"the kernels inside {hidden} CUDA graph launches were not recorded one by one",
            effect=f"{shown}; record again with --cuda-graph-trace=node",
        )
    ]


def row_warnings(damaged: int, odd_values: int, duplicates: int) -> list[DataWarning]:
    """Return what is to be said of rows that were left out or repaired (TRC007, TRC009)."""
    warnings: list[DataWarning] = []
    if damaged:
        warnings.append(
            DataWarning(
                code="TRC007",
                count=damaged,
                message=f"{damaged} events of the file have no start or end, or end before they start",
                effect="they were left out",
            )
        )
    if odd_values:
        warnings.append(
            DataWarning(
                code="TRC009",
                count=odd_values,
                message=f"{odd_values} values in numeric columns are no numbers",
                effect="they are treated as missing",
            )
        )
    if duplicates:
        warnings.append(
            DataWarning(
                code="TRC009",
                count=duplicates,
                message=f"{duplicates} GPU operations stand in the file twice",
                effect="each was counted once",
            )
        )
    return warnings


def missing_warnings(
    *,
    device_certain: bool,
    opened: int,
    undecoded: int,
    unsized: int,
    ambiguous: int,
    unmapped_peers: int,
) -> list[DataWarning]:
    """Return what is to be said of things that the export does not tell."""
    warnings: list[DataWarning] = []
    if not device_certain:
        warnings.append(
            DataWarning(
                code="TRC011",
                severity=Severity.NOTE,
                message="the export does not say which GPU of the host this process used",
                effect="no GPU number is given, and a GPU's description only where all are alike",
            )
        )
    if opened:
        warnings.append(
            DataWarning(
                code="TRC001",
                severity=Severity.NOTE,
                count=opened,
                message=f"{opened} NVTX ranges were still open when the recording ended",
                effect="they are shown as ending there",
            )
        )
    if undecoded:
        warnings.append(
            DataWarning(
                code="TRC009",
                count=undecoded,
                message=f"{undecoded} descriptions of NCCL calls could not be decoded",
                effect="message size and group of these calls are unknown",
            )
        )
    if unsized:
        warnings.append(
            DataWarning(
                code="TRC004",
                severity=Severity.NOTE,
                count=unsized,
                message=f"the size and group of {unsized} NCCL calls were not exported",
                effect="they are unknown; where NCCL is 2.16 or newer, export the report again with "
                "`nsys export -t sqlite --include-json=true`",
            )
        )
    if ambiguous:
        warnings.append(
            DataWarning(
                code="TRC009",
                severity=Severity.NOTE,
                count=ambiguous,
                message=f"{ambiguous} kernels of NCCL groups cannot be told apart",
                effect="message size and group of these kernels are unknown",
            )
        )
    if unmapped_peers:
        warnings.append(
            DataWarning(
                code="TRC011",
                severity=Severity.NOTE,
                count=unmapped_peers,
                message=f"{unmapped_peers} sends and receives name a rank of a group whose "
                "members are not in the recording",
                effect="their peers are unknown",
            )
        )
    return warnings
