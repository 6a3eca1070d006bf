"""Tests that take long: `.ci/extra` runs them, the test command leaves them out."""

from __future__ import annotations

import os

import pytest

heavy = pytest.mark.skipif(
    not os.environ.get("TRACE_ANALYZER_HEAVY"), reason="takes long; TRACE_ANALYZER_HEAVY is not set"
)
