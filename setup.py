"""Builds the optional extension; everything else about the package stands in pyproject.toml."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("trace_analyzer", "_native")  # from here: setuptools wants relative paths
# Built once, it serves all later CPythons; those without a global lock have no such interface.
LIMITED = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[
        Extension(
            "trace_analyzer._native.core",
            sources=sorted(path.as_posix() for path in FOLDER.glob("*.c")),
            depends=sorted(path.as_posix() for path in FOLDER.glob("*.h")),
            libraries=["m"],
            # Products and sums stay apart, as in Python: results must be the same to the bit.
            extra_compile_args=["-std=c11", "-O2", "-ffp-contract=off"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if LIMITED else [],
            py_limited_api=LIMITED,
            optional=True,  # without a compiler the package works in Python
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {},
)
