"""The installed libraries against the versions that this release was tested with."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from packaging.version import Version

from autotune.cli.doctor.check import Check
from autotune.prediction.checked import CHECKED

# Tested by this release, on the CPU and on an H200. Memory depends on the internals of those that
# prediction was checked with.
TESTED = {
    **{name: CHECKED[name] for name in ("torch", "transformers", "deepspeed", "peft")},
    "accelerate": ("1.15.0",),
    "optuna": ("5.0.0",),
}
OPTIONAL_TESTED = {
    "bitsandbytes": (
        CHECKED["bitsandbytes"],
        "pip install bitsandbytes: without it no NF4, int8 or 8-bit optimizer is tried",
    ),
    "liger-kernel": (
        CHECKED["liger-kernel"],
        "pip install liger-kernel: its fused loss saves much memory on a GPU",
    ),
}


def version_checks() -> list[Check]:
    """One line per library; a required one that is missing fails."""
    checks = [
        Check(
            "python",
            "ok" if sys.version_info >= (3, 11) else "fail",
            platform.python_version(),
            "" if sys.version_info >= (3, 11) else "use Python 3.11 or later",
        )
    ]
    for package, tested in TESTED.items():
        checks.append(
            library_check(package, _installed(package), tested, f"pip install {package}", required=True)
        )
    for package, (tested, hint) in OPTIONAL_TESTED.items():
        checks.append(library_check(package, _installed(package), tested, hint, required=False))
    return checks


def library_check(
    package: str, installed: str | None, tested: tuple[str, ...], hint: str, *, required: bool
) -> Check:
    """One library's line.

    Args:
        package: its name.
        installed: its version; None where it is missing.
        tested: the versions that were tested.
        hint: what to do where it is missing.
        required: whether nothing works without it.
    """
    if installed is None:
        return Check(package, "fail" if required else "warn", "not installed", hint)
    if Version(installed).public in tested:
        return Check(package, "ok", installed)
    return Check(
        package,
        "warn",
        f"{installed}, tested with {' and '.join(tested)}",
        "expect small differences, or pin the tested one",
    )


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
