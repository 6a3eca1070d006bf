"""What is trained: model, size, parallelism; and what a program chooses when it is built."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

MODELS = ("gpt", "conv")
SIZES = ("tiny", "deep", "small", "large")
PARALLEL = ("single", "ddp", "fsdp", "dp")


@dataclass(frozen=True, slots=True, kw_only=True)
class GptShape:
    """Decoder-only transformer: `sequence` tokens a sample."""

    layers: int
    width: int
    heads: int
    sequence: int
    vocabulary: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvShape:
    """Residual network with bottleneck blocks: `image` pixels a side."""

    stages: tuple[int, ...]
    width: int
    image: int
    classes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What a size means for a model.

    `nominal_step_ms` is the healthy step on two H200, to which magnitudes of host faults refer;
    `trace_kb_per_step` what one eager step of one rank takes in a pruned, compressed trace.
    """

    batch: int
    nominal_step_ms: float
    trace_kb_per_step: float
    gpt: GptShape | None = None
    conv: ConvShape | None = None

    @property
    def shape(self) -> GptShape | ConvShape:
        """The model's shape."""
        found = self.gpt or self.conv
        assert found is not None
        return found


# "small" is launch-sensitive (host and device take about as long), "large" is bound by the GPU,
# "deep" has as many operators on far smaller tensors: the GPU waits for the host all the time.
# "tiny" is for tests on a CPU.
SCALES: dict[tuple[str, str], Scale] = {
    ("gpt", "tiny"): Scale(
        batch=4,
        nominal_step_ms=10.0,
        trace_kb_per_step=110.0,
        gpt=GptShape(layers=2, width=32, heads=2, sequence=16, vocabulary=64),
    ),
    ("gpt", "deep"): Scale(
        batch=4,
        nominal_step_ms=25.0,
        trace_kb_per_step=160.0,
        gpt=GptShape(layers=16, width=256, heads=4, sequence=256, vocabulary=8000),
    ),
    ("gpt", "small"): Scale(
        batch=8,
        nominal_step_ms=25.0,
        trace_kb_per_step=83.0,
        gpt=GptShape(layers=8, width=1024, heads=16, sequence=1024, vocabulary=32000),
    ),
    ("gpt", "large"): Scale(
        batch=8,
        nominal_step_ms=89.0,
        trace_kb_per_step=120.0,
        gpt=GptShape(layers=12, width=2048, heads=16, sequence=1024, vocabulary=32000),
    ),
    ("conv", "tiny"): Scale(
        batch=4,
        nominal_step_ms=10.0,
        trace_kb_per_step=110.0,
        conv=ConvShape(stages=(1, 1), width=8, image=16, classes=10),
    ),
    ("conv", "deep"): Scale(
        batch=32,
        nominal_step_ms=25.0,
        trace_kb_per_step=120.0,
        conv=ConvShape(stages=(3, 4, 6, 3), width=32, image=96, classes=100),
    ),
    ("conv", "small"): Scale(
        batch=256,
        nominal_step_ms=37.0,
        trace_kb_per_step=120.0,
        conv=ConvShape(stages=(3, 4, 6, 3), width=64, image=160, classes=1000),
    ),
    ("conv", "large"): Scale(
        batch=256,
        nominal_step_ms=100.0,
        trace_kb_per_step=125.0,
        conv=ConvShape(stages=(3, 4, 6, 3), width=64, image=224, classes=1000),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A training program without its faults."""

    model: str = "gpt"
    size: str = "small"
    parallel: str = "ddp"
    compiled: bool = False

    def __post_init__(self) -> None:
        for value, known in (
            (self.model, MODELS),
            (self.size, SIZES),
            (self.parallel, PARALLEL),
        ):
            if value not in known:
                msg = f"{value!r} is none of {', '.join(known)}"
                raise ValueError(msg)

    @property
    def scale(self) -> Scale:
        """Shapes, batch and nominal step time."""
        return SCALES[self.model, self.size]

    @property
    def name(self) -> str:
        """Short name, such as `gpt-small-ddp` or `gpt-small-ddp-compiled`."""
        return f"{self.model}-{self.size}-{self.parallel}" + ("-compiled" if self.compiled else "")

    def traits(self, *, device: str, world_size: int) -> frozenset[str]:
        """Return what a fault may ask for (`Fault.needs`)."""
        found = {self.model, self.parallel, self.size, device}
        found.add("compiled" if self.compiled else "eager")
        if world_size > 1 and self.parallel != "single":
            found.add("ranks")
        return frozenset(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """What a program chooses when it is built; faults of construction change these."""

    bucket_cap_mb: float = 25.0
    find_unused_parameters: bool = False
    broadcast_buffers: bool = False
    max_ctas: int = 0  # 0: NCCL decides
    min_ctas: int = 0
    communicator_environment: tuple[tuple[str, str], ...] = ()  # while the communicator is built
    shard_each_linear: bool = False
    serial_all_gathers: bool = False
    extra_vocabulary: int = 0
    channels_last: bool = True
    graph_breaks: bool = False
    force_eager: bool = False
    compile_backend: str = "inductor"
    data_parallel: bool = False

    def document(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        return asdict(self)

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> Self:
        """Return the options that `document()` described."""
        pairs = document.get("communicator_environment", ())
        environment = tuple((str(name), str(value)) for name, value in pairs)
        return cls(**{**document, "communicator_environment": environment})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderOptions:
    """How batches are loaded. `workers` 0 loads in the training process."""

    workers: int = 2
    prefetch: int = 4
    pinned: bool = True
    sleep_ms_per_sample: float = 0.0
    read_mb_per_sample: float = 0.0  # from a file that the page cache does not hold
    extra_samples: int = 0
    sharded: bool = True
    image: int = 0  # 0: the workload's own size
