"""`trace-analyzer bench`."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from trace_analyzer.cli.group import InputError, debug_option
from trace_analyzer.cli.outputs import Output, check_outputs, write

if TYPE_CHECKING:
    from trace_analyzer.collectors.bench_document import Settings


@click.group(
    short_help="Measure what this host's GPUs and links give.",
    epilog="Example: trace-analyzer bench links -o bundle/bench_links.json",
)
def bench() -> None:
    """Measure collectives, links and scaling on this host's GPUs (or on its CPU, with gloo).

    A table goes to stdout, a document to bench_KIND.json; laid beside a recording of the same
    host, the document tells `analyze` what the links can carry.
    """


def _common(kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options that all benchmarks share; hand on `settings` and an `emit` function."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.option(
            "--device",
            type=click.Choice(["auto", "cuda", "cpu"]),
            default="auto",
            show_default=True,
            help="What to measure; auto takes the GPUs where there are any.",
        )
        @click.option("--ranks", type=click.IntRange(min=1), help="Default: one for each GPU.")
        @click.option("--repetitions", default=50, show_default=True, help="At least 30.")
        @click.option("--warmup", default=10, show_default=True, help="Repetitions before.")
        @click.option(
            "-o",
            "--output",
            default=f"bench_{kind}.json",
            show_default=True,
            help="The document; - is stdout, in place of the table.",
        )
        @click.option("--force", is_flag=True, help="Replace the document.")
        @debug_option
        @wraps(function)
        def command(
            *,
            device: str,
            ranks: int | None,
            repetitions: int,
            warmup: int,
            output: str,
            force: bool,
            **own: Any,  # noqa: ANN401
        ) -> None:
            if importlib.util.find_spec("torch") is None:
                raise InputError(
                    "bench runs with torch, which is not installed here: pip install torch"
                )
            from trace_analyzer.collectors.bench_document import settle

            target = Output("--output", output)
            check_outputs([target], force=force)
            settings = settle(device, ranks, repetitions, warmup)
            document, text = function(settings=settings, **own)
            where = write(target, json.dumps(document, indent=1) + "\n")
            if not target.to_stdout:
                click.echo(text, nl=False)
                click.echo(f"written: {where}", err=True)

        return command

    return decorate


def _sizes(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:  # noqa: ARG001
    """Return bytes from `4K,16M`. Raises `click.BadParameter`."""
    factors = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = []
    for part in filter(None, value.split(",")):
        unit = part[-1].upper() if part[-1].isalpha() else ""
        number = part[: len(part) - len(unit)]
        if unit not in factors or not number.isdecimal() or not int(number):
            msg = f"{part!r} is no size: write 4K, 16M or 1G"
            raise click.BadParameter(msg)
        sizes.append(int(number) * factors[unit])
    return tuple(sizes)


def _numbers(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:  # noqa: ARG001
    if not all(part.isdecimal() and int(part) for part in value.split(",")):
        msg = f"{value!r} is no list of numbers"
        raise click.BadParameter(msg)
    return tuple(int(part) for part in value.split(","))


_SIZES = click.option(
    "--sizes", default="", callback=_sizes, help="Message sizes, such as 4K,1M,256M."
)


@bench.command(short_help="All-reduce over message sizes.")
@_SIZES
@_common("allreduce")
def allreduce(*, settings: Settings, sizes: tuple[int, ...]) -> tuple[dict[str, Any], str]:
    """Time all-reduces from small to large; fit latency and bandwidth; compare with the links."""
    from trace_analyzer.collectors import bench_allreduce

    document = bench_allreduce.run(settings, sizes or bench_allreduce.SIZES_BYTES)
    return document, bench_allreduce.text(document)


@bench.command(short_help="Latency and bandwidth of every pair of GPUs.")
@_SIZES
@_common("links")
def links(*, settings: Settings, sizes: tuple[int, ...]) -> tuple[dict[str, Any], str]:
    """Time messages between all pairs, each direction alone and both together."""
    from trace_analyzer.collectors import bench_links

    document = bench_links.run(settings, sizes or bench_links.SIZES_BYTES)
    return document, bench_links.text(document)


@bench.command(short_help="How a training step scales on these GPUs.")
@click.option(
    "--widths",
    default="512,1024,2048",
    show_default=True,
    callback=_numbers,
    help="Widths of the transformers, one measurement each.",
)
@click.option("--layers", default=4, show_default=True, help="Blocks of a transformer.")
@click.option("--sequence", default=512, show_default=True, help="Tokens of a sample.")
@click.option("--vocabulary", default=8192, show_default=True, help="Size of the vocabulary.")
@click.option("--batch", default=16, show_default=True, help="Samples of one GPU.")
@_common("step")
def step(
    *,
    settings: Settings,
    widths: tuple[int, ...],
    layers: int,
    sequence: int,
    vocabulary: int,
    batch: int,
) -> tuple[dict[str, Any], str]:
    """Train transformers of several widths on 1, 2, … GPUs; give the scaling efficiency of each."""
    from trace_analyzer.collectors import bench_step

    shape = bench_step.Shape(
        widths=widths, layers=layers, sequence=sequence, vocabulary=vocabulary, batch=batch
    )
    document = bench_step.run(settings, shape)
    return document, bench_step.text(document)


@bench.command(name="nccl-env", short_help="Whether settings of NCCL help here.")
@click.option("--set", "chosen", multiple=True, metavar="NAME=VALUE[,…]", help="May be repeated.")
@click.option("--rounds", default=2, show_default=True, help="Starts of each setting.")
@_SIZES
@_common("nccl-env")
def nccl_env(
    *, settings: Settings, chosen: tuple[str, ...], rounds: int, sizes: tuple[int, ...]
) -> tuple[dict[str, Any], str]:
    """Time all-reduces under each setting, in processes of their own, against the default."""
    from trace_analyzer.collectors import bench_nccl_env

    grid = [bench_nccl_env.parse_setting(setting) for setting in chosen] or bench_nccl_env.GRID
    document = bench_nccl_env.run(
        settings, grid, sizes_bytes=sizes or bench_nccl_env.SIZES_BYTES, rounds=rounds
    )
    return document, bench_nccl_env.text(document)
