"""What DeepSpeed needs to compile its operators, and libaio for NVMe."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import shutil
from pathlib import Path

from autotune.cli.doctor.check import Check


def building_checks(*, with_gpu: bool) -> list[Check]:
    """Compilers, ninja, libaio.

    Args:
        with_gpu: whether CUDA's compiler matters.
    """
    checks = [
        _tool(
            "c++ compiler",
            next(filter(None, (shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++"))), None),
            "apt install g++ (Debian, Ubuntu): without it no configuration with offload is tried",
        ),
        _tool(
            "ninja",
            shutil.which("ninja") or _package("ninja"),
            "pip install ninja: without it no configuration with offload is tried",
        ),
    ]
    if with_gpu:
        checks.append(
            _tool(
                "cuda compiler",
                _nvcc(),
                "install the CUDA toolkit or set CUDA_HOME: torch's AdamW is used instead",
            )
        )
    checks.append(
        _tool(
            "libaio",
            ctypes.util.find_library("aio") if _aio_header() else None,
            "only for --nvme-path: apt install libaio-dev or dnf install libaio-devel",
        )
    )
    return checks


def _tool(name: str, found: str | None, hint: str) -> Check:
    return Check(name, "ok", found) if found else Check(name, "warn", "not found", hint)


def _package(name: str) -> str | None:
    return "the Python package" if importlib.util.find_spec(name) else None


def _nvcc() -> str | None:
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    inside = [str(Path(home) / "bin" / "nvcc") for home in homes if home]
    return shutil.which("nvcc") or next((path for path in inside if Path(path).exists()), None)


def _aio_header() -> bool:
    folders = [*os.environ.get("CPATH", "").split(os.pathsep), "/usr/include", "/usr/local/include"]
    return any((Path(folder) / "libaio.h").exists() for folder in folders if folder)
