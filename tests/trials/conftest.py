from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from autotune.models import resolve_model
from trials.wire import ModelSpec

# Several threads gain nothing on models this small, and lose much where the machine is shared.
torch.set_num_threads(1)

TINY = ("tiny-llama", "tiny-qwen2", "tiny-gpt2", "tiny-moe")


@pytest.fixture(params=TINY)
def tiny(request: pytest.FixtureRequest) -> ModelSpec:
    """Each of the shipped tiny models."""
    return resolve_model(str(request.param))


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModelSpec]:
    """A tiny model's weights saved by transformers, and the model that is to be loaded from there."""
    from transformers import AutoModelForCausalLM

    from trials.model_build import transformers_config

    logging.getLogger("transformers").setLevel(logging.ERROR)
    folders: dict[str, Path] = {}

    def save(name: str) -> ModelSpec:
        spec = resolve_model(name)
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            torch.manual_seed(11)
            model: Any = AutoModelForCausalLM.from_config(transformers_config(spec), dtype=torch.bfloat16)
            model.save_pretrained(folders[name])
        return spec.model_copy(update={"weights": str(folders[name])})

    return save
