"""Traces what a model's own operations allocate, on a copy with few layers.

Decoder layers that are alike allocate alike, so the first, the last, those beside the end of checkpointing
and one of either kind between them say what any number of layers allocates. Markers tell the layers apart, in
the forward pass and in the backward pass; `autotune.prediction.segments` puts them together.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from trials.checkpointing import decoder_layers, set_checkpoint_fraction
from trials.model_build import transformers_config
from trials.tracing.recorder import Recorder
from trials.tracing.tracer import Script, Session
from trials.wire import ModelSpec

# A micro batch and how many layers are recomputed.
Run = tuple[int, int]


def with_layers(model: ModelSpec, count: int) -> ModelSpec:
    """The model with fewer decoder layers."""
    config = copy.deepcopy(model.config)
    name = type(transformers_config(model)).attribute_map.get("num_hidden_layers", "num_hidden_layers")
    inner = config.get("text_config", config)
    inner[name] = count
    if inner.get("layer_types"):
        inner["layer_types"] = inner["layer_types"][:count]
    return model.model_copy(update={"config": config})


def layers_script(runs: Sequence[Run], evaluations: Sequence[int]) -> Script:
    """One optimizer step for each run, then an evaluation pass for each micro batch of `evaluations`."""

    def script(session: Session) -> None:
        recorder = session.recorder
        layers = decoder_layers(session.model)
        with _marked(recorder, layers):
            # What happens once, in a process' first step, is not a layer's.
            _run(session, *runs[0], len(layers), "warm-up")
            for index, (micro_batch_size, recomputed) in enumerate(runs):
                _run(session, micro_batch_size, recomputed, len(layers), f"run {index}")
            for index, micro_batch_size in enumerate(evaluations):
                session.labeller.expect_logits(micro_batch_size * session.spec.seq_len)
                session.labeller.stage = "micro"
                recorder.forget_workspaces()
                recorder.mark(f"evaluate {index}")
                session.evaluate(micro_batch_size)

    return script


def _run(session: Session, micro_batch_size: int, recomputed: int, layers: int, name: str) -> None:
    set_checkpoint_fraction(session.model, recomputed / layers)
    session.engine.set_train_micro_batch_size(micro_batch_size)
    stepper = session.stepper(micro_batch_size)
    session.recorder.forget_workspaces()
    session.recorder.mark(name)
    stepper.step(1)
    session.recorder.mark("run end")


@contextmanager
def _marked(recorder: Recorder, layers: Sequence[torch.nn.Module]) -> Iterator[None]:
    """While inside, the log says where each layer's forward and backward begin."""

    def entering(index: int) -> Any:
        def hook(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            # In the backward pass a layer is entered again to be recomputed.
            if recorder.in_backward:
                return
            recorder.mark(f"layer {index}")
            if index == 0:
                given = args[0] if args else kwargs.get("hidden_states")
                if isinstance(given, torch.Tensor) and given.requires_grad:
                    given.register_hook(lambda _: recorder.mark("back in"))

        return hook

    def leaving(index: int) -> Any:
        def hook(_: Any, __: Any, output: Any) -> None:
            if recorder.in_backward:
                return
            if index == len(layers) - 1:
                recorder.mark("layers end")
            out = output[0] if isinstance(output, tuple) else output
            if out.requires_grad:
                out.register_hook(lambda _: recorder.mark(f"back {index}"))

        return hook

    handles = []
    for index, layer in enumerate(layers):
        handles.append(layer.register_forward_pre_hook(entering(index), with_kwargs=True))
        handles.append(layer.register_forward_hook(leaving(index)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
