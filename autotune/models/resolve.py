"""What `--model` may name, in this order: a folder or config.json, a card or its hub id, any hub id."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from autotune.errors import UsageError
from autotune.models.card import Card, find_card, list_cards
from autotune.models.config import causal_lm_config, config_notes, has_text_part, is_quantized
from autotune.models.hub import fetch_config
from trials.wire import ModelSpec

_HUB_ID = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)?", re.ASCII)
_LONGEST_HUB_ID = 96
_LARGEST_CONFIG_BYTES = 16 * 2**20
_WEIGHT_FILES = ("model*.safetensors", "pytorch_model*.bin")
_NOT_CONFIGS = (".gguf", ".safetensors", ".bin", ".pt", ".pth")
_GIVE_CONFIG = "give a transformers config.json"
_NO_WEIGHTS_HINT = "leave --load-weights out: memory and speed do not depend on the weights' values"


def resolve_model(name: str, *, weights: bool = False) -> ModelSpec:
    """The model that a name stands for: `resolve_with_notes` without the notes."""
    return resolve_with_notes(name, weights=weights)[0]


def resolve_with_notes(name: str, *, weights: bool = False) -> tuple[ModelSpec, tuple[str, ...]]:
    """Finds the model that a name stands for.

    A folder with a config.json, or a config.json, wins over a card, and a card wins over the hub, so that
    shipped models need no network. Of a multimodal model the text part is taken.

    Args:
        name: a folder, a config.json, a card's name, or a hub id; the last two in any case.
        weights: whether `ModelSpec.weights` is to say where the real weights are.

    Returns:
        The model, its configuration holding `model_type`; and what the user should know of what was left
        out of its configuration, one sentence each.

    Raises:
        UsageError: if nothing answers to the name, what answers is no causal language model, or weights are
            asked for where there are none.
    """
    name = name.strip()
    if not name:
        raise UsageError("the name of the model is empty", "`autotune models` lists the shipped cards")
    path = _as_path(name)
    if path is not None and path.is_file():
        return _from_file(name, path, weights=weights)
    if path is not None and path.is_dir() and (path / "config.json").is_file():
        return _from_folder(name, path, weights=weights)
    card = find_card(name)
    if card is not None:
        return _from_card(name, card, weights=weights), ()
    if path is not None and path.is_dir():
        _refuse_folder(name, path)
    if name.startswith((".", "/", "~")) or name.endswith(".json") or "\\" in name or name.count("/") > 1:
        raise UsageError(
            f"there is no file or folder {name!r}", "give a folder with a config.json, or the file"
        )
    if len(name) > _LONGEST_HUB_ID or not _HUB_ID.fullmatch(name):
        raise UsageError(f"{name[:_LONGEST_HUB_ID]!r} names no model", _suggestion(name))
    return _from_hub(name, weights=weights)


def _from_card(name: str, card: Card, *, weights: bool) -> ModelSpec:
    hub_id = next((known for known in card.hub_ids if known.casefold() == name.casefold()), None)
    if weights and card.hub_id is None:
        raise UsageError(f"{card.name} is a shape without published weights", _NO_WEIGHTS_HINT)
    return ModelSpec(
        name=hub_id or card.name,
        config=deepcopy(card.config),
        weights=(hub_id or card.hub_id) if weights else None,
    )


def _from_file(name: str, path: Path, *, weights: bool) -> tuple[ModelSpec, tuple[str, ...]]:
    if path.suffix in _NOT_CONFIGS:
        raise UsageError(f"{name} is a file of weights", "give the folder with its config.json, or that file")
    stored = _read_json(name, path)
    config = causal_lm_config(stored, name)
    if weights:
        raise UsageError(
            f"{name} is a configuration without weights",
            "give the folder that holds the weights, or a hub id",
        )
    return ModelSpec(name=name, config=config, weights=None), config_notes(stored, name)


def _from_folder(name: str, folder: Path, *, weights: bool) -> tuple[ModelSpec, tuple[str, ...]]:
    stored = _read_json(name, folder / "config.json")
    config = causal_lm_config(stored, name)
    if not weights:
        return ModelSpec(name=name, config=config, weights=None), config_notes(stored, name)
    _check_weights(name, stored)
    if not any(any(folder.glob(pattern)) for pattern in _WEIGHT_FILES):
        raise UsageError(
            f"the folder {name} holds no weights (model*.safetensors or pytorch_model*.bin)", _NO_WEIGHTS_HINT
        )
    return ModelSpec(name=name, config=config, weights=str(folder.resolve())), config_notes(stored, name)


def _from_hub(name: str, *, weights: bool) -> tuple[ModelSpec, tuple[str, ...]]:
    try:
        file = fetch_config(name)
    except UsageError as error:
        # A bare name is more often a card misspelt than one of the hub's few models without an owner.
        close = _close_names(name)
        if close:
            raise UsageError(
                error.message, f"did you mean {' or '.join(close)}? Otherwise {error.hint}"
            ) from error
        raise
    stored = _read_json(name, file)
    config = causal_lm_config(stored, name)
    if weights:
        _check_weights(name, stored)
    return ModelSpec(name=name, config=config, weights=name if weights else None), config_notes(stored, name)


def _check_weights(name: str, stored: object) -> None:
    if is_quantized(stored):
        raise UsageError(
            f"the weights of {name} are stored quantized and cannot be tuned as they are",
            f"name the unquantized model, or {_NO_WEIGHTS_HINT}",
        )
    if has_text_part(stored):
        raise UsageError(f"of {name} only the text part is tuned, and that without weights", _NO_WEIGHTS_HINT)


def _refuse_folder(name: str, folder: Path) -> NoReturn:
    if (folder / "adapter_config.json").is_file():
        raise UsageError(
            f"{name} holds a LoRA adapter, not a model", "name the base model it was trained from"
        )
    raise UsageError(f"the folder {name} has no config.json", "give a folder in transformers' form")


def _read_json(name: str, file: Path) -> Any:
    try:
        if file.stat().st_size > _LARGEST_CONFIG_BYTES:
            raise UsageError(f"the configuration of {name} is too large to be one", _GIVE_CONFIG)
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", "check its permissions") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not text", _GIVE_CONFIG) from error
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not valid JSON: {error}", _GIVE_CONFIG) from error


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"it holds {constant}, which JSON has no number for")


def _as_path(name: str) -> Path | None:
    """The name as a path that the operating system would look up; None if it cannot be one."""
    try:
        path = Path(name).expanduser()
        path.stat()
    except (OSError, RuntimeError, ValueError):
        return None
    return path


def _suggestion(name: str) -> str:
    close = _close_names(name)
    question = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{question}`autotune models` lists the shipped cards; a hub id, a folder or a config.json will do"


def _close_names(name: str) -> list[str]:
    spelled = {known.casefold(): known for card in list_cards() for known in (card.name, *card.hub_ids)}
    return [spelled[close] for close in get_close_matches(name.casefold(), spelled, n=3, cutoff=0.7)]
