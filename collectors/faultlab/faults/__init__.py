"""The faults, grouped by domain."""

from __future__ import annotations
