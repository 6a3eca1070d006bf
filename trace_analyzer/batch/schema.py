"""Tables, indexes, search and views of `index.db`, and what labels them."""

from __future__ import annotations

from typing import Any

from sqlite_utils import Database

from trace_analyzer.batch.rows import TABLES, RunRow, columns

SCHEMA_VERSION = 1  # PRAGMA user_version

_INDEXES: dict[str, tuple[tuple[str, ...], ...]] = {
    "runs": (
        ("name",),
        ("unit",),
        ("cause",),
        ("recoverable_ms",),
        ("job", "started"),
        ("state",),
        ("digest",),
    ),
    "findings": (("run_id",), ("code", "recoverable_ms")),
    "ranks": (("run_id",),),
    "collectives": (("run_id",), ("operation", "bytes")),
    "kernels": (("run_id",), ("name_id", "total_ms")),
    "warnings": (("run_id",), ("code",)),
    "files": (("run_id",), ("sha256",)),
}
_SEARCH: dict[str, tuple[str, ...]] = {
    "runs": ("name", "job", "commit", "cause", "cause_name", "headline", "reason"),
    "findings": ("code", "name", "title", "proof"),
    "warnings": ("code", "name", "message"),
    "kernel_names": ("name",),
}

VIEWS: dict[str, tuple[str, str]] = {
    "causes": (
        "How often each cause was found, and how often it is a run's main one",
        """SELECT f.code, f.name, f.kind, COUNT(DISTINCT f.run_id) AS runs,
               COUNT(DISTINCT CASE WHEN r.cause = f.code THEN r.id END) AS main_in_runs,
               MAX(f.recoverable_ms) AS largest_recoverable_ms
        FROM findings f JOIN runs r ON r.id = f.run_id
        WHERE r.present GROUP BY f.code, f.name, f.kind ORDER BY runs DESC, f.code""",
    ),
    "runs_by_gain": (
        "Runs with a cause, the largest gain first",
        """SELECT id, name, job, "commit", started, step_ms, step_basis, cause, cause_name, cause_ranks,
               recoverable_ms, recoverable_low_ms, recoverable_high_ms,
               recoverable_ms / step_ms AS of_step, report
        FROM runs WHERE present AND cause IS NOT NULL ORDER BY recoverable_ms DESC, name""",
    ),
    "step_changes": (
        "Step time of every run against the run of the same job, size and GPU before it",
        """SELECT id, job, started, "commit", step_ms,
               LAG(step_ms) OVER earlier AS step_before_ms,
               step_ms / LAG(step_ms) OVER earlier - 1 AS change,
               LAG("commit") OVER earlier AS commit_before, cause, name, report
        FROM runs WHERE present AND job != '' AND started IS NOT NULL AND step_ms IS NOT NULL
        WINDOW earlier AS (PARTITION BY job, world_size, gpu, step_basis ORDER BY started, name)
        ORDER BY job, started""",
    ),
    "failed_runs": (
        "Runs without a report, and why",
        """SELECT id, name, failure, reason, bytes, tool_version FROM runs
        WHERE present AND state = 'failed' ORDER BY name""",
    ),
    "data_warnings": (
        "How many runs have each data warning",
        """SELECT w.code, w.name, w.severity, COUNT(DISTINCT w.run_id) AS runs
        FROM warnings w JOIN runs r ON r.id = w.run_id
        WHERE r.present GROUP BY w.code, w.name, w.severity ORDER BY runs DESC, w.code""",
    ),
    "slowest_ranks": (
        "The rank with the longest step of every run, and where its time goes",
        """SELECT r.name AS run, k.*, r.report FROM ranks k JOIN runs r ON r.id = k.run_id
        WHERE r.present AND k.rowid = (SELECT rowid FROM ranks WHERE run_id = k.run_id
                                       ORDER BY step_ms DESC, rank LIMIT 1)
        ORDER BY k.step_ms DESC""",
    ),
    "kernels_by_name": (
        "Kernels with their names",
        """SELECT r.name AS run, n.name AS kernel, k.category, k.count, k.count_per_step, k.total_ms,
               k.mean_us, k.grid, k.block, k.run_id, k.name_id
        FROM kernels k JOIN kernel_names n ON n.id = k.name_id JOIN runs r ON r.id = k.run_id""",
    ),
    "duplicate_files": (
        "Files of the same content in several runs",
        """SELECT sha256, COUNT(DISTINCT run_id) AS runs, MAX(bytes) AS bytes, MIN(path) AS path
        FROM files WHERE sha256 != '' GROUP BY sha256 HAVING runs > 1 ORDER BY runs DESC""",
    ),
}

_TITLES = {
    "runs": "One row a run: what was found, or why nothing could be",
    "findings": "Causes that were found",
    "ranks": "Where the step of each rank goes",
    "collectives": "Communication by operation, size and launch shape",
    "kernels": "Kernels and copies by name and launch shape; names in kernel_names",
    "warnings": "What to know before believing a run's numbers",
    "files": "Files by content",
    "kernel_names": "Names of kernels",
    "units": "Folders and archives that were searched, as they were then",
    "analyses": "When and how each run was analysed",
}
_ANALYSES = {
    "run_id": (str, "Run"),
    "fingerprint": (str, "Hash of names, sizes and time stamps of its files; empty where unknown"),
    "finished": (str, "When, ISO 8601, UTC"),
    "seconds": (float, "How long its process worked, s"),
    "peak_bytes": (int, "Memory of its process at most, bytes"),
    "attempts": (int, "How often it was started"),
}
_UNITS = {
    "id": (str, "Hash of the unit's place"),
    "name": (str, "Folder or archive"),
    "fingerprint": (str, "Hash of names, sizes and time stamps; empty where unknown"),
    "runs": (int, "Runs in it"),
    "reason": (str, "Why it holds none"),
}
_KERNEL_NAMES = {"id": (int, "Hash of the name"), "name": (str, "Name of the kernel")}


def create(base: Database) -> None:
    """Create everything in an empty database."""
    base.table("runs").create(_types(columns(RunRow)), pk="id")
    base.table("kernel_names").create(_types(_KERNEL_NAMES), pk="id")
    base.table("units").create(_types(_UNITS), pk="id")
    base.table("analyses").create(
        _types(_ANALYSES), pk="run_id", foreign_keys=[("run_id", "runs", "id")]
    )
    for table, fields in _table_columns().items():
        keys = [("run_id", "runs", "id")]
        if "name_id" in fields:
            keys.append(("name_id", "kernel_names", "id"))
        base.table(table).create(_types(fields), foreign_keys=keys)
    for table, indexes in _INDEXES.items():
        for index in indexes:
            base.table(table).create_index(index)
    for table, searched in _SEARCH.items():
        base.table(table).enable_fts(searched, create_triggers=True)
    for name, (_, query) in VIEWS.items():
        base.create_view(name, query)
    base.conn.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _table_columns() -> dict[str, dict[str, tuple[type, str]]]:
    """Return the columns of the tables that hang on a run."""
    found = {}
    for table, row in TABLES.items():
        fields = columns(row)
        if table == "kernels":  # thousands of runs have the same long names
            fields = {
                ("name_id" if name == "name" else name): (int, declared[1])
                if name == "name"
                else declared
                for name, declared in fields.items()
            }
        found[table] = {"run_id": (str, "Run"), **fields}
    return found


def _types(fields: dict[str, tuple[type, str]]) -> dict[str, type]:
    return {name: kind for name, (kind, _) in fields.items()}


def metadata() -> dict[str, Any]:
    """Return datasette's metadata: what tables, columns and views are."""
    described = {
        "runs": columns(RunRow),
        **_table_columns(),
        "kernel_names": _KERNEL_NAMES,
        "units": _UNITS,
        "analyses": _ANALYSES,
    }
    tables: dict[str, Any] = {
        table: {
            "description": _TITLES[table],
            "columns": {name: text for name, (_, text) in fields.items()},
        }
        for table, fields in described.items()
    }
    tables["runs"] |= {
        "label_column": "name",
        "sort_desc": "recoverable_ms",
        "facets": ["state", "cause", "job", "gpu"],
    }
    tables["kernel_names"]["label_column"] = "name"
    tables["findings"]["facets"] = ["code", "severity"]
    tables["warnings"]["facets"] = ["code", "severity"]
    tables |= {name: {"description": text} for name, (text, _) in VIEWS.items()}
    return {
        "title": "trace-analyzer archive",
        "description": "What slows the runs of this archive down",
        "databases": {"index": {"tables": tables}},
    }


__all__ = ["SCHEMA_VERSION", "VIEWS", "create", "metadata"]
