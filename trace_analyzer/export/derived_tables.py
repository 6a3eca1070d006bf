"""Tables of what was computed: steps, matched collectives, warnings, findings."""

from __future__ import annotations

from typing import Final

from trace_analyzer.analyses.idle import HOST_CLASSES
from trace_analyzer.export.export_table import RANK, TEXT, ExportTable, declare

_PARTITION: Final = tuple(
    declare(name, "int64", "ns", meaning)
    for name, meaning in (
        ("length_ns", "length of the step"),
        ("compute_ns", "union of kernels that are not communication"),
        ("comm_ns", "union of communication, hidden ones included"),
        ("comm_exposed_ns", "communication while no computing kernel runs"),
        ("copy_exposed_ns", "copies and memsets while no kernel runs"),
        ("idle_ns", "no GPU operation runs"),
        ("idle_launch_ns", "idle because the host launched late"),
        ("idle_latency_ns", "idle between launch and start, up to 15 µs"),
        ("idle_other_ns", "other idle time"),
    )
)
_SPLIT: Final = tuple(
    declare(name, "int64", "ns", meaning, nullable=True)
    for name, meaning in (
        ("comm_transfer_ns", "moving data, in the collectives that the step launched"),
        ("comm_wait_ns", "waiting for peers, in the collectives that the step launched"),
        ("comm_exposed_transfer_ns", "exposed communication that moves data"),
        ("comm_exposed_wait_ns", "exposed communication that waits for peers"),
        ("comm_exposed_unsplit_ns", "exposed communication that is not matched"),
        ("lateness_ns", "arrival at the step's first matched collective after the first rank"),
    )
)
SPLIT_COLUMNS: Final = tuple(spec.name for spec in _SPLIT)
_HOST_CLASSES: Final = {
    "data_loading": "idle_launch_ns while the launching thread loaded data",
    "blocking_sync": "while it waited in a blocking call",
    "allocator": "while it allocated or freed memory",
    "profiler_overhead": "while the profiler worked",
    "operators": "while it ran operators or CUDA calls",
    "silent": "while it ran nothing that was recorded",
}

STEPS: Final = ExportTable(
    "steps",
    "Steps on the device, with their partition: compute + comm_exposed + copy_exposed + idle = "
    "length, idle_launch + idle_latency + idle_other = idle.",
    (
        RANK,
        declare("step", "int64", "", "number of the step"),
        declare("steady", "bool", "", "whether statistics are made of it"),
        declare("excluded", TEXT, "", "why not, empty where they are"),
        declare("start_ns", "int64", "ns", "start on the device, on the rank's clock"),
        declare("end_ns", "int64", "ns", "end on the device"),
        declare("host_start_ns", "int64", "ns", "start on the host"),
        declare("host_end_ns", "int64", "ns", "end on the host"),
        *_PARTITION,
        *(
            declare(f"idle_launch_{name}_ns", "int64", "ns", _HOST_CLASSES[name])
            for name in HOST_CLASSES
        ),
        *_SPLIT,
    ),
    ("rank", "step"),
)

MATCHED: Final = ExportTable(
    "matched_collectives",
    "One row a rank and collective that was matched over ranks: [start, transfer_start) waits for "
    "peers, [transfer_start, end) moves data. Transfer is an upper estimate, wait a lower one.",
    (
        declare("collective", "int64", "", "number of the collective, the same on all ranks"),
        RANK,
        declare("operation_id", "int64", "", "row in gpu_operations of the rank"),
        declare("operation", TEXT, "", "allreduce, allgather, …"),
        declare("group_name", TEXT, "", "ranks that communicate"),
        declare("message_bytes", "int64", "bytes", "size as nccl-tests defines it", nullable=True),
        declare("step", "int64", "", "step that launched it", nullable=True),
        declare("start_ns", "int64", "ns", "start on the rank's clock"),
        declare("transfer_start_ns", "int64", "ns", "end of waiting"),
        declare("end_ns", "int64", "ns", "end"),
        declare("wait_ns", "int64", "ns", "transfer_start - start"),
        declare("transfer_ns", "int64", "ns", "end - transfer_start"),
        declare(
            "late_rank",
            "int64",
            "",
            "rank that came last; NULL where lateness is not told from clock error",
            nullable=True,
        ),
        declare("lateness_ns", "int64", "ns", "how long the first to arrive waited"),
        declare("complete", "bool", "", "whether all members of the group were recorded"),
    ),
    ("collective", "rank"),
)

WARNINGS: Final = ExportTable(
    "warnings",
    "What to know about the data before believing a number.",
    (
        declare("id", "int64", "", "number of the warning, worst first"),
        declare("code", TEXT, "", "TRC code"),
        declare("severity", TEXT, "", "error, warning or note"),
        declare("message", TEXT, "", "what was seen"),
        declare("effect", TEXT, "", "what changed because of it"),
        declare("count", "int64", "", "how often"),
        declare("ranks", TEXT, "", "ranks as a JSON list"),
    ),
    ("id",),
)

FINDINGS: Final = ExportTable(
    "findings",
    "Causes that were found, in the report's order. Recoverable times overlap: never add them.",
    (
        declare("id", "int64", "", "number of the finding"),
        declare("code", TEXT, "", "code of the rule"),
        declare("name", TEXT, "", "name of the rule"),
        declare("kind", TEXT, "", "fault or opportunity"),
        declare("status", TEXT, "", "stable or experimental"),
        declare("title", TEXT, "", "what is wrong"),
        declare("severity", TEXT, "", "high, medium or low"),
        declare("ranks", TEXT, "", "ranks as a JSON list"),
        declare("recoverable_ms", "float64", "ms a step", "what fixing gives back", nullable=True),
        declare("recoverable_low_ms", "float64", "ms a step", "95 % interval", nullable=True),
        declare("recoverable_high_ms", "float64", "ms a step", "95 % interval", nullable=True),
        declare("ceiling_ms", "float64", "ms a step", "time attributed to it", nullable=True),
        declare("basis", TEXT, "", "replay, ceiling or evidence"),
        declare("confidence", TEXT, "", "high, medium or low"),
        declare("proof", TEXT, "", "what proves it"),
        declare("actions", TEXT, "", "what to do, as a JSON list"),
        declare("evidence", TEXT, "", "tables of evidence, as JSON"),
    ),
    ("id",),
)

FINDING_RANGES: Final = ExportTable(
    "finding_ranges",
    "Where to look for a finding on the timeline.",
    (
        declare("finding", "int64", "", "row in findings"),
        declare("id", "int64", "", "number of the range in its finding"),
        RANK,
        declare("start_ns", "int64", "ns", "start on the rank's clock"),
        declare("end_ns", "int64", "ns", "end on the rank's clock"),
        declare("label", TEXT, "", "what is there, empty where the finding's title says it"),
    ),
    ("finding", "id"),
)
