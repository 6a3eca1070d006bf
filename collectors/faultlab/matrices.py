"""The matrices: what is recorded on which occasion, the most valuable runs first."""

from __future__ import annotations

from trace_analyzer.collectors.faultlab.fault import Dose
from trace_analyzer.collectors.faultlab.matrix import KINETO, NSYS, RunSpec, runs
from trace_analyzer.collectors.faultlab.workload import Workload

SMALL = Workload(model="gpt", size="small")
LARGE = Workload(model="gpt", size="large")
SHARDED = Workload(model="gpt", size="small", parallel="fsdp")
COMPILED = Workload(model="gpt", size="small", compiled=True)
CONV = Workload(model="conv", size="small")
CONV_LARGE = Workload(model="conv", size="large")
ALONE = Workload(model="gpt", size="small", parallel="single")
ALONE_LARGE = Workload(model="gpt", size="large", parallel="single")
ALONE_COMPILED = Workload(model="gpt", size="small", parallel="single", compiled=True)
ALONE_CONV = Workload(model="conv", size="small", parallel="single")
ALONE_DEEP = Workload(model="gpt", size="deep", parallel="single")
ALONE_CONV_DEEP = Workload(model="conv", size="deep", parallel="single")
BOTH = (KINETO, NSYS)


def matrix(name: str) -> list[RunSpec]:
    """Return the runs of a matrix in the order in which they are recorded.

    Raises `KeyError` for an unknown name.
    """
    return list(MATRICES[name]())


def _tiny() -> list[RunSpec]:
    """Return three runs for a CPU."""
    tiny = Workload(model="gpt", size="tiny")
    return runs(tiny, "healthy item-sync=2 late-host+tiny-micro-batches=2")


def _first() -> list[RunSpec]:
    """Return what rules are tuned on, with first tests beside it."""
    return [
        *runs(CONV, "healthy item-sync late-host", BOTH),
        *runs(CONV, "channels-first unfused-optimizer"),
        *runs(SHARDED, "serial-all-gathers fine-sharding"),
        *runs(
            LARGE,
            "healthy few-channels late-host=1 item-sync hidden-host-delay hidden-pageable-copy",
        ),
        *runs(SMALL, "healthy item-sync late-host few-channels unfused-optimizer", BOTH),
        *runs(
            SMALL,
            "healthy@1 loader-in-process metric-reductions extra-kernels loader-too-few-workers "
            "pageable-copy host-logging empty-cache tiny-micro-batches forced-protocol "
            "one-bucket serial-reduction reduction-each-micro-batch unequal-batch "
            "full-precision layout-copies hidden-loader item-sync+few-channels recomputation "
            "first-rank-pause step-barrier sync-while-busy metric-reductions+full-precision "
            "checkpoint-stall late-host=0.35 few-channels=2",
        ),
        *runs(COMPILED, "not-compiled graph-breaks"),
    ]


def _second() -> list[RunSpec]:
    """Return the causes that need other programs or processes, and more magnitudes."""
    return [
        *runs(SHARDED, "healthy late-host"),
        *runs(COMPILED, "healthy few-channels"),
        *runs(
            SMALL,
            "launch-blocking slow-transport loader-in-process metric-reductions extra-kernels "
            "host-logging one-bucket tiny-micro-batches",
            BOTH,
        ),
        *runs(
            SMALL,
            "slow-transform pin-in-step central-loader blocking-offload anomaly-mode "
            "recompilation checked-clipping no-autocast-cache odd-vocabulary elementwise-chain "
            "slow-python busy-multiprocessors co-tenant noisy-neighbour garbage-pause "
            "evaluation-spike tiny-buckets unused-parameter-search few-cores late-start drift "
            "scalar-reductions below-noise many-channels single-process item-sync=4 "
            "loader-in-process=0.5 metric-reductions=20 unequal-batch=0.5 few-channels=4 "
            "late-host+unfused-optimizer loader-in-process+one-bucket",
        ),
        *runs(CONV, "loader-in-process few-channels late-host+unfused-optimizer", BOTH),
        *runs(CONV, "hidden-loader healthy@1 varied-images buffer-broadcast"),
        *runs(
            CONV_LARGE,
            "healthy late-host=1 few-channels loader-in-process=1.6 hidden-host-delay",
        ),
        *runs(LARGE, "unequal-batch=0.5 serial-reduction full-precision=4 forced-protocol", BOTH),
    ]


def _held_out() -> list[RunSpec]:
    """Return runs for the test half: several faults at once, other magnitudes, other models."""
    return [
        *runs(SMALL, "few-channels=2 loader-in-process=0.5 extra-kernels=0.6", BOTH),
        *runs(
            SMALL,
            "late-host=0.35+unfused-optimizer=1 item-sync=4+few-channels=2 "
            "loader-in-process=0.5+elementwise-chain=2 metric-reductions=10+full-precision=4 "
            "late-host=0.35+few-channels=4 pageable-copy=128+extra-kernels=0.6 "
            "late-host=0.35 item-sync=4 metric-reductions=10 unfused-optimizer=1 full-precision=4 "
            "pageable-copy=128 empty-cache=2 elementwise-chain=2 layout-copies=4 slow-transport=2 "
            "host-logging=32 loader-too-few-workers=2 unequal-batch=0.5 tiny-micro-batches=2 "
            "reduction-each-micro-batch=2 slow-python=0.5 first-rank-pause=4 step-barrier=1 "
            "blocking-offload=32 pin-in-step=64 central-loader=0.5 healthy@2 hidden-loader=0.9 "
            "sync-while-busy=2",
        ),
        *runs(CONV, "loader-in-process", BOTH),
        *runs(
            CONV,
            "few-channels full-precision extra-kernels=0.6 pageable-copy hidden-loader healthy@1 "
            "few-channels+loader-in-process=0.5 empty-cache metric-reductions late-host=0.35 "
            "item-sync=4 varied-images late-host+unfused-optimizer host-logging "
            "loader-too-few-workers slow-transport",
        ),
        *runs(
            LARGE,
            "few-channels=2 full-precision=4 unequal-batch=0.5 pageable-copy=128 "
            "loader-in-process=0.5 late-host=0.35 extra-kernels=0.6 metric-reductions=20 healthy@1",
        ),
    ]


def _held_out_single() -> list[RunSpec]:
    """Return runs of one GPU for the test half."""
    return [
        *runs(
            ALONE,
            "item-sync=4+layout-copies=1 loader-in-process=0.5+elementwise-chain=2 "
            "elementwise-chain=2 full-precision=4 layout-copies=4 odd-vocabulary=17 "
            "unfused-optimizer=1 pageable-copy=128 host-logging=32 loader-in-process=0.5 "
            "slow-transform=0.5 pin-in-step=64 tiny-micro-batches=2 empty-cache=2 "
            "loader-too-few-workers=2 blocking-offload=32 healthy@2 hidden-loader=0.9",
        ),
        *runs(
            ALONE_CONV,
            "full-precision elementwise-chain loader-in-process pageable-copy host-logging "
            "empty-cache hidden-loader varied-images slow-transform healthy@1",
        ),
        *runs(ALONE_LARGE, "full-precision=4 host-logging=32 elementwise-chain=2 healthy@1"),
    ]


def _rare() -> list[RunSpec]:
    """Return the faults that no other matrix comes to early, for the rules that they prove."""
    return runs(
        SMALL,
        "unequal-batch unused-parameter-search busy-multiprocessors co-tenant few-cores drift "
        "checkpoint-stall evaluation-spike many-channels noisy-neighbour single-process "
        "step-barrier garbage-pause tiny-buckets",
    )


def _host_bound() -> list[RunSpec]:
    """Return runs of the tuning half that the host decides: they tell what recording costs it."""
    return [
        *runs(SMALL, "loader-in-process late-host", BOTH),
        *runs(SMALL, "slow-transform tiny-micro-batches slow-python host-logging central-loader"),
        *runs(SHARDED, "healthy late-host fine-sharding serial-all-gathers"),
        *runs(COMPILED, "healthy"),
        *runs(SMALL, "metric-reductions drift"),
        *runs(
            ALONE_DEEP,
            "healthy item-sync unfused-optimizer tiny-micro-batches recomputation layout-copies "
            "elementwise-chain loader-in-process empty-cache checked-clipping hidden-loader "
            "pageable-copy no-autocast-cache slow-transform host-logging",
        ),
    ]


def _host_bound_single() -> list[RunSpec]:
    """Return runs of one GPU for the test half in which the GPU waits for the host throughout."""
    return [
        *runs(ALONE_CONV_DEEP, "healthy item-sync loader-in-process", BOTH),
        *runs(
            ALONE_CONV_DEEP,
            "unfused-optimizer tiny-micro-batches pageable-copy slow-transform empty-cache "
            "host-logging anomaly-mode launch-blocking garbage-pause small-pageable-copies "
            "checked-clipping hidden-loader item-sync=4 unfused-optimizer=1 "
            "loader-in-process=0.5 first-rank-pause=4 healthy@1",
        ),
        *runs(ALONE_DEEP, "healthy@1 item-sync=4 loader-in-process=0.5", BOTH),
        *runs(
            ALONE_DEEP,
            "unfused-optimizer=1 tiny-micro-batches=2 pageable-copy=16 slow-transform=0.5 "
            "empty-cache=2 host-logging=8 elementwise-chain=2 layout-copies=4 "
            "no-autocast-cache=2 recomputation=0.5 first-rank-pause=4 garbage-pause=2 "
            "launch-blocking@1 anomaly-mode@1 checked-clipping@1 item-sync=2 healthy@2 "
            "pin-in-step=64 hidden-loader=0.9",
        ),
        *runs(ALONE, "slow-transform=0.5 item-sync=2 tiny-micro-batches=8 loader-in-process=1.6"),
    ]


def _third() -> list[RunSpec]:
    """Return every fault at its other magnitudes and on the other workloads."""
    found: list[RunSpec] = []
    plan = (
        (SMALL, frozenset({"cuda", "ddp", "ranks", "gpt", "eager", "small"})),
        (CONV, frozenset({"cuda", "ddp", "ranks", "conv", "eager", "small"})),
        (LARGE, frozenset({"cuda", "ddp", "ranks", "gpt", "eager", "large"})),
    )
    from trace_analyzer.collectors.faultlab.fault import all_faults

    for workload, traits in plan:
        for name, kind in all_faults().items():
            chosen = kind.magnitudes if workload == SMALL else kind.magnitudes[1:2]
            if kind.needs <= traits:
                found += [
                    RunSpec(workload=workload, doses=(Dose(fault=name, magnitude=amount),))
                    for amount in chosen
                ]
    return found


def _single() -> list[RunSpec]:
    """Return what one GPU can show: causes on the host, in memory and in computation."""
    return [
        *runs(ALONE_CONV, "healthy channels-first item-sync unfused-optimizer"),
        *runs(
            ALONE,
            "healthy item-sync unfused-optimizer loader-in-process layout-copies pageable-copy "
            "full-precision empty-cache tiny-micro-batches elementwise-chain checked-clipping "
            "slow-transform",
            BOTH,
        ),
        *runs(
            ALONE,
            "healthy@1 host-logging recomputation loader-too-few-workers sync-while-busy "
            "hidden-loader odd-vocabulary first-rank-pause no-autocast-cache pin-in-step "
            "item-sync=4 item-sync+layout-copies unfused-optimizer=1 pageable-copy=16 "
            "full-precision=4 recomputation+item-sync loader-in-process=0.5 empty-cache=2 "
            "tiny-micro-batches=2 elementwise-chain=2 layout-copies=1 slow-transform=0.5 "
            "pin-in-step=64 small-pageable-copies",
        ),
        *runs(ALONE_COMPILED, "not-compiled graph-breaks"),
    ]


def _single_more() -> list[RunSpec]:
    """Return the rest of what one GPU can show."""
    return [
        *runs(
            ALONE,
            "drift checkpoint-stall blocking-offload small-pageable-copies below-noise "
            "unfused-optimizer=1 loader-in-process=0.5+elementwise-chain noisy-neighbour "
            "evaluation-spike co-tenant anomaly-mode garbage-pause recompilation",
        ),
        *runs(ALONE, "launch-blocking", BOTH),
        *runs(ALONE_CONV, "hidden-loader loader-in-process varied-images"),
        *runs(ALONE_COMPILED, "healthy unfused-optimizer"),
        *runs(ALONE_LARGE, "healthy host-logging full-precision hidden-pageable-copy"),
    ]


def _everything() -> list[RunSpec]:
    matrices = (
        *(_first, _second, _held_out, _rare, _single, _held_out_single),
        *(_host_bound, _host_bound_single, _single_more, _third),
    )
    return [spec for matrix_of in matrices for spec in matrix_of()]


def _full() -> list[RunSpec]:
    """Return all of them, each once; a run that wants nsys in one place wants it."""
    merged: dict[str, RunSpec] = {}
    for spec in _everything():
        known = merged.get(spec.key)
        if known is None or len(spec.recorders) > len(known.recorders):
            merged[spec.key] = spec
    return list(merged.values())


MATRICES = {
    "tiny": _tiny,
    "first": _first,
    "second": _second,
    "held-out": _held_out,
    "held-out-single": _held_out_single,
    "rare": _rare,
    "host-bound": _host_bound,
    "host-bound-single": _host_bound_single,
    "third": _third,
    "single": _single,
    "single-more": _single_more,
    "full": _full,
}
