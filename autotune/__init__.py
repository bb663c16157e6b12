"""autotune: the fastest configuration that trains a model inside a GPU memory budget, proven by a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.applying import apply, optimizer

__version__ = "0.1.0"
__all__ = ["__version__", "apply", "optimizer"]


def __getattr__(name: str) -> Any:
    # Loaded when it is asked for: the command line starts without pydantic.
    if name in ("apply", "optimizer"):
        from autotune import applying

        return getattr(applying, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
