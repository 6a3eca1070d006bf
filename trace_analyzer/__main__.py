"""`python -m trace_analyzer` is the `trace-analyzer` program."""

from __future__ import annotations

from trace_analyzer.cli import main

if __name__ == "__main__":
    main()
