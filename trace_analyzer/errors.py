"""The errors that the command line turns into one line and exit code 2."""

from __future__ import annotations

from pathlib import Path


class TraceAnalyzerError(Exception):
    """Base of every error that a user can cause and mend.

    `str(error)` is one line: what is wrong, and what to do next.
    """


class UnreadableInputError(TraceAnalyzerError):
    """A file or folder from which nothing can be analysed."""

    def __init__(
        self, path: Path | str, problem: str, hint: str = "", rank: int | None = None
    ) -> None:
        self.path = str(path)
        self.problem = problem
        self.hint = hint
        self.rank = rank
        where = self.path if rank is None else f"{self.path} (rank {rank})"
        super().__init__(f"{where}: {problem}" + (f"; {hint}" if hint else ""))


class SeveralRunsError(UnreadableInputError):
    """A folder that holds more than one run, where one was expected."""


class SchemaError(TraceAnalyzerError):
    """A table that breaks its declared columns: a defect of a reader, not of the data."""
