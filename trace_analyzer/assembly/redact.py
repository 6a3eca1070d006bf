"""Takes out of a report what may not leave a company: hosts, folders, commands, kernel names."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trace_analyzer.findings import KernelDoc, RankDoc, Report, RunDoc, SourceDoc, WarningDoc

# NCCL's kernels and copies are public knowledge and say nothing about the model.
_PUBLIC = ("communication", "memcpy", "memset")


def redact(report: Report) -> Report:
    """Return the report with hosts and files numbered, and kernels named by kind."""
    replace = msgspec.structs.replace
    hosts = host_aliases(report.run.hosts)
    names = kernel_aliases([(row.name, row.category) for row in report.kernels])

    paths = {
        item.path: f"{item.kind} file {number}"
        for number, item in enumerate(report.run.sources, start=1)
    }

    def source(item: SourceDoc) -> SourceDoc:
        return replace(item, path=paths[item.path])

    def rank(item: RankDoc) -> RankDoc:
        return replace(
            item, host=None if item.host is None else hosts.get(item.host, "host"), pid=None
        )

    def kernel(item: KernelDoc) -> KernelDoc:
        return replace(item, name=names.get(item.name, item.name))

    def cleaned(text: str) -> str:
        for private, shown in (*paths.items(), *hosts.items()):
            text = text.replace(private, shown)
        return text

    def warning(item: WarningDoc) -> WarningDoc:
        return replace(item, message=cleaned(item.message), effect=cleaned(item.effect))

    run: RunDoc = replace(
        report.run,
        name="run",
        hosts=sorted(hosts.values()),
        command=None,
        sources=[source(item) for item in report.run.sources],
    )
    return replace(
        report,
        run=run,
        ranks=[rank(item) for item in report.ranks],
        kernels=[kernel(item) for item in report.kernels],
        warnings=[warning(item) for item in report.warnings],
    )


def host_aliases(hosts: Iterable[str | None]) -> dict[str, str]:
    """Return "host0", "host1", … for the hosts of a run, in order of their names."""
    return {host: f"host{number}" for number, host in enumerate(sorted({h for h in hosts if h}))}


def kernel_aliases(rows: list[tuple[str, str]]) -> dict[str, str]:
    """Return stand-ins such as "matmul kernel 3" for (name, category) rows, in their order."""
    aliases: dict[str, str] = {}
    counts: dict[str, int] = {}
    for name, category in rows:
        if category not in _PUBLIC and name not in aliases:
            counts[category] = counts.get(category, 0) + 1
            aliases[name] = f"{category} kernel {counts[category]}"
    return aliases
