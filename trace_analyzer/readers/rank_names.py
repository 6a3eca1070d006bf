"""Ranks from file and folder names, for traces whose content does not tell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

# Tried in order on the file's name, then on its folders, innermost first.
_PATTERNS = (
    re.compile(r"(?:^|[^a-z])global[-_. ]?rank[-_.= ]{0,2}(\d{1,7})(?!\d)", re.IGNORECASE),
    re.compile(
        r"(?<!local)(?<!local[-_. ])(?<![a-z])rank[-_.= ]{0,2}(\d{1,7})(?!\d)", re.IGNORECASE
    ),
    re.compile(r"(?<![a-z])(?:worker|proc|process)[-_.= ]?(\d{1,7})(?!\d)", re.IGNORECASE),
    re.compile(r"(?:^|[-_.])r(\d{1,5})(?=$|[-_.])", re.IGNORECASE),
)
_DIGITS = re.compile(r"\d+")


def rank_from_name(path: str) -> int | None:
    """Return the rank that a path names (`rank3.json`, `worker-3.trace.json`, `rank_3/x.json`)."""
    parts = PurePosixPath(path).parts
    for part in reversed(parts):
        for pattern in _PATTERNS:
            match = pattern.search(part)
            if match:
                return int(match.group(1))
    return None


def ranks_from_template(paths: Sequence[str]) -> list[int] | None:
    """Return the ranks of files whose paths differ in a single number that counts 0, 1, …, n-1.

    None where they do not: `a_0.json, a_1.json` count, `a_3.json, a_7.json` do not.
    """
    templates = {_DIGITS.sub("#", path) for path in paths}
    if len(paths) < 2 or len(templates) != 1:
        return None
    numbers = [[int(text) for text in _DIGITS.findall(path)] for path in paths]
    varying = [column for column in zip(*numbers, strict=True) if len(set(column)) > 1]
    if len(varying) != 1 or sorted(varying[0]) != list(range(len(paths))):
        return None
    return list(varying[0])
