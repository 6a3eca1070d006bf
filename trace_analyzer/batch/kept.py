"""What a finished run leaves beside its report, so that no work is done twice.

The index is written by one process and may be behind, or gone. So every run keeps its own rows,
written last: where they are there, report.html and report.json are whole.
"""

from __future__ import annotations

import msgspec
import zstandard

from trace_analyzer.batch.rows import RunRows
from trace_analyzer.batch.storage import Place
from trace_analyzer.batch.tasks import PASSING, RunFound, run_folder
from trace_analyzer.findings import encode_compact

_NAME = "rows.json.zst"
_MAX_BYTES = 256 << 20


def keep(out: Place, found: RunFound, rows: RunRows) -> None:
    """Write the rows of a finished run. Raises `StorageError`."""
    data = zstandard.ZstdCompressor().compress(encode_compact(rows))
    out.write(f"{run_folder(found.name)}/{_NAME}", data)


def kept_rows(
    out: Place, found: RunFound, *, version: str | None, failures: bool
) -> RunRows | None:
    """Return the rows that an earlier process left for the same content, if any can be taken.

    `version` is the only one of trace-analyzer whose rows are taken, None takes any. Those of a
    failure are taken where `failures` is set and the failure says something of the run.
    """
    data = out.read(f"{run_folder(found.name)}/{_NAME}")
    if data is None:
        return None
    try:
        plain = zstandard.ZstdDecompressor().decompress(data, max_output_size=_MAX_BYTES)
        rows = msgspec.json.decode(plain, type=RunRows)
    except (zstandard.ZstdError, msgspec.DecodeError):
        return None  # of a version with other columns: the run is analysed again
    run = rows.run
    if run.digest != found.digest or version not in {None, run.tool_version}:
        return None
    if run.state == "failed" and (not failures or run.failure in PASSING):
        return None
    return rows


__all__ = ["keep", "kept_rows"]
