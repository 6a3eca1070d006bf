"""Where on the timeline a finding is to be seen."""

from __future__ import annotations

from trace_analyzer.findings import Finding, Range


def ranges_of(finding: Finding) -> list[Range]:
    """Return where to look for a finding: its own ranges, then those of its evidence, each once."""
    ranges = [*finding.ranges, *(one for part in finding.evidence for one in part.ranges)]
    return list(dict.fromkeys(ranges))
