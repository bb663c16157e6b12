"""The versions of the libraries a measurement depends on."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

MEASURED_LIBRARIES = (
    "torch",
    "transformers",
    "deepspeed",
    "peft",
    "bitsandbytes",
    "accelerate",
    "liger-kernel",
)


def library_versions() -> dict[str, str]:
    """Installed versions by distribution name; what is not installed is left out."""
    found = {}
    for name in MEASURED_LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
