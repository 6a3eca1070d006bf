"""From a run to its report: runs the analyses and fills the document. Formats nothing."""

from trace_analyzer.assembly.options import Options
from trace_analyzer.assembly.report import build_report
from trace_analyzer.assembly.timeline import build_timeline

__all__ = ["Options", "build_report", "build_timeline"]
