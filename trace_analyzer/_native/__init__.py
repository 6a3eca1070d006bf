"""Code compiled from C, where this installation has it. Everything works without, but slower.

Each function has a reference in Python, with the same results, which stands in for it. Callers ask
`PROBLEM` first, and then import `trace_analyzer._native.core`.
"""

from __future__ import annotations

from importlib import import_module

INTERFACE = 1  # as in module.c: an editable installation may hold an older build


def _problem() -> str:
    try:
        core = import_module("trace_analyzer._native.core")
    except ModuleNotFoundError:
        return "not built: no C compiler or no Python headers when it was installed"
    except ImportError as error:
        return f"cannot be loaded: {error}"
    if core.INTERFACE != INTERFACE:
        return "built from other sources: install trace-analyzer again"
    return ""


PROBLEM = _problem()
"""Why the extension cannot be used; empty if it can."""
