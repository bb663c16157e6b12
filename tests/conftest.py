"""Tests marked `gpu` run where NVML shows a GPU that the installed torch can use, and skipped elsewhere."""

from __future__ import annotations

import pytest

from autotune.running import default_device


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the GPU's tests where there is none."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and default_device() != "cuda":
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU that torch can use"))
