# What the extension offers, documented in module.c; it is absent where it could not be built.

from trace_analyzer.analyses.replay.program import Program
from trace_analyzer.schema import Int64Array

INTERFACE: int

def simulate(
    program: Program,
    node_start_ns: Int64Array,
    node_end_ns: Int64Array,
    op_start_ns: Int64Array,
    op_end_ns: Int64Array,
    /,
) -> int | None: ...
