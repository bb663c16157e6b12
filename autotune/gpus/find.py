"""Finds a GPU by whatever people call it: `RTX 4090`, `rtx4090`, `NVIDIA GeForce RTX 4090`, `A100 80GB`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from autotune.errors import UsageError
from autotune.gpus.gpu import Gpu
from autotune.gpus.table import list_gpus

_GIB = 2**30
# Said or left out without changing which GPU is meant.
_FILLER = frozenset(
    word
    for words in (
        ("nvidia", "geforce", "rtx", "gtx", "tesla", "gpu", "graphics", "card", "tensor", "core"),
        ("generation", "edition", "hbm2", "hbm2e", "hbm3", "hbm3e", "gddr6", "gddr6x", "gddr7"),
    )
    for word in words
)
# Written together as often as apart; the order matters, since each works on what the ones before it left.
_SPLITS = (
    (re.compile(r"[^a-z0-9]+"), " "),
    (re.compile(r"\b(nvidia|geforce|quadro|tesla)(?=[a-z0-9])"), r"\1 "),
    (re.compile(r"\b(rtx|gtx)(?=[a-z0-9])"), r"\1 "),
    (re.compile(r"\b(titan|pro)(?=[0-9])"), r"\1 "),
    (re.compile(r"\b(\d{4})(?=(?:ti|super|ada|d)(?![0-9]))"), r"\1 "),
    (re.compile(r"\bti(?=super)"), "ti "),
    (re.compile(r"(?<=[a-z0-9])(sxm|pcie|nvl)(?=\d?\b)"), r" \1"),
    (re.compile(r"\bsxm\d\b"), "sxm"),
    (re.compile(r"\b(\d+) ?(?:gb|gib|g)\b"), r"\1gb"),
    (re.compile(r"\bmaxq\b"), "max q"),
)
_OTHER_WAY = "give the memory itself: --gpu-budget 24GB"
_MEMORY_WORD = re.compile(r"\d+gb")


def find_gpu(name: str) -> Gpu:
    """The GPU that a name stands for.

    Case, punctuation, the maker's name and words like "Generation" do not matter; the size of its memory may
    be added. A name that is one GPU's whole name means that one; otherwise it may be a part of exactly one.

    Raises:
        UsageError: if no GPU of the table answers to the name, or several do.
    """
    wanted = _words(name)
    if not wanted:
        raise UsageError(
            f"{name!r} names no GPU", f"name one like 'RTX 4090' or 'A100 80GB', or {_OTHER_WAY}"
        )
    exact = [gpu for gpu in list_gpus() if any(_same(wanted, words, gpu) for words in _names(gpu))]
    found = exact or [
        gpu for gpu in list_gpus() if any(wanted <= words | {_memory_word(gpu)} for words in _names(gpu))
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{name!r} could be several GPUs", f"say which: {_listed(found)}")
    close = _close(wanted)
    hint = f"did you mean {_listed(close)}? Otherwise " if close else ""
    raise UsageError(f"{name!r} is not in the table of GPUs", hint + _OTHER_WAY)


def _words(name: str) -> frozenset[str]:
    text = name.casefold()
    for pattern, replacement in _SPLITS:
        text = pattern.sub(replacement, text)
    return frozenset(text.split()) - _FILLER


def _names(gpu: Gpu) -> list[frozenset[str]]:
    return [_words(name) for name in (gpu.name, *gpu.aliases)]


def _memory_word(gpu: Gpu) -> str:
    return f"{gpu.marketed_memory_bytes // _GIB}gb"


def _same(wanted: frozenset[str], words: frozenset[str], gpu: Gpu) -> bool:
    return wanted in (words, words | {_memory_word(gpu)})


def _listed(gpus: Iterable[Gpu]) -> str:
    return ", ".join(gpu.name for gpu in gpus)


def _close(wanted: frozenset[str]) -> list[Gpu]:
    """Up to three GPUs that share a model number with the name, else those spelt nearly like it."""

    def likeness(gpu: Gpu) -> float:
        words = _words(gpu.name)
        shared = {word for word in wanted & words if not _MEMORY_WORD.fullmatch(word)}
        if not any(character.isdigit() for word in shared for character in word):
            return 0.0
        return len(shared) / len(wanted | words)

    sharing = sorted((gpu for gpu in list_gpus() if likeness(gpu) > 0), key=likeness, reverse=True)
    if sharing:
        return sharing[:3]
    by_text = {" ".join(sorted(_words(gpu.name))): gpu for gpu in list_gpus()}
    return [by_text[text] for text in get_close_matches(" ".join(sorted(wanted)), by_text, n=3, cutoff=0.75)]
