"""A small decoder-only transformer, with the places where faults take hold."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trace_analyzer.collectors.faultlab.workload import GptShape

Probe = Callable[[int, Tensor], Tensor]


def fused_gelu(values: Tensor) -> Tensor:
    """GELU in one kernel."""
    return functional.gelu(values, approximate="tanh")


class Block(nn.Module):
    """Attention and feed-forward layer, both residual; no biases."""

    def __init__(self, shape: GptShape, *, graph_break: bool = False) -> None:
        super().__init__()
        self.heads = shape.heads
        self.graph_break = graph_break
        self.activation: Callable[[Tensor], Tensor] = fused_gelu
        self.attention_norm = nn.LayerNorm(shape.width, bias=False)
        self.attention_in = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.attention_out = nn.Linear(shape.width, shape.width, bias=False)
        self.feed_norm = nn.LayerNorm(shape.width, bias=False)
        self.feed_in = nn.Linear(shape.width, 4 * shape.width, bias=False)
        self.feed_out = nn.Linear(4 * shape.width, shape.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the next hidden state, shape (batch, sequence, width)."""
        batch, length, width = hidden.shape
        mixed = self.attention_in(self.attention_norm(hidden))
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in mixed.chunk(3, dim=-1)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended = attended.transpose(1, 2).reshape(batch, length, width)
        hidden = hidden + self.attention_out(attended)
        if self.graph_break:
            torch._dynamo.graph_break()  # noqa: SLF001
        inner = self.activation(self.feed_in(self.feed_norm(hidden)))
        if self.graph_break:
            torch._dynamo.graph_break()  # noqa: SLF001
        output: Tensor = hidden + self.feed_out(inner)
        return output


class Gpt(nn.Module):
    """Token ids in, loss out.

    `probe` sees the hidden state after every block; the first `recomputed` blocks keep no
    activations; the first `full_precision` blocks run in float32.
    """

    def __init__(self, shape: GptShape, *, graph_breaks: bool = False) -> None:
        super().__init__()
        self.probe: Probe | None = None
        self.recomputed = 0
        self.full_precision = 0
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.sequence, shape.width)
        self.blocks = nn.ModuleList(
            Block(shape, graph_break=graph_breaks) for _ in range(shape.layers)
        )
        self.norm = nn.LayerNorm(shape.width, bias=False)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of `targets`, both of shape (batch, sequence)."""
        steps = torch.arange(inputs.shape[1], device=inputs.device)
        hidden = self.tokens(inputs) + self.positions(steps)
        for index, block in enumerate(self.blocks):
            if index < self.recomputed:
                hidden = checkpoint(block, hidden, use_reentrant=False)
            elif index < self.full_precision:
                with torch.autocast(hidden.device.type, enabled=False):
                    hidden = block(hidden.float())
            else:
                hidden = block(hidden)
            if self.probe is not None:
                hidden = self.probe(index, hidden)
        logits = self.head(self.norm(hidden))
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
