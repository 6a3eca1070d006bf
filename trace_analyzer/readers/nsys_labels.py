"""The text of an NVTX range taken apart.

torch's emit_nvtx writes "aten::mul, seq = 12, op_id = 7, sizes = [[4, 4]]" for an operator. The ids
make nearly every text of such a capture a new one, so they are cut off the name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trace_analyzer.schema import NA_INT64
from trace_analyzer.tables import HostCategory

_SUFFIX = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = ")
_SEQUENCE = re.compile(r", seq = (\d+)")
# Names that only the dispatcher and autograd give; whatever else torch annotates may be the user's.
_TORCH = re.compile(
    r"^(?:aten|autograd|torch|c10d?|_c10d_functional|prims?|prim|quantized)::"
    r"|^(?:detach_?|record_param_comms)$"
    r"|Backward\d+$"
)
_NAMESPACE = re.compile(r"^[a-z_][\w.]*::")


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A range's text: name, autograd sequence number (NA if none), and what it is."""

    name: str
    sequence: int
    category: HostCategory


def split_label(text: str) -> Label:
    """Take the text of an NVTX range apart.

    With torch's suffix, every name of a namespace is an operator; without it, torch's own only.
    """
    suffix = _SUFFIX.search(text)
    if suffix is None:
        return Label(name=text, sequence=NA_INT64, category=_category(_TORCH.search(text)))
    name = text[: suffix.start()]
    sequence = _SEQUENCE.match(text, suffix.start())
    return Label(
        name=name,
        sequence=int(sequence[1]) if sequence else NA_INT64,
        category=_category(sequence or _TORCH.search(name) or _NAMESPACE.match(name)),
    )


def _category(operator: re.Match[str] | None) -> HostCategory:
    return HostCategory.ANNOTATION if operator is None else HostCategory.OPERATOR
