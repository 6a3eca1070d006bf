"""What the training program chose, seen from inside its process.

Objects are found through the garbage collector, so that the script need not hand them over:
wrapped models, data loaders, optimizers, gradient scalers. Nothing but types, switches and counts
is read.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

Setting = str | int | float | bool


def read_settings() -> dict[str, Setting]:
    """Return settings by dotted name, e.g. `ddp.bucket_cap_mb`; absent where not seen."""
    found = _objects()
    settings = _switches()
    for title, items, read in (
        ("ddp", found["ddp"], _ddp),
        ("dataloader", found["dataloader"] or found["batches"], _data_loader),
        ("optimizer", found["optimizer"], _optimizer),
    ):
        for position, item in enumerate(items[:4]):
            prefix = title if not position else f"{title}{position + 1}"
            settings.update({f"{prefix}.{key}": value for key, value in read(item).items()})
    if found["fsdp"]:
        settings["fsdp.modules"] = len(found["fsdp"])
        settings["fsdp.version"] = 1 if _is_fsdp1(type(found["fsdp"][0])) else 2
    if found["scaler"]:
        settings["amp.grad_scaler"] = any(item.is_enabled() for item in found["scaler"])
    settings["compile.modules"] = len(found["compiled"])
    settings.update(_compile_counters())
    return settings


def _objects() -> dict[str, list[Any]]:
    from torch.amp.grad_scaler import GradScaler
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    compiled: Any = getattr(dynamo, "OptimizedModule", ())
    found: dict[str, list[Any]] = {
        name: []
        for name in ("ddp", "fsdp", "dataloader", "batches", "optimizer", "scaler", "compiled")
    }
    # type(item), not isinstance(): proxies answer questions about __class__ with work.
    for item in gc.get_objects():
        kind = type(item)
        if issubclass(kind, torch.nn.Module) and vars(item).get("_compiled_call_impl"):
            found["compiled"].append(item)  # module.compile(), which wraps nothing
        if compiled and issubclass(kind, compiled):
            found["compiled"].append(item)
        elif issubclass(kind, DistributedDataParallel):
            found["ddp"].append(item)
        elif issubclass(kind, DataLoader):
            found["dataloader"].append(item)
        elif issubclass(kind, _BaseDataLoaderIter):
            found["batches"].append(item)  # it does not keep its loader alive
        elif issubclass(kind, torch.optim.Optimizer):
            found["optimizer"].append(item)
        elif issubclass(kind, GradScaler):
            found["scaler"].append(item)
        elif issubclass(kind, torch.nn.Module) and (_is_fsdp1(kind) or _is_fsdp2(kind)):
            found["fsdp"].append(item)
    return found


def _is_fsdp1(kind: type) -> bool:
    return any(base.__name__ == "FullyShardedDataParallel" for base in kind.__mro__)


def _is_fsdp2(kind: type) -> bool:
    return any(base.__name__ == "FSDPModule" for base in kind.__mro__)


def _ddp(module: Any) -> dict[str, Setting]:  # noqa: ANN401
    settings = _attributes(
        module,
        (
            "find_unused_parameters",
            "gradient_as_bucket_view",
            "static_graph",
            "broadcast_buffers",
            "require_backward_grad_sync",
        ),
    )
    cap = getattr(module, "bucket_bytes_cap", None)
    if isinstance(cap, int):
        settings["bucket_cap_mb"] = cap / (1 << 20)
    settings["parameter_bytes"] = sum(
        parameter.numel() * parameter.element_size() for parameter in module.parameters()
    )
    return settings


def _data_loader(loader: Any) -> dict[str, Setting]:  # noqa: ANN401
    """Read a DataLoader, or the iterator of one that is gone: the names have an underscore."""
    settings: dict[str, Setting] = {}
    for name in ("num_workers", "pin_memory", "prefetch_factor", "persistent_workers"):
        value = getattr(loader, name, getattr(loader, f"_{name}", None))
        if isinstance(value, bool | int):
            settings[name] = value
    batches = getattr(loader, "batch_sampler", getattr(loader, "_index_sampler", None))
    for name in ("batch_size", "drop_last"):
        value = getattr(batches, name, getattr(loader, name, None))
        if isinstance(value, bool | int):
            settings[name] = value
    sampler = getattr(batches, "sampler", getattr(loader, "sampler", None))
    settings["sampler"] = type(sampler).__name__
    dataset = getattr(loader, "dataset", getattr(loader, "_dataset", None))
    settings["dataset"] = type(dataset).__name__
    return settings


def _optimizer(optimizer: Any) -> dict[str, Setting]:  # noqa: ANN401
    settings: dict[str, Setting] = {"type": type(optimizer).__name__}
    settings.update(_attributes_of(optimizer.defaults, ("fused", "foreach", "capturable")))
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    settings["parameters"] = sum(int(parameter.numel()) for parameter in parameters)
    settings["tensors"] = len(parameters)
    settings["dtypes"] = _count(str(p.dtype).removeprefix("torch.") for p in parameters)
    return settings


def _switches() -> dict[str, Setting]:
    settings: dict[str, Setting] = {
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "autograd.anomaly_mode": torch.is_anomaly_enabled(),
        "gc.enabled": gc.isenabled(),
    }
    # From torch 2.9 on reading the older switch raises where the newer one was set.
    try:
        settings["tf32.matmul"] = torch.backends.cuda.matmul.allow_tf32
        settings["tf32.cudnn"] = torch.backends.cudnn.allow_tf32
    except RuntimeError:
        settings["tf32.matmul"] = torch.get_float32_matmul_precision() != "highest"
    settings["matmul_precision"] = torch.get_float32_matmul_precision()
    if torch.cuda.is_available():
        settings["allocator"] = torch.cuda.get_allocator_backend()
    return settings


def _compile_counters() -> dict[str, Setting]:
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return {}
    stats = dynamo.counters["stats"]
    return {
        "compile.graphs": int(stats.get("unique_graphs", 0)),
        "compile.graph_breaks": sum(dynamo.counters["graph_break"].values()),
    }


def _attributes(owner: object, names: tuple[str, ...]) -> dict[str, Setting]:
    return _attributes_of({name: getattr(owner, name, None) for name in names}, names)


def _attributes_of(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, Setting]:
    return {
        name: values[name]
        for name in names
        if isinstance(values.get(name), str | int | float | bool)
    }


def _count(texts: Iterable[str]) -> str:
    return ", ".join(f"{text}: {number}" for text, number in sorted(Counter(texts).items()))
