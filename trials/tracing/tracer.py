"""Performs a trial on `meta` tensors with its own code and DeepSpeed's, and records what it allocates."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from trials.batches import SyntheticBatches
from trials.checkpointing import decoder_layers
from trials.engine import start_engine
from trials.evaluation import evaluate
from trials.measuring import Stepper
from trials.tracing import labels, quantized
from trials.tracing.environment import recording
from trials.tracing.quicker import unhooked
from trials.tracing.recorder import Recorder
from trials.tracing.replacing import replaced
from trials.trial import Trial
from trials.wire import ModelSpec, Phase, Point, TrialSpec

# The first micro batch of a step, one in the middle and the last differ; more of the middle ones do not.
TRACED_ACCUMULATION = 3
# Optimizer state appears in the first step, and its weight is felt in the second.
TRACED_STEPS = 2


@dataclass(frozen=True)
class Trace:
    """What one trial allocates and frees, in order.

    Attributes:
        ids: int32; positive allocates a block, negative frees it, 0 is a marker.
        sizes: int64 bytes; of a marker, the index into `markers`.
        streams: int8; 0 the default stream, larger ones CUDA streams, negative ones host memory.
        kinds: int16, index into `categories`.
        origins: int8; 1 for what the model's own operations allocate, 0 for loading and DeepSpeed.
        handed: int32; for each "grad" marker, the block of the gradient that arrives.
        markers: "phase NAME" where a phase begins, "empty_cache".
        categories: what allocations are for.
        trainable_parameters: elements that receive gradients.
        total_parameters: all elements.
        parameters: names of the trained parameters; "grad" markers count in it.
        layers: what each decoder layer is: equal texts are equal layers.
        layer_prefix: how the names of the layers' parameters begin, before the layer's number.
    """

    ids: Any
    sizes: Any
    streams: Any
    kinds: Any
    origins: Any
    handed: Any
    markers: tuple[str, ...]
    categories: tuple[str, ...]
    trainable_parameters: int
    total_parameters: int
    parameters: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    layer_prefix: str = ""


@dataclass(frozen=True)
class Session:
    """A started engine, and what records it."""

    recorder: Recorder
    spec: TrialSpec
    model: Any
    engine: Any
    parameters: Sequence[torch.nn.Parameter]
    labeller: labels.Labeller
    batches: SyntheticBatches

    def stepper(self, micro_batch_size: int) -> TracedStepper:
        """Steps of this micro batch."""
        point = self.spec.point.model_copy(update={"micro_batch_size": micro_batch_size})
        spec = self.spec.model_copy(update={"point": point})
        self.labeller.expect_logits(micro_batch_size * spec.seq_len)
        stepper = TracedStepper(
            self.recorder, self.labeller, self.engine, spec, self.batches, _NoMemory(), lambda _: None
        )
        stepper._parameters = list(self.parameters)
        return stepper

    def evaluate(self, micro_batch_size: int) -> None:
        """One evaluation pass."""
        self.recorder.mark(f"phase {Phase.EVALUATION}")
        self.recorder.in_model = True
        evaluate(
            self.engine,
            self.batches.next(micro_batch_size),
            liger_kernel=self.spec.point.liger_kernel,
        )
        self.recorder.in_model = False


Script = Callable[[Session], None]
# Given a loaded model's point, the point that goes on from there; see `trials.tracing.forking`.
Turn = Callable[[Point], Point]


class TracedStepper(Stepper):
    """The trial's own stepper; the phases it goes through become markers."""

    def __init__(self, recorder: Recorder, labeller: labels.Labeller, *args: Any) -> None:
        self._recorder = recorder
        self._labeller = labeller
        self._parameters: list[torch.nn.Parameter] = []
        super().__init__(*args)

    @property
    def phase(self) -> Phase:
        return self._phase

    @phase.setter
    def phase(self, value: Phase) -> None:
        recorder = self._recorder
        was_backward = recorder.in_backward
        self._phase = value
        recorder.in_backward = value is Phase.BACKWARD
        recorder.in_model = value in (Phase.FORWARD, Phase.BACKWARD)
        if was_backward and not recorder.in_backward:
            labels.relabel_gradients(recorder, self._parameters)
            labels.relabel_engine(recorder, self._engine)
        self._labeller.stage = "micro"
        recorder.mark(f"phase {value}")


class _NoMemory:
    """Nothing is measured in a trace."""

    def synchronize(self) -> None:
        pass


def trace(
    model: ModelSpec,
    point: Point,
    seq_len: int,
    *,
    lora_targets: tuple[str, ...] | None = None,
    processes: int = 1,
    capability: tuple[int, int] = (9, 0),
    multiprocessors: int = 132,
    gradient_clipping: float = 1.0,
    torch_adam: bool = False,
    load_whole: bool = False,
    script: Script | None = None,
    turn: Turn | None = None,
    held: list[Any] | None = None,
    runs_inside: bool = True,
) -> Trace:
    """Trace one trial; `environment.start_process` must have been called.

    Args:
        model: what to build.
        point: how to train it.
        seq_len: tokens per sequence.
        lora_targets: adapted modules; None for all linear layers except the head.
        processes: data-parallel processes; this one is rank 0.
        capability: the GPU's compute capability.
        multiprocessors: the GPU's streaming multiprocessors (bitsandbytes chooses kernels by it).
        gradient_clipping: largest gradient norm; 0 turns clipping off.
        torch_adam: torch's AdamW where DeepSpeed would compile FusedAdam.
        load_whole: load a quantised base whole and then quantise it, as the measurements in
            `benchmarks/memory` did.
        script: what is done with the started engine; None: the steps of the point, evaluation and saving.
        held: takes what was built, where the process ends with the trace: to take it apart would cost time.
        turn: says, once the model is loaded, which engine settings it is trained with; None: the point's.
        runs_inside: whether the script runs the modules inside the model, and not only its outermost one.

    Raises:
        Exception: whatever the model or a library raises; it cannot be predicted then.
    """
    recorder = Recorder()
    spec = TrialSpec(
        trial_id="trace",
        model=model,
        point=point,
        seq_len=seq_len,
        lora_targets=lora_targets,
        processes=processes,
        gradient_clipping=gradient_clipping,
        torch_adam=torch_adam,
        log_path="",
        work_dir="",
    )
    facts: dict[str, Any] = {}
    try:
        _perform(
            recorder,
            spec,
            capability,
            multiprocessors,
            facts,
            load_whole,
            script or _full_steps,
            turn,
            held,
            runs_inside,
        )
    finally:
        if held is None:
            gc.collect()
    cut = facts["events"]
    return Trace(
        ids=np.asarray(recorder.ids[:cut], dtype=np.int32),
        sizes=np.asarray(recorder.sizes[:cut], dtype=np.int64),
        streams=np.asarray(recorder.streams[:cut], dtype=np.int8),
        kinds=np.asarray(recorder.kinds[:cut], dtype=np.int16),
        origins=np.asarray(recorder.origins[:cut], dtype=np.int8),
        handed=np.asarray(recorder.handed, dtype=np.int32),
        markers=tuple(recorder.markers),
        categories=tuple(recorder.categories),
        trainable_parameters=facts["trainable_parameters"],
        total_parameters=facts["total_parameters"],
        parameters=facts["parameters"],
        layers=facts["layers"],
        layer_prefix=facts["layer_prefix"],
    )


def _perform(
    recorder: Recorder,
    spec: TrialSpec,
    capability: tuple[int, int],
    multiprocessors: int,
    facts: dict[str, Any],
    load_whole: bool,
    script: Script,
    turn: Turn | None,
    held: list[Any] | None,
    runs_inside: bool,
) -> None:
    point = spec.point
    device = torch.device("meta")
    trial = Trial(spec, 0, lambda _: None, 0.0)
    with ExitStack() as stack:
        stack.enter_context(recording(recorder, capability, multiprocessors, liger_kernel=point.liger_kernel))
        if not runs_inside:
            stack.enter_context(replaced(unhooked()))
        if load_whole:
            stack.enter_context(quantized.loaded_whole())
        recorder.mark(f"phase {Phase.LOAD}")
        with recorder.labelled(labels.WEIGHTS):
            model, parameters, config = trial._load(device)
        facts.update(trial._facts)
        labels.relabel_model(recorder, model)
        facts.update(_layer_facts(model, parameters))
        for index, parameter in enumerate(parameters):
            parameter.register_hook(functools.partial(_arrived, recorder, index))
        if turn is not None:
            point = turn(point)
            spec = spec.model_copy(update={"point": point})
            trial._spec = spec
            config = trial._config(facts["trainable_parameters"], model)
        recorder.mark(f"phase {Phase.START}")
        with recorder.labelled(labels.BUCKETS):
            engine = start_engine(model, point, parameters, config)
        labels.relabel_model(recorder, model)
        labels.relabel_engine(recorder, engine)
        vocabulary = model.get_input_embeddings().num_embeddings
        labeller = labels.Labeller(recorder, vocabulary)
        recorder.label = labeller
        recorder.engine_category = recorder.category_index(labels.BUCKETS)
        recorder.category = recorder.category_index(labels.INPUTS)
        stack.enter_context(labeller.following())
        batches = SyntheticBatches(vocabulary, spec.seq_len, device, spec.seed)
        script(Session(recorder, spec, model, engine, parameters, labeller, batches))
        recorder.mark("end")
        # What is freed from here on is the process' end.
        facts["events"] = len(recorder.ids)
        recorder.label = None
        if held is None:
            engine.destroy()
        else:
            held += [engine, model, parameters, batches]


def _full_steps(session: Session) -> None:
    recorder, point = session.recorder, session.spec.point
    stepper = session.stepper(point.micro_batch_size)
    accumulation = min(point.gradient_accumulation_steps, TRACED_ACCUMULATION)
    for index in range(TRACED_STEPS):
        recorder.mark(f"step {index}")
        stepper.step(accumulation)
        labels.relabel_engine(recorder, session.engine)
    session.evaluate(point.micro_batch_size)
    recorder.mark(f"phase {Phase.SAVING}")


def _layer_facts(model: Any, parameters: Sequence[torch.nn.Parameter]) -> dict[str, Any]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    layers = decoder_layers(model)
    prefix = next((name for name, module in model.named_modules() if layers and module is layers[0]), "")
    kinds = getattr(model.config, "layer_types", None) or [""] * len(layers)
    described = []
    for layer, kind in zip(layers, kinds, strict=False):
        shapes = [f"{name}{tuple(getattr(p, 'ds_shape', p.shape))}" for name, p in layer.named_parameters()]
        described.append(" ".join([type(layer).__name__, str(kind), *shapes]))
    return {
        "parameters": tuple(names[id(parameter)] for parameter in parameters),
        "layers": tuple(described),
        "layer_prefix": prefix.removesuffix("0"),
    }


def _arrived(recorder: Recorder, index: int, gradient: torch.Tensor) -> None:
    recorder.hand_over(gradient, index)
