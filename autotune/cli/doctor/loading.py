"""Whether the libraries really load together and the GPU really computes, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from autotune.cli.doctor.check import Check
from trials.wire import Device

LOADING_TIMEOUT_SECONDS = 300.0

LOAD = "import torch, transformers, deepspeed, peft, accelerate\n"
COMPUTE = """
a = torch.ones(64, 64, device="cuda")
assert float((a @ a).sum()) == 64.0 ** 3
"""


def loading_check(device: Device) -> Check:
    """Import what a trial imports, and on a GPU multiply two matrices. Takes as long as a trial's start."""
    from autotune.running.environment import trial_environment

    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-c", LOAD + (COMPUTE if device == "cuda" else "")],
            env=trial_environment(device, os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LOADING_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        found = f"not done after {LOADING_TIMEOUT_SECONDS:.0f} s"
        return Check("loading", "fail", found, "check the GPU and the disk")
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        return Check("loading", "fail", words[-1][:200], "reinstall the library that the message names")
    what = "libraries load and the GPU computes" if device == "cuda" else "libraries load"
    return Check("loading", "ok", f"{what}, {time.monotonic() - began:.0f} s")
