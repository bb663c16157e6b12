"""`--load-weights`: a trial trains the real weights, plain, quantised and partitioned, not random ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from trial_runs import Trials

from autotune.models import resolve_model
from trials.wire import ModelSpec, Outcome, Point

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SEED, SEQ_LEN, VOCABULARY = 5, 64, 4096


@pytest.fixture(scope="module", params=["tiny-llama", "tiny-qwen2"])
def weights(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    """Saved models, with a head of its own and a tied one; their loss is far from a random model's."""
    from transformers import AutoModelForCausalLM

    from trials.model_build import transformers_config

    name = str(request.param)
    spec, folder = resolve_model(name), tmp_path_factory.mktemp(name)
    torch.manual_seed(1)
    model: Any = AutoModelForCausalLM.from_config(transformers_config(spec), dtype=torch.bfloat16)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(8)
    model.save_pretrained(folder)
    return resolve_model(str(folder), weights=True)


@pytest.fixture(scope="module")
def expected_loss(weights: ModelSpec) -> float:
    """Of the saved model on the trial's first batch, by transformers and torch alone, in fp32."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(weights.weights, dtype=torch.float32)
    generator = torch.Generator().manual_seed(SEED)
    tokens = torch.randint(0, VOCABULARY, (1, SEQ_LEN), generator=generator)
    with torch.no_grad():
        logits = model(input_ids=tokens).logits
    loss = float(torch.nn.functional.cross_entropy(logits[0, :-1], tokens[0, 1:]))
    assert loss > 9, "a loss that random weights could have would show nothing"
    return loss


@pytest.mark.parametrize(
    ("values", "tolerance"),
    [
        ({"precision": "fp32"}, 1e-4),
        ({"zero_stage": 2}, 0.02),
        ({"zero_stage": 3, "precision": "fp32"}, 1e-4),
        ({"zero_stage": 3, "offload": "optimizer+parameters", "precision": "fp32"}, 1e-4),
        ({"zero_stage": 3, "offload": "optimizer+parameters", "lora_rank": 8}, 0.02),
        # The head is not quantised; what comes before it is rounded to 4 bits.
        ({"lora_rank": 8, "quantization": "nf4"}, 0.1),
        ({"lora_rank": 8, "quantization": "int8"}, 0.05),
        ({"lora_rank": 8, "quantization": "nf4", "zero_stage": 3, "offload": "optimizer+parameters"}, 0.1),
    ],
    ids=str,
)
def test_the_first_loss_is_that_of_the_saved_weights(
    offloading_trials: Trials,
    weights: ModelSpec,
    expected_loss: float,
    values: dict[str, Any],
    tolerance: float,
) -> None:
    result = offloading_trials.run(
        Point(**values),
        model=weights,
        seed=SEED,
        seq_len=SEQ_LEN,
        warmup_steps=1,
        min_timed_steps=1,
        max_timed_steps=1,
    )
    assert result.outcome is Outcome.OK, result.message
    assert result.losses[0] == pytest.approx(expected_loss, rel=tolerance)


def test_weights_that_are_not_there_end_the_trial_with_their_name(trials: Trials, tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    result = trials.run(model=resolve_model("tiny-llama").model_copy(update={"weights": missing}))
    assert result.outcome in (Outcome.CRASH, Outcome.INVALID)
    assert "nowhere" in result.message
