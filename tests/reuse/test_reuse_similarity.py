"""Trust falls with whatever decides memory and speed, and says why."""

from __future__ import annotations

from typing import Any

import pytest
from reuse_samples import GIB, VERSIONS, inputs_of, profile

from autotune.models import list_cards, resolve_model
from autotune.reuse import profile_of, similarity
from autotune.reuse.similarity import LEAST_TRUST


def trust(source: Any, target: Any = None) -> float:
    return similarity(source, target or profile()).trust


def test_the_same_training_is_trusted_wholly() -> None:
    found = similarity(profile(), profile())
    assert found.trust == 1.0
    assert "the same model" in found.why and "the same GPU" in found.why


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"budget_bytes": 40 * GIB}, "40.0 GiB"),
        ({"seq_len": 2048}, "2,048 tokens"),
        ({"method": "any"}, "method any"),
        ({"global_batch": 64}, "global batch of 64"),
        ({"global_batch": None}, "global batch"),
        ({"gpus": 2}, "2 GPUs"),
        ({"lora_targets": ("q_proj",)}, "other modules"),
        ({"gpu_name": "NVIDIA GeForce RTX 4090"}, "4090"),
        ({"gpu_name": "a card of the future"}, "future"),
        ({"versions": VERSIONS | {"deepspeed": "0.20.1"}}, "deepspeed 0.20.1"),
    ],
)
def test_each_difference_costs_trust_and_is_named(values: dict[str, Any], word: str) -> None:
    found = similarity(profile(**values), profile())
    assert LEAST_TRUST < found.trust < 1.0
    assert word in found.why


def test_another_budget_or_length_of_the_same_model_is_nearer_than_another_model() -> None:
    other = trust(profile("qwen2.5-0.5b"))
    assert trust(profile(budget_bytes=40 * GIB)) > other
    assert trust(profile(seq_len=2048)) > other


def test_nearer_models_are_trusted_more() -> None:
    same_family, other_family, other_build = (
        trust(profile(name)) for name in ("qwen2.5-3b", "llama3.2-3b", "gpt2-xl")
    )
    assert 1 > same_family > other_family > other_build
    near, far = trust(profile("qwen2.5-0.5b")), trust(profile("qwen2.5-72b"))
    assert near > far


def test_nothing_carries_over_between_cpu_and_gpu() -> None:
    found = similarity(profile(device="cpu", gpu_name=None), profile())
    assert found.trust == 0.0 and "CPU" in found.why


def test_a_gpu_with_another_balance_is_trusted_less() -> None:
    """Operations per byte: an H200 206, an H100 SXM 295, an RTX 4090 164."""
    h100, ada = (
        trust(profile(gpu_name=name)) for name in ("NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090")
    )
    unknown = trust(profile(gpu_name="a card of the future"))
    assert unknown < h100 < 1 and unknown < ada < 1


def test_patches_do_not_matter_and_unknown_versions_neither() -> None:
    assert trust(profile(versions=VERSIONS | {"torch": "2.11.3"})) == 1.0
    assert trust(profile(versions={})) == 1.0


def test_fewer_processors_matter_on_the_cpu_alone() -> None:
    on_cpu: dict[str, Any] = {"device": "cpu", "gpu_name": None}
    assert trust(profile(cpus=2)) == 1.0
    assert trust(profile(cpus=2, **on_cpu), profile(cpus=4, **on_cpu)) < 1.0
    assert trust(profile(cpus=None, **on_cpu), profile(cpus=4, **on_cpu)) == 1.0


def test_similarity_is_mutual() -> None:
    names = ("qwen2.5-0.5b", "qwen2.5-7b", "llama3.1-8b", "gpt2", "mixtral-8x7b")
    for one in names:
        for other in names:
            assert trust(profile(one), profile(other)) == pytest.approx(trust(profile(other), profile(one)))


def test_every_shipped_model_has_about_the_parameters_that_were_published() -> None:
    """Norms, biases and learned positions are left out, and an expert's count is the published total."""
    for card in list_cards():
        found = profile_of(inputs_of(), resolve_model(card.name), None)
        assert found.parameters == pytest.approx(card.parameters, rel=0.12), card.name
