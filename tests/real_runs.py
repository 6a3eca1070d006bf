"""The real recordings by name, and their analysis.

They come from torch of 2021 to 2026, NVIDIA and AMD GPUs, and seven schemas of nsys; the README of
the traces says what is in each.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.traces import real_trace
from trace_analyzer.analyses.study import RankStudy, Study, study
from trace_analyzer.readers.discovery import open_run

H200 = ("healthy", "item_sync", "nccl_1ch", "slow_cpu_rank", "slow_loader")
H200_FILES = (*(f"{run}/rank{r}.pt.trace.json.gz" for run in H200 for r in (0, 1)),
              "t1/rank0.pt.trace.json.gz")  # fmt: skip
HTA = "HolisticTraceAnalysis"
TRACELENS_H100 = "TraceLens/h100/google_owlv2-large-patch14-ensemble__1016001.json.gz"
DLRM = {0: 545, 1: 556, 2: 554, 3: 557, 4: 547, 5: 549, 6: 553, 7: 553}
PUBLIC_FILES = (
    *(f"param/dlrm_kineto/worker{n}_step_12.1694128201{t}.pt.trace.json" for n, t in DLRM.items()),
    f"{HTA}/nccl_parser_config/nccl_data.json.gz",
    f"{HTA}/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    f"{HTA}/negative_queue_length/rank0.json.gz",
    f"{HTA}/trace_diff/control.json.gz",
    f"{HTA}/trace_diff/test.json.gz",
    f"{HTA}/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
    "kineto/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz",
    TRACELENS_H100,
    "TraceLens/b200/eager_trace.json.gz",
)
WITHOUT_GPU = (
    f"{HTA}/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
    f"{HTA}/distributed_info_unavailable/distributed_info_not_found.json.gz",
)
NSYS_FILES = (
    *(f"h200-ddp-nsys/{run}.sqlite" for run in (*H200, "healthy_payload")),
    "public-nsys/bolongcheng_small_fwd_A100.sqlite",
    "public-nsys/lizhieffe_ddp53_profile.sqlite",
    "public-nsys/nsysai_h100_2gpu_1s.sqlite",
    "public-nsys/nsysai_healthy_1pct.sqlite",
    "public-nsys/nsysai_mfu_2gpu_before.sqlite",
    "public-nsys/pipit_saxpy_mpi.sqlite",
)
REFERENCES = (
    *(("h200-ddp", name) for name in H200_FILES),
    *(("public", name) for name in PUBLIC_FILES),
)
WITH_GPU = (*(f"{folder}/{name}" for folder, name in REFERENCES), *NSYS_FILES)
RUNS = (
    *(f"h200-ddp/{run}" for run in (*H200, "t1")),
    "public/param/dlrm_kineto",
    *(f"public/{name}" for name in (*PUBLIC_FILES[len(DLRM) :], *WITHOUT_GPU)),
    *NSYS_FILES,
)


@cache
def _study(path: Path) -> Study:
    return study(open_run(str(path)))


def studied(relative: str) -> Study:
    """Analyse a recording, once a process; skip the test where it is absent."""
    return _study(real_trace(relative))


def only(relative: str) -> RankStudy:
    """Return the one rank with GPU operations of a recording."""
    (item,) = studied(relative).ranks.values()
    return item
