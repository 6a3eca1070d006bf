"""A small residual convolution network, with the places where faults take hold."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trace_analyzer.collectors.faultlab.workload import ConvShape

EXPANSION = 4


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 convolutions with batch normalisation around a shortcut."""

    def __init__(self, channels: int, width: int, stride: int, *, graph_break: bool) -> None:
        super().__init__()
        out = EXPANSION * width
        self.graph_break = graph_break
        self.activation: Callable[[Tensor], Tensor] = functional.relu
        self.narrow = nn.Conv2d(channels, width, 1, bias=False)
        self.narrow_norm = nn.BatchNorm2d(width)
        self.spatial = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.spatial_norm = nn.BatchNorm2d(width)
        self.widen = nn.Conv2d(width, out, 1, bias=False)
        self.widen_norm = nn.BatchNorm2d(out)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and channels == out
            else nn.Sequential(
                nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out)
            )
        )

    def forward(self, features: Tensor) -> Tensor:
        """Return features of shape (batch, 4 · width, height / stride, width / stride)."""
        inner = self.activation(self.narrow_norm(self.narrow(features)))
        inner = self.activation(self.spatial_norm(self.spatial(inner)))
        if self.graph_break:
            torch._dynamo.graph_break()  # noqa: SLF001
        inner = self.widen_norm(self.widen(inner))
        return self.activation(inner + self.shortcut(features))


class Conv(nn.Module):
    """Bytes of images in, loss out. `probe`, `recomputed`, `full_precision` as in `Gpt`."""

    def __init__(self, shape: ConvShape, *, graph_breaks: bool = False) -> None:
        super().__init__()
        self.probe: Callable[[int, Tensor], Tensor] | None = None
        self.recomputed = 0
        self.full_precision = 0
        self.channels_last = True
        self.stem = nn.Conv2d(3, shape.width, 7, stride=2, padding=3, bias=False)
        self.stem_norm = nn.BatchNorm2d(shape.width)
        blocks: list[nn.Module] = []
        channels = shape.width
        for stage, count in enumerate(shape.stages):
            for position in range(count):
                stride = 2 if stage > 0 and position == 0 else 1
                width = shape.width << stage
                blocks.append(Bottleneck(channels, width, stride, graph_break=graph_breaks))
                channels = EXPANSION * width
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(channels, shape.classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy; `images` are uint8 of shape (batch, 3, side, side)."""
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        features = images.to(torch.float32, memory_format=layout).div_(255.0)
        features = functional.relu(self.stem_norm(self.stem(features)))
        features = functional.max_pool2d(features, 3, stride=2, padding=1)
        for index, block in enumerate(self.blocks):
            if index < self.recomputed:
                features = checkpoint(block, features, use_reentrant=False)
            elif index < self.full_precision:
                with torch.autocast(features.device.type, enabled=False):
                    features = block(features.float())
            else:
                features = block(features)
            if self.probe is not None:
                features = self.probe(index, features)
        logits = self.head(features.mean(dim=(2, 3)))
        return functional.cross_entropy(logits.float(), labels)
