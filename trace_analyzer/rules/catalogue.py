"""All rules, in the order of the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module

from trace_analyzer.rules.rule import Rule

# Modules of this package, one a rule; each holds `RULE`.
MODULES = (
    "no_tensor_cores",
    "elementwise_chain",
    "cast_or_layout_copies",
    "slow_device",
    "low_occupancy",
    "recomputation",
    "allocator_churn",
    "blocking_device_copy",
    "cpu_contention",
    "dataloader_stall",
    "pageable_copy",
    "per_step_sync",
    "periodic_stall",
    "recompilation",
    "step_drift",
    "rank_memory_skew",
    "unsharded_data",
    "unfused_optimizer",
    "unfinished_collective",
    "host_pause",
    "launch_blocking",
    "launch_bound_step",
    "late_rank_host",
    "late_rank_device",
    "unequal_work",
    "exposed_collective",
    "serial_prefetch",
    "compute_contention",
    "unused_parameter_search",
    "single_process_data_parallel",
    "few_channels",
    "small_message_collectives",
    "redundant_gradient_sync",
    "extra_synchronisation",
    "slow_transport",
    "forced_protocol",
)


@cache
def rules() -> tuple[Rule, ...]:
    """Return every rule, by code."""
    found = [import_module(f"trace_analyzer.rules.{name}").RULE for name in MODULES]
    return tuple(sorted(found, key=lambda rule: rule.code))


def module_of(rule: Rule) -> str:
    """Return the documentation of a rule: the docstring of its module."""
    for name in MODULES:
        module = import_module(f"trace_analyzer.rules.{name}")
        if module.RULE is rule:
            return module.__doc__ or ""
    raise KeyError(rule.code)


def chosen(select: Sequence[str], ignore: Sequence[str]) -> tuple[Rule, ...]:
    """Return the rules whose code begins with one of `select` (all if empty) and none of `ignore`."""
    return tuple(
        rule
        for rule in rules()
        if (not select or rule.code.startswith(tuple(select)))
        and not (ignore and rule.code.startswith(tuple(ignore)))
    )
