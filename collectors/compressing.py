"""Gzip beside the original, without ever losing both."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

GZIP_LEVEL = 5  # a quarter of level 9's time for 3 % more bytes, on traces


def compress(plain: Path) -> Path:
    """Replace a file by its gzip and return that; the plain one stays where it fails (`OSError`)."""
    packed = plain.with_name(plain.name + ".gz")
    partial = plain.with_name(plain.name + ".gz.partial")
    try:
        with plain.open("rb") as source, gzip.open(partial, "wb", GZIP_LEVEL) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        partial.replace(packed)
    finally:
        partial.unlink(missing_ok=True)
    plain.unlink()
    return packed
