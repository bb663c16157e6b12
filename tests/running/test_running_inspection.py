"""What the trial process says of a model before any trial, and of one that it cannot build."""

from __future__ import annotations

from typing import Any

import pytest
from trial_runs import Trials

from autotune.errors import EnvironmentProblem, UsageError
from autotune.models import resolve_model
from trials.wire import ModelSpec


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"num_attention_heads": 0}, "by zero"),
        ({"hidden_size": -64, "head_dim": 16}, "negative dimension"),
        ({"hidden_act": "nosuch"}, "nosuch"),
        ({"hidden_size": 10**9, "head_dim": 64}, "memory"),
    ],
)
def test_a_configuration_that_cannot_be_built_is_told_with_the_librarys_reason(
    trials: Trials, values: dict[str, Any], reason: str
) -> None:
    tiny = resolve_model("tiny-llama")
    wrong = ModelSpec(name="wrong.json", config={**tiny.config, **values})
    with pytest.raises(EnvironmentProblem, match=f"wrong.json cannot be built: .*{reason}") as refused:
        trials.runner.inspect_model(wrong)
    assert "config.json" in refused.value.hint


@pytest.mark.parametrize(
    ("model", "targets", "missing", "has"),
    [
        (
            "tiny-llama",
            ("nosuch",),
            "nosuch",
            "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj",
        ),
        ("tiny-llama", ("q_proj", "v_porj"), "v_porj", "q_proj, k_proj"),
        ("tiny-gpt2", ("q_proj",), "q_proj", "c_attn, c_proj, c_fc"),
    ],
)
def test_targets_that_the_model_does_not_have_are_refused_with_those_it_has(
    trials: Trials, model: str, targets: tuple[str, ...], missing: str, has: str
) -> None:
    with pytest.raises(UsageError, match=f"no linear layer {missing}: it has {has}"):
        trials.runner.inspect_model(resolve_model(model), targets)


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        ("tiny-llama", ("q_proj", "model.layers.0.mlp.up_proj")),
        ("tiny-llama", ("lm_head",)),
        ("tiny-gpt2", ("c_attn",)),
        ("tiny-moe", ("q_proj", "w1", "w3", "gate")),
    ],
)
def test_targets_that_the_model_has_are_taken(trials: Trials, model: str, targets: tuple[str, ...]) -> None:
    assert trials.runner.inspect_model(resolve_model(model), targets)["refused_targets"] == ""
