"""The environment variables a trial runs under; the export tells the user the same ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from trials.wire import Device

EXPANDABLE_SEGMENTS = "expandable_segments:True"
# Smaller ones would give back more, and make a step half as slow again: each tensor is mapped anew then.
MMAP_THRESHOLD_BYTES = str(1 << 20)
SPIN_COUNT = "1000"


def trial_environment(device: Device, environment: Mapping[str, str]) -> dict[str, str]:
    """A copy of the environment with what trials need.

    Expandable segments decide what fits, so they are always on; without CUDA's initialisation through NVML
    the pre-warmed process could not be forked; on the CPU no library may find a GPU.
    """
    result = dict(environment)
    result.update(
        PYTORCH_CUDA_ALLOC_CONF=EXPANDABLE_SEGMENTS,
        PYTORCH_NVML_BASED_CUDA_CHECK="1",
        TOKENIZERS_PARALLELISM="false",
        HF_HUB_DISABLE_PROGRESS_BARS="1",
        TRANSFORMERS_NO_ADVISORY_WARNINGS="1",
        PYTHONUNBUFFERED="1",
        # numpy's threads would make the process that is forked a threaded one.
        OPENBLAS_NUM_THREADS="1",
    )
    # torch 2.11 prefers this name where both are set.
    result.pop("PYTORCH_ALLOC_CONF", None)
    if device == "cpu":
        result.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
        # Spinning OpenMP threads make a step up to forty times slower as soon as one other process computes,
        # and ones that sleep at once make it a third slower where none does.
        if "OMP_WAIT_POLICY" not in result:
            result.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
        # glibc keeps ever larger freed blocks for itself, which would count as memory of whatever is measured
        # next: with a threshold that it may not raise, freed tensors are given back.
        result.setdefault("MALLOC_MMAP_THRESHOLD_", MMAP_THRESHOLD_BYTES)
        # oneDNN keeps some hundred kilobytes for each operation and shape it has seen, a thousand of them.
        result.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "40")
    # Two ninjas build anew what the other has built: it is this environment's, activated or not.
    programs = Path(sys.executable).parent
    if (programs / "ninja").exists():
        parts = [str(programs), *result.get("PATH", os.defpath).split(os.pathsep)]
        result["PATH"] = os.pathsep.join(dict.fromkeys(parts))
    # Trials import this project from where it runs now, installed or not.
    root = str(Path(__file__).resolve().parents[2])
    parts = [root, *filter(None, result.get("PYTHONPATH", "").split(os.pathsep))]
    result["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(parts))
    return result
