"""Archives as the index page gets them: the one of the design, a hostile one, a large one."""

from __future__ import annotations

from dataclasses import replace

from trace_analyzer.archive import (
    ArchivePage,
    ArchiveRun,
    CauseCount,
    JobHistory,
    JobRun,
    Totals,
)

RUN = ArchiveRun(
    name="nccl_1ch",
    report="runs/nccl_1ch-0123456789ab/report.html",
    state="fault",
    reason="",
    present=True,
    ranks=2,
    gpu="NVIDIA H200",
    step_ms=48.23,
    step_basis="measured",
    steps_ms=(52.0, 48.1, 48.3, 48.2),
    cause="COMM003",
    cause_kind="fault",
    cause_name="few-channels",
    cause_ranks=(0, 1),
    recoverable_ms=22.5,
    recoverable_interval_ms=(22.3, 22.6),
    warnings=(),
    job="",
    commit="",
    started="2026-11-01T00:00:00Z",
)
LOADER = replace(
    RUN, name="slow_loader", step_ms=43.69, cause="DATA001", cause_name="dataloader-stall",
    recoverable_ms=18.0, recoverable_interval_ms=(16.6, 19.9), warnings=("TRC003",),
)  # fmt: skip
RANK = replace(
    RUN, name="slow_cpu_rank", step_ms=34.26, cause="RANK001", cause_name="late-rank-host",
    cause_ranks=(1,), recoverable_ms=8.5, recoverable_interval_ms=(7.9, 10.1),
    warnings=("TRC003", "TRC006"),
)  # fmt: skip
FUSED = replace(
    RUN, name="unfused", cause="HOST004", cause_kind="opportunity", cause_name="unfused-optimizer",
    recoverable_ms=2.0, recoverable_interval_ms=None, step_basis="predicted",
)  # fmt: skip
UNKNOWN = replace(
    LOADER, name="resnet50", ranks=1, gpu="Tesla V100-SXM2-32GB", step_ms=176.3,
    step_basis="profiled", recoverable_ms=None, recoverable_interval_ms=None, cause_ranks=(0,),
)  # fmt: skip
HEALTHY = replace(
    RUN, name="healthy", state="nothing", step_ms=25.74, cause=None, cause_kind=None, cause_name="",
    cause_ranks=(), recoverable_ms=None, recoverable_interval_ms=None,
)  # fmt: skip
TRUST = replace(
    HEALTHY, name="dlrm_kineto", state="no-verdict", step_ms=None, step_basis="", steps_ms=(),
    ranks=8, gpu="Tesla V100", warnings=("TRC010",),
)  # fmt: skip
ERROR = replace(
    TRUST, name="empty_events", state="failed", report="", ranks=0, gpu=None, warnings=(),
    reason="/data/empty_events/rank0.json: traceEvents is empty; give the trace that was exported",
)  # fmt: skip
GONE = replace(HEALTHY, name="old", present=False)
RUNS = (RUN, LOADER, RANK, FUSED, UNKNOWN, HEALTHY, GONE, TRUST, ERROR)

CAUSES = (
    CauseCount(
        code="DATA001", name="dataloader-stall", kind="fault", runs=3, main_in=2, largest_ms=18.0
    ),
    CauseCount(
        code="COMM003", name="few-channels", kind="fault", runs=1, main_in=1, largest_ms=22.5
    ),
    CauseCount(
        code="HOST004", name="unfused-optimizer", kind="opportunity", runs=4, main_in=1,
        largest_ms=None,
    ),
)  # fmt: skip
NIGHTS = tuple(
    JobRun(
        name=f"nightly/{day}",
        report=f"runs/nightly_{day}/report.html",
        started=f"2026-11-{day:02}T00:00:00Z",
        commit=f"c0ffee{day}" if day % 2 else "v1.2",
        step_ms=25.0 + (8.0 if day > 4 else 0.0),
        change=None if day == 1 else 8.0 / 25.0 if day == 5 else 0.0,
        state="fault" if day > 4 else "nothing",
        cause="HOST002" if day > 4 else None,
        cause_name="per-step-sync" if day > 4 else "",
    )
    for day in range(1, 8)
)
JOB = JobHistory(
    job="nightly", ranks=8, gpu="NVIDIA H200", step_basis="measured", runs=NIGHTS, earlier=3
)
TOTALS = Totals(
    runs=8, judged=6, with_cause=5, not_judged=1, failed=1, gone=1, largest=RUN
)  # fmt: skip
PAGE = ArchivePage(
    title="h200-ddp and others",
    version="0.1.0",
    number=1,
    pages=("index.html",),
    totals=TOTALS,
    runs=RUNS,
    causes=CAUSES,
    jobs=(JOB,),
)

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e\x00" + "é" * 300
HOSTILE = replace(
    PAGE,
    title=EVIL,
    runs=(
        replace(
            RUN, name=EVIL, report=f"runs/{EVIL}/report.html", gpu=EVIL, cause=EVIL,
            cause_name=EVIL, warnings=(EVIL,), job=EVIL, commit=EVIL, started=EVIL,
        ),
        replace(ERROR, name=EVIL, reason=EVIL),
    ),
    causes=(replace(CAUSES[0], code=EVIL, name=EVIL),),
    jobs=(
        replace(
            JOB, job=EVIL, gpu=EVIL,
            runs=tuple(replace(n, name=EVIL, commit=EVIL, started=EVIL, cause=EVIL) for n in NIGHTS),
        ),
    ),
    totals=replace(TOTALS, largest=replace(RUN, name=EVIL, cause=EVIL, cause_name=EVIL)),
)  # fmt: skip
EMPTY = replace(
    PAGE,
    runs=(),
    causes=(),
    jobs=(),
    totals=Totals(
        runs=0, judged=0, with_cause=0, not_judged=0, failed=0, gone=0, largest=None
    ),
)  # fmt: skip
LARGE = replace(
    PAGE,
    number=2,
    pages=("index.html", "index-2.html", "index-3.html"),
    runs=tuple(
        replace(
            RUN, name=f"team/experiment/run{n:04}", recoverable_ms=40.0 - n / 50,
            recoverable_interval_ms=(39.0 - n / 50, 41.0 - n / 50), steps_ms=(48.0,) * 24,
        )
        for n in range(1000)
    ),
    causes=(),
    jobs=(),
)  # fmt: skip
ALL = {"design": PAGE, "hostile": HOSTILE, "empty": EMPTY, "large": LARGE}
