"""The library versions that prediction was checked with.

What a trial allocates is decided inside these libraries: DeepSpeed's engines and their buffers, transformers'
modelling code, peft's adapters, bitsandbytes' quantised layers, liger-kernel's chunks, torch's allocator.
Each version listed was compared with measurements on a GPU; others may well be right, but nobody has looked.
"""

from __future__ import annotations

from collections.abc import Mapping

from packaging.version import InvalidVersion, Version

CHECKED: dict[str, tuple[str, ...]] = {
    "torch": ("2.11.0", "2.13.0"),
    "transformers": ("5.17.0",),
    "deepspeed": ("0.19.8",),
    "peft": ("0.21.2",),
    "bitsandbytes": ("0.50.2",),
    "liger-kernel": ("0.8.5",),
}
VALIDATE_COMMAND = "autotune doctor --validate"


def is_checked(library: str, installed: str) -> bool:
    """Whether prediction was checked with this version; local parts such as `+cu130` do not matter."""
    try:
        return Version(installed).public in CHECKED[library]
    except InvalidVersion:
        return False


def unchecked(installed: Mapping[str, str]) -> dict[str, str]:
    """Of the installed versions, those of a checked library that prediction was not checked with."""
    return {
        library: installed[library]
        for library in CHECKED
        if library in installed and not is_checked(library, installed[library])
    }


def version_warning(installed: Mapping[str, str]) -> str:
    """One sentence on the versions that prediction was not checked with; empty where there are none.

    Args:
        installed: versions by distribution name, as `trials.versions.library_versions` finds them.
    """
    odd = unchecked(installed)
    if not odd:
        return ""
    checked = _listed([f"{library} {' or '.join(CHECKED[library])}" for library in odd])
    found = next(iter(odd.values())) if len(odd) == 1 else _listed([f"{k} {v}" for k, v in odd.items()])
    verb = "this is" if len(odd) == 1 else "here are"
    return f"prediction was checked with {checked}, {verb} {found}: validate with {VALIDATE_COMMAND}"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
