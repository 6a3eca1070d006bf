"""Python runs this at the start of every process of a `collect` command.

It runs the environment's own `sitecustomize` where there is one, then waits for torch: once a
process has imported it, the hook goes in. A process without torch is left alone.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  # pathlib costs start-up


def run_next_sitecustomize() -> None:
    """Run the `sitecustomize` that this one hides."""
    rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as usual, and puts the hook in when its import is complete."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            leave_trail("no-torch")
            return None
        loader = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            install_hook()

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def leave_trail(word: str) -> None:
    """Add a word to the file that tells how far the processes of the command came."""
    path = os.environ.get("TRACE_ANALYZER_TRAIL")
    if path:
        with contextlib.suppress(OSError), open(path, "a", encoding="ascii") as stream:  # noqa: PTH123
            stream.write(word + "\n")


def install_hook() -> None:
    """Import the package that started us, and let it watch. Training goes on in any case."""
    try:
        root = json.loads(os.environ["TRACE_ANALYZER_COLLECT"])["package_root"]
        if importlib.util.find_spec("trace_analyzer") is None and root:
            sys.path.append(root)
        from trace_analyzer.collectors import hook

        hook.install()
    except Exception as error:  # noqa: BLE001
        print(f"trace-analyzer: this process is not recorded: {error}", file=sys.stderr)  # noqa: T201


def go_under_nsys() -> None:
    """Start this rank once more under nsys, where every rank is to have a report of its own."""
    prefix = os.environ.pop("TRACE_ANALYZER_NSYS_PREFIX", "")
    if prefix:
        command = [*json.loads(prefix), sys.executable, *sys.orig_argv[1:]]
        os.execv(command[0], command)  # noqa: S606  # nsys and this very program


if os.environ.get("TRACE_ANALYZER_COLLECT"):
    leave_trail("python")
    if "RANK" in os.environ:
        go_under_nsys()
    sys.meta_path.insert(0, AfterTorch())
run_next_sitecustomize()
