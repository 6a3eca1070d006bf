"""Write the reference pages and the published JSON Schema of the report from the code.

python docs/generate.py            write what is stale
python docs/generate.py --check    write nothing; exit 1 and name what is stale
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout that this script lies in, whatever is installed

from trace_analyzer import comparison_document, findings, scaling_document, tables  # noqa: E402
from trace_analyzer.cli import cli  # noqa: E402
from trace_analyzer.export import sqlite as sqlite_export  # noqa: E402
from trace_analyzer.export import table_declarations  # noqa: E402
from trace_analyzer.export.export_table import ExportTable  # noqa: E402
from trace_analyzer.rules import sections  # noqa: E402
from trace_analyzer.schema import Table  # noqa: E402

_NOTICE = "<!-- written by docs/generate.py; change the code, then run it -->"
_ENUMS: tuple[type[IntEnum], ...] = (
    tables.OperationKind,
    tables.WorkClass,
    tables.HostCategory,
    tables.CallKind,
    tables.SyncKind,
)


def data_model() -> str:
    """Return the page of tables, columns, units and codes."""
    return "\n".join([
        _head("Data model"),
        "What readers produce and analyses read: one set of tables a rank, declared in",
        "`trace_analyzer/tables.py`. Times are int64 nanoseconds on the rank's own trace clock,",
        "intervals are half-open. A missing value is the smallest value of the column's type",
        "(`trace_analyzer.schema.is_na`; `<NA>` after `to_pandas()`), never -1. Tables are read-only.",
        "",
        *(line for table in tables.TABLES for line in _table_section(table)),
        "## Codes",
        "",
        *(line for enum in _ENUMS for line in _enum_section(enum)),
    ])  # fmt: skip


def _table_section(table: type[Table]) -> Iterator[str]:
    yield f"## {table.__name__}\n"
    yield f"{_doc(table)}\n"
    yield from _rows(
        ("column", "type", "unit", "may be missing", "meaning"),
        (
            (f"`{c.name}`", c.dtype, c.unit, "yes" if c.nullable else "", c.meaning)
            for c in table.columns()
        ),
    )


def _enum_section(enum: type[IntEnum]) -> Iterator[str]:
    yield f"**{enum.__name__}**: {_doc(enum)}\n"
    yield ", ".join(f"{member.value} {member.name}" for member in enum) + "\n"


def exports() -> str:
    """Return the page of exports: the trace for Perfetto, the tables of SQLite and Parquet."""
    return "\n".join([
        _head("Exports"),
        _EXPORTS,
        *(f"- `{name}`: {_VIEW_MEANINGS[name]}" for name in sqlite_export.VIEWS),
        "",
        "## Tables",
        "",
        *(line for table in table_declarations.ALL for line in _export_section(table)),
        "The numbers of `kind`, `work` and `category` are in the table `codes`, and in the",
        "[data model](data-model.md#codes).",
    ])  # fmt: skip


_VIEW_MEANINGS = {
    "operations_in_words": "GPU operations with kind, work, name, grid and block",
    "calls_in_words": "runtime and driver calls with kind and name",
    "events_in_words": "host events with category and name",
}

_EXPORTS = """\
`trace-analyzer export RUN --to perfetto|sqlite|parquet -o OUT` writes all events of a run, and what
was computed of them.

## Perfetto

`--to perfetto -o run.json.gz` is one Chrome trace of all ranks; open it in ui.perfetto.dev (the file
stays on your machine). A rank is one process, with these tracks:

- `steps`, and `partition`: compute, exposed comm, exposed copy, idle; idle time holds what it is made of;
- `findings`, and `matched collectives`, each divided into wait and transfer;
- streams of the GPU, and what was recorded of synchronisation;
- threads of the host with operators, ranges, Python frames and CUDA calls. Arrows lead from a call to
  what it launched.

All ranks are on one clock: by their clock bases, moved by what the ends of matched collectives tell.
A rank is moved by a constant, so that durations stay exact to the nanosecond; where clocks drift, the
constant is right in the middle of the window. Slices of one stream or thread that overlap in part get a
second track, because viewers drop or cut them. Process and thread ids count up, because ranks of
several hosts share ids; the real ones are in the names.

`trace-analyzer analyze run.json.gz` reads the file again and gives the same numbers: partition,
steps, collectives, kernels. All ranks are in the one file; `export --ranks 3` makes a file of one.
What lies beside a recording is not in it: unprofiled step times, NCCL logs, environments. Where
a run was recorded by torch.profiler and by nsys, the former is exported.

## SQLite and Parquet

`--to sqlite -o run.db` is one database; `--to parquet -o FOLDER` is a folder with one file a table and
needs `pip install 'trace-analyzer[parquet]'`. Both hold the same tables and columns. `rank` and `id` name
a row; columns such as `launch` or `collective` hold the `id` of a row of the same rank.

- Times are nanoseconds on the rank's own clock. `ranks.to_common_ns` is what to add to have all ranks
  on one clock.
- A missing value is NULL, never -1 or 0.
- Columns of type `name` are text in Parquet; in SQLite they are the `id` of a row of `names`.
- `bool` is 0 or 1 in SQLite. Lists are JSON.
- The meaning of every column is in the schema (`.schema` in SQLite, field metadata in Parquet) and in
  the table `table_columns`.

    sqlite3 run.db "select name, sum(duration_ns) / 1e6 as ms from operations_in_words
                    where work = 'COMM' group by name order by ms desc"

Views of the database have names and codes in words, and `common_start_ns` on the clock of all ranks:
"""


def _export_section(table: ExportTable) -> Iterator[str]:
    yield f"### {table.name}\n"
    yield f"{table.meaning}\n"
    yield from _rows(
        ("column", "type", "unit", "may be NULL", "meaning"),
        (
            (f"`{c.name}`", c.dtype, c.unit, "yes" if c.nullable else "", c.meaning)
            for c in table.columns
        ),
    )


def rule_catalogue() -> str:
    """Return the page of the rule catalogue: every code with its sections."""
    found = sections.entries()
    lines = [
        _head("Rules and data warnings"),
        "What `trace-analyzer explain CODE` prints. A *fault* is something wrong, an *opportunity*",
        "something that would gain although nothing is broken; a *warning* is about the data.",
        "*Experimental* rules are those of which no recorded run has shown what the cause costs; they never lead a report.",
        "",
        *_rows(
            ("code", "name", "kind", "status", "finds"),
            (
                (
                    f"[{item.code}](#{item.code.lower()}-{item.name})",
                    item.name,
                    item.kind,
                    item.status,
                    item.first_sentence,
                )
                for item in found
            ),
        ),
    ]
    for item in found:
        lines += [f"## {item.code} {item.name}", ""]
        for title, body in item.sections.items():
            lines += [f"**{title}.** {' '.join(body.split())}", ""]
        if item.needs:
            lines += [f"**Needs.** {item.needs[0].upper()}{item.needs[1:]}.", ""]
    return "\n".join(lines)


def report_schema() -> str:
    """Return the page of the JSON report's fields."""
    return _document_page(
        findings.json_schema(),
        "Report",
        "JSON report",
        "What `trace-analyzer analyze RUN --json F` writes: one `Report` object. The JSON Schema is\n"
        "in the package, `trace_analyzer/data/schemas/report.schema.json`.",
    )


def scaling_schema() -> str:
    """Return the page of the fields of `scaling --json`."""
    return _document_page(
        scaling_document.schema(),
        "ScalingReport",
        "JSON of scaling",
        "What `trace-analyzer scaling T1 TN --json F` writes: one `ScalingReport` object. The JSON\n"
        "Schema is in the package, `trace_analyzer/data/schemas/scaling.schema.json`.",
    )


def comparison_schema() -> str:
    """Return the page of the fields of `compare --json`."""
    return _document_page(
        comparison_document.schema(),
        "ComparisonReport",
        "JSON of compare",
        "What `trace-analyzer compare BASE SLOW --json F` writes: one `ComparisonReport` object. The\n"
        "JSON Schema is in the package, `trace_analyzer/data/schemas/compare.schema.json`.",
    )


def _document_page(schema: Mapping[str, Any], first: str, title: str, about: str) -> str:
    definitions = schema["$defs"]
    names = [first, *(name for name in definitions if name != first)]
    lines = [
        _head(title),
        about + " The same input gives the",
        "same bytes. `null` is unknown or does not apply, never zero.",
        "",
        f"Schema version {findings.SCHEMA_VERSION}. It may grow until the rule catalogue is complete.",
        "",
    ]
    for name in names:
        definition = definitions[name]
        lines += [f"## {name}", ""]
        if "description" in definition:
            lines += [definition["description"], ""]
        required = set(definition.get("required", ()))
        lines += _rows(
            ("field", "type", "unit", "statistic", "scope", "meaning"),
            (
                _field_row(field, declared, field in required)
                for field, declared in definition["properties"].items()
            ),
        )
    return "\n".join(lines)


def _field_row(field: str, declared: Mapping[str, Any], required: bool) -> tuple[str, ...]:
    numbers = [part for part in walk(declared) if "unit" in part]
    number = numbers[0] if numbers else {}
    return (
        f"`{field}`" + ("" if required else " (optional)"),
        _type(declared),
        number.get("unit", ""),
        number.get("statistic", ""),
        number.get("scope", ""),
        declared["description"],
    )


def walk(declared: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return a JSON Schema and the schemas inside it, definitions elsewhere excepted."""
    yield declared
    for key in ("items", "additionalProperties"):
        if isinstance(declared.get(key), dict):
            yield from walk(declared[key])
    for alternative in declared.get("anyOf", ()):
        yield from walk(alternative)


def _type(declared: Mapping[str, Any]) -> str:
    if "$ref" in declared:
        name = declared["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in declared:
        return " or ".join("null" if v is None else f"`{v}`" for v in declared["enum"])
    if "anyOf" in declared:
        return " or ".join(_type(alternative) for alternative in declared["anyOf"])
    kind = declared.get("type", "any")
    if kind == "array":
        return f"list of {_type(declared.get('items', {}))}"
    if kind == "object" and isinstance(declared.get("additionalProperties"), dict):
        return f"map to {_type(declared['additionalProperties'])}"
    return str(kind) if isinstance(kind, str) else " or ".join(kind)


def command_line() -> str:
    """Return the page of commands and options."""
    root = click.Context(cli, info_name="trace-analyzer")
    lines = [
        _head("Command line"),
        _doc(cli),
        "",
        "Exit codes: 0 done, also with warnings; 1 findings at or above `--fail-on`; 2 wrong usage or",
        "unreadable input; 130 interrupted. Data goes to stdout, everything else to stderr. Every",
        "command has `-h` and `--help`.",
        "",
        *_options(cli),
    ]
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        lines += _command_section(command, click.Context(command, info_name=name, parent=root))
    return "\n".join(lines)


def _command_section(command: click.Command, context: click.Context, level: int = 2) -> list[str]:
    arguments = [_usage(item) for item in command.params if isinstance(item, click.Argument)]
    if isinstance(command, click.Group):
        arguments.append("COMMAND [ARGS]...")
    usage = " ".join([context.command_path, "[OPTIONS]", *arguments])
    lines = [f"{'#' * level} {context.command_path}", "", f"    {usage}", ""]
    lines += [_doc(command), "", *_options(command)]
    if command.epilog:
        lines += [f"`{command.epilog.removeprefix('Example: ')}`", ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            below = click.Context(inner, info_name=name, parent=context)
            lines += _command_section(inner, below, level + 1)
    return lines


def _options(command: click.Command) -> Iterable[str]:
    shown = []
    for option in command.params:
        if not isinstance(option, click.Option) or option.hidden:
            continue
        names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        takes = "" if option.is_flag else f" `{_value(option)}`"
        default = f" Default: `{option.default}`." if option.show_default else ""
        shown.append((names + takes, (option.help or "") + default))
    return _rows(("option", "meaning"), shown)


def _usage(argument: click.Argument) -> str:
    shown = _value(argument) + ("..." if argument.nargs != 1 else "")
    return shown if argument.required else f"[{shown}]"


def _value(parameter: click.Parameter) -> str:
    """Return what stands for a value; click's own wording differs from release to release."""
    if parameter.metavar:
        return parameter.metavar
    if isinstance(parameter.type, click.Choice):
        return "|".join(parameter.type.choices)
    return (parameter.name or "").upper()


def _head(title: str) -> str:
    return f"{_NOTICE}\n\n# {title}\n"


def _doc(thing: object) -> str:
    text = thing.help if isinstance(thing, click.Command) else inspect.getdoc(thing)
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _rows(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    lines = [line(row) for row in rows]
    return [line(head), line("---" for _ in head), *lines, ""] if lines else []


def published_schema() -> str:
    """Return the JSON Schema of the report as it is shipped."""
    return _published(findings.json_schema())


def _published(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, indent=1, ensure_ascii=False)


PAGES: Mapping[str, Callable[[], str]] = {
    "docs/cli.md": command_line,
    "docs/data-model.md": data_model,
    "docs/export.md": exports,
    "docs/report-schema.md": report_schema,
    "docs/rules.md": rule_catalogue,
    "docs/scaling-schema.md": scaling_schema,
    "docs/compare-schema.md": comparison_schema,
    "trace_analyzer/data/schemas/report.schema.json": published_schema,
    "trace_analyzer/data/schemas/scaling.schema.json": lambda: _published(
        scaling_document.schema()
    ),
    "trace_analyzer/data/schemas/compare.schema.json": lambda: _published(
        comparison_document.schema()
    ),
}


def main() -> int:
    """Write or check the pages; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, name what is stale")
    check = parser.parse_args().check
    stale = []
    for name, page in PAGES.items():
        path, text = ROOT / name, page().rstrip("\n") + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
    if check and stale:
        sys.stderr.write(f"stale: {', '.join(stale)}; run python docs/generate.py\n")
        return 1
    for name in stale:
        sys.stdout.write(f"wrote {name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
