"""No secret and no folder reaches a report."""

from __future__ import annotations

import pytest

from trace_analyzer.allowlist import allowed, is_allowed, shown_value


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NCCL_ALGO", True),
        ("CUDA_VISIBLE_DEVICES", True),
        ("PYTORCH_CUDA_ALLOC_CONF", True),
        ("RANK", True),
        ("OMP_NUM_THREADS", True),
        ("TOKENIZERS_PARALLELISM", True),
        ("AWS_SECRET_ACCESS_KEY", False),
        ("NCCL_AUTH_TOKEN", False),
        ("CUDA_API_KEY", False),
        ("HF_TOKEN", False),
        ("HOME", False),
        ("PATH", False),
        ("MASTER_ADDR", False),
        ("XNCCL_ALGO", False),
    ],
)
def test_names(name: str, expected: bool) -> None:
    assert is_allowed(name) is expected


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("/home/me/topo.xml", "topo.xml"),
        ("~/x/y", "y"),
        ("/var/.cache/", ".cache"),
        ("a:/usr/x,b=/opt/q/r", "a:x,b=r"),
        ("-I/home/me/include", "-Iinclude"),
        ("C:\\Users\\me\\x.txt", "x.txt"),
        ("https://me:pw@host/x", "https:x"),
        ("IB,mlx5_0:1", "IB,mlx5_0:1"),
        ("^lo,docker0", "^lo,docker0"),
        ("1/2", "1/2"),
        ("/", "/"),
        ("two\nlines", "two lines"),
        ("x" * 600, "x" * 500 + "…"),
    ],
)
def test_values(value: str, shown: str) -> None:
    assert shown_value(value) == shown


def test_a_whole_environment() -> None:
    environment = {"NCCL_TOPO_FILE": "/home/me/t.xml", "HOME": "/home/me", "NCCL_DEBUG": "INFO"}
    assert allowed(environment) == {"NCCL_DEBUG": "INFO", "NCCL_TOPO_FILE": "t.xml"}
