"""LoRA as measured and exported: where it sits, alpha, precision, and what is trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from autotune.models import resolve_model
from trials.adapters import add_adapters, resolved_targets, trainable
from trials.model_build import DTYPES, InvalidPoint, build_model
from trials.wire import ModelSpec, Point, Precision, Quantization

CPU = torch.device("cpu")
# Every linear layer but the head. The experts of a mixture are one tensor; peft adapts them, and the router,
# by the names they had as linear layers.
ALL_LINEAR = {
    "tiny-llama": ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"),
    "tiny-qwen2": ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"),
    "tiny-gpt2": ("c_attn", "c_fc", "c_proj"),
    "tiny-moe": ("gate", "k_proj", "o_proj", "q_proj", "v_proj", "w1", "w2", "w3"),
}
# Of one layer: in + out of each adapted matrix, summed, times the rank; times the layers.
ELEMENTS_PER_RANK = {
    "tiny-llama": 4 * (2 * (256 + 256) + 2 * (256 + 128) + 3 * (256 + 704)),
    "tiny-qwen2": 6 * (2 * (256 + 256) + 2 * (256 + 128) + 3 * (256 + 768)),
    "tiny-gpt2": 4 * ((256 + 768) + (256 + 256) + 2 * (256 + 1024)),
    # Attention, router, and for each of 8 experts w2 and the fused w1 and w3, which get twice the rank.
    "tiny-moe": 4 * (2 * (256 + 256) + 2 * (256 + 128) + (256 + 8) + 8 * ((128 + 256) + 2 * (256 + 256))),
}


def adapted(name: str, targets: Any = None, **values: Any) -> Any:
    point = Point(**{"lora_rank": 8, **values})
    return add_adapters(build_model(resolve_model(name), point, device=CPU), point, targets)


@pytest.mark.parametrize("rank", [8, 64])
@pytest.mark.parametrize("name", ALL_LINEAR)
def test_every_linear_layer_but_the_head_is_adapted(name: str, rank: int) -> None:
    model = adapted(name, lora_rank=rank)
    assert resolved_targets(model, None) == ALL_LINEAR[name]
    assert sum(p.numel() for p in trainable(model)) == rank * ELEMENTS_PER_RANK[name]
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    assert all("lora_A" in n or "lora_B" in n for n in names)
    assert not any("lm_head" in n for n in names)


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("quantization", ["none", "nf4", "int8"])
def test_adapters_are_in_the_compute_precision(precision: Precision, quantization: Quantization) -> None:
    model = adapted("tiny-llama", precision=precision, quantization=quantization)
    assert {p.dtype for p in trainable(model)} == {DTYPES[precision]}


@pytest.mark.parametrize("rank", [8, 16, 128])
def test_alpha_is_twice_the_rank_and_nothing_is_dropped(rank: int) -> None:
    model = adapted("tiny-llama", lora_rank=rank)
    config = model.peft_config["default"]
    assert (config.r, config.lora_alpha, config.lora_dropout, config.bias) == (rank, 2 * rank, 0.0, "none")
    assert model.get_base_model().model.layers[0].self_attn.q_proj.scaling["default"] == 2.0


def test_fresh_adapters_leave_the_model_as_it_is() -> None:
    torch.manual_seed(0)
    base = build_model(resolve_model("tiny-llama"), Point(precision="fp32"), device=CPU).eval()
    tokens = torch.arange(16).reshape(1, 16)
    with torch.no_grad():
        before = base(input_ids=tokens).logits
        after = add_adapters(base, Point(precision="fp32", lora_rank=8), None).eval()(input_ids=tokens).logits
    assert torch.equal(before, after)


def test_the_users_targets_are_the_only_ones() -> None:
    model = adapted("tiny-llama", ("q_proj", "v_proj"))
    assert resolved_targets(model, ("v_proj", "q_proj")) == ("q_proj", "v_proj")
    assert sum(p.numel() for p in trainable(model)) == 8 * 4 * ((256 + 256) + (256 + 128))


def test_a_target_that_the_model_lacks_is_refused_by_name() -> None:
    with pytest.raises(InvalidPoint, match="nosuch_proj"):
        adapted("tiny-llama", ("nosuch_proj",))


def shapes(model: Any) -> dict[str, tuple[int, ...]]:
    return {n: tuple(p.shape) for n, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("targets", [None, ("layers.0.self_attn.q_proj", "o_proj")], ids=["all", "some"])
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-moe"])
def test_resolved_targets_make_the_same_adapters_again(name: str, targets: Any) -> None:
    first = adapted(name, targets)
    again = adapted(name, resolved_targets(first, targets))
    assert shapes(first) == shapes(again)


def test_a_name_that_would_widen_the_choice_is_given_in_full() -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import PretrainedConfig

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = PretrainedConfig()
            self.attention = torch.nn.ModuleDict({"proj": torch.nn.Linear(4, 4)})
            self.image = torch.nn.ModuleDict({"proj": torch.nn.Conv2d(1, 4, 2)})

    config: Any = LoraConfig(r=2, target_modules=["attention.proj"])
    assert resolved_targets(get_peft_model(Model(), config), None) == ("attention.proj",)


def test_tied_weights_stay_tied_and_frozen(tiny: ModelSpec) -> None:
    point = Point(lora_rank=8)
    model = add_adapters(build_model(tiny, point, device=CPU), point, None).get_base_model()
    head, embedding = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    assert (head is embedding) == tiny.config["tie_word_embeddings"]
    assert not head.requires_grad and not embedding.requires_grad
