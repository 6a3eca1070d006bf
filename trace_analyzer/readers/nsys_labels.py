"""The text of an NVTX range taken apart.

torch's emit_nvtx writes "aten::mul, seq = 12, op_id = 7, sizes = [[4, 4]]" for an operator. The ids
make nearly every text of such a capture a new one, so they are cut off the name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trace_analyzer.names import NameTable
from trace_analyzer.schema import NA_INT64, Int64Array
from trace_analyzer.tables import HostCategory

_SUFFIX = re.compile(r", (?:seq = (\d+)|(?:op_id|sizes|input_op_ids) = |seq = -1)")
# Names that only the dispatcher and autograd give; whatever else torch annotates may be the user's.
_TORCH = re.compile(
    r"^(?:aten|autograd|torch|c10d?|_c10d_functional|prims?|prim|quantized)::"
    r"|^(?:detach_?|record_param_comms)$"
    r"|Backward\d+$"
)
_NAMESPACE = re.compile(r"^[a-z_][\w.]*::")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labels:
    """Texts taken apart, one entry each: position of the name, autograd number, HostCategory."""

    name: Int64Array
    sequence: Int64Array
    category: Int64Array


def split_labels(texts: Sequence[str], names: NameTable) -> Labels:
    """Take texts of NVTX ranges apart and intern their names.

    With torch's suffix, every name of a namespace is an operator; without it, torch's own only.
    Nearly every operator has a text of its own, so this loop is as long as the capture has ranges.
    """
    codes: list[int] = []
    sequences: list[int] = []
    plain: dict[str, int] = {}
    suffixed: dict[str, int] = {}
    numbered: dict[str, int] = {}
    kinds: list[tuple[int, int]] = []
    search = _SUFFIX.search
    for text in texts:
        suffix = search(text)
        if suffix is None:
            name, number, known = text, None, plain
        else:
            number = suffix[1]
            name, known = text[: suffix.start()], suffixed if number is None else numbered
        sequences.append(NA_INT64 if number is None else int(number))
        code = known.get(name)
        if code is None:
            code = known[name] = len(kinds)
            category = category_of(name, known is not plain, known is numbered)
            kinds.append((names.intern(name), category.value))
        codes.append(code)
    table = np.array(kinds, dtype=np.int64).reshape(-1, 2)
    return Labels(
        name=table[codes, 0],
        sequence=np.array(sequences, dtype=np.int64),
        category=table[codes, 1],
    )


def category_of(name: str, suffixed: bool, numbered: bool) -> HostCategory:
    """Return what a range is: by its name, by torch's suffix, by an autograd number in it."""
    operator = numbered or _TORCH.search(name) or (suffixed and _NAMESPACE.match(name))
    return HostCategory.OPERATOR if operator else HostCategory.ANNOTATION
