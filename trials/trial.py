"""One trial from start to end, in a process of its own: load, start, steps; for a winner more."""

from __future__ import annotations

import gc
import shutil
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trials.adapters import add_adapters, resolved_targets, trainable
from trials.batches import SyntheticBatches
from trials.checkpointing import set_checkpoint_fraction
from trials.device_memory import (
    CpuMemory,
    CudaMemory,
    DeviceMemory,
    peak_resident_bytes,
    restart_peak_resident,
)
from trials.ds_config import batch_config, deepspeed_config
from trials.engine import partitioning_sink, start_distributed, start_engine
from trials.evaluation import evaluate
from trials.failures import classify, forget_frames
from trials.live_engine import LiveEngine, Started
from trials.measuring import Measurement, Stepper
from trials.model_build import build_model, empty_model
from trials.versions import library_versions
from trials.wire import Outcome, Phase, TrialResult, TrialSpec

# Saving writes weights and optimizer state; beyond this it would only test the disk.
MAX_SAVED_BYTES = 20 << 30

Report = Callable[[dict[str, Any]], None]


class Trial:
    """Runs one specification and turns whatever happens into a result.

    Args:
        spec: what to run.
        rank: of this process.
        report: told what happens.
        began: monotonic time at which it was asked for.
        started: an engine of its build that has measured other points; None starts one.

    Attributes:
        started: the engine and what belongs to it, once there is one.
        engine_survives: whether it ended in a way that leaves the engine as good as before.
    """

    def __init__(
        self, spec: TrialSpec, rank: int, report: Report, began: float, started: Started | None = None
    ) -> None:
        self.started = started
        self.engine_survives = False
        self._reused = started is not None
        self._spec = spec
        self._rank = rank
        self._report = report
        self._began = began
        self._phase = Phase.LOAD
        self._stepper: Stepper | None = None
        self._peaks: dict[Phase, int] = {}
        self._facts: dict[str, Any] = {}
        self._memory: DeviceMemory | None = None
        self._measurement: Measurement | None = None

    def run(self) -> TrialResult:
        """The trial's result; never raises for what the trial does."""
        try:
            if self.started is None:
                self.started = self._start()
            else:
                self._resume(self.started)
            self._measure(self.started)
        except Exception as error:
            return self._failed(error)
        assert self._measurement is not None and self._memory is not None
        self.engine_survives = True
        budget, held = self._spec.budget_bytes, self._memory.device_bytes()
        if budget is not None and held > budget:
            # The cap holds the allocator alone: what lies outside it was larger than expected.
            return self._result(
                Outcome.OOM, f"held {held:,} bytes of the {budget:,} allowed", short_bytes=held - budget
            )
        return self._result(Outcome.STOPPED if self._measurement.stopped else Outcome.OK, "")

    def _start(self) -> Started:
        """Load the model and start its engine."""
        spec = self._spec
        _import_libraries(spec)
        self._memory = CudaMemory(self._rank) if spec.device == "cuda" else CpuMemory()
        device = torch.device("cuda", self._rank) if spec.device == "cuda" else torch.device("cpu")
        self._enter(Phase.LOAD)
        torch.manual_seed(spec.seed)
        if spec.device == "cuda":
            torch.set_float32_matmul_precision("high")
            self._facts["tf32"] = torch.cuda.get_device_capability(self._rank) >= (8, 0)
        start_distributed(spec.device, self._rank, spec.processes, Path(spec.work_dir) / "process-group")
        self._memory.limit(spec.budget_bytes, spec.outside_allocator_bytes)
        model, parameters, config = self._load(device)
        self._keep_peak()
        self._enter(Phase.START)
        engine = start_engine(model, spec.point, parameters, config)
        self._memory.synchronize()
        self._keep_peak()
        self._facts["setup_seconds"] = time.monotonic() - self._began
        return Started(
            engine=LiveEngine(engine, model, self._memory, spec.device, spec.processes),
            memory=self._memory,
            device=device,
            facts=dict(self._facts),
            setup_peaks=dict(self._peaks),
            host_peak_bytes=peak_resident_bytes(),
        )

    def _resume(self, started: Started) -> None:
        """Take over an engine for another point; memory is counted anew, under this point's own limits."""
        spec, memory = self._spec, started.memory
        self._memory = memory
        memory.begin_point()
        restart_peak_resident()
        memory.limit(spec.budget_bytes, spec.outside_allocator_bytes)
        started.engine.adapt(spec.point)
        self._facts = {
            **started.facts,
            "ds_config": {**started.facts["ds_config"], **batch_config(spec.point, spec.processes)},
            "setup_seconds": time.monotonic() - self._began,
        }

    def _measure(self, started: Started) -> None:
        spec, engine, model = self._spec, started.engine.engine, started.engine.model
        vocabulary = model.get_input_embeddings().num_embeddings
        # Each process trains on tokens of its own.
        batches = SyntheticBatches(vocabulary, spec.seq_len, started.device, spec.seed + self._rank)
        self._enter(Phase.FIRST_STEP)
        self._stepper = Stepper(engine, spec, batches, started.memory, self._report, reused=self._reused)
        self._measurement = self._stepper.measure()
        self._phase = Phase.LATER_STEP
        self._peaks.update(self._measurement.phase_peaks)
        if spec.confirm:
            self._confirm(engine, model, batches)

    def _load(self, device: torch.device) -> tuple[Any, list[torch.nn.Parameter], dict[str, Any]]:
        spec = self._spec
        sink = None
        if spec.point.offload.endswith("+parameters"):
            # The partitioned build needs DeepSpeed's configuration before there is anything to count.
            shape = empty_model(spec.model, spec.point)
            sink = partitioning_sink(
                spec.point, self._config(sum(p.numel() for p in shape.parameters()), shape)
            )
        model = build_model(spec.model, spec.point, device=device, sink=sink)
        self._facts["total_parameters"] = _count(model.parameters())
        if spec.point.lora_rank:
            model = add_adapters(model, spec.point, spec.lora_targets)
            self._facts["lora_targets"] = resolved_targets(model, spec.lora_targets)
        set_checkpoint_fraction(model, spec.point.checkpoint_fraction)
        model.train()
        parameters = trainable(model)
        self._facts["trainable_parameters"] = _count(parameters)
        config = self._config(self._facts["trainable_parameters"], model)
        self._facts["ds_config"] = config
        return model, parameters, config

    def _config(self, trainable_parameters: int, model: Any) -> dict[str, Any]:
        spec = self._spec
        return deepspeed_config(
            spec.point,
            trainable_parameters=trainable_parameters,
            largest_parameter=max(_elements(parameter) for parameter in model.parameters()),
            device=spec.device,
            processes=spec.processes,
            gradient_clipping=spec.gradient_clipping,
            nvme_path=spec.nvme_path,
            torch_adam=spec.torch_adam,
        )

    def _confirm(self, engine: Any, model: Any, batches: SyntheticBatches) -> None:
        """One evaluation pass, one checkpoint, and two steps under no more than what is claimed."""
        assert self._memory is not None and self._stepper is not None
        spec = self._spec
        self._enter(Phase.EVALUATION)
        evaluate(engine, batches.next(spec.point.micro_batch_size), liger_kernel=spec.point.liger_kernel)
        self._keep_peak()
        self._enter(Phase.SAVING)
        self._save(engine, model)
        self._keep_peak()
        if spec.budget_bytes is None or spec.processes > 1:
            # Of several processes one that fails here would leave the others waiting in a collective.
            return
        required = min(spec.budget_bytes, self._memory.required_bytes(max(self._peaks.values())))
        self._enter(Phase.LATER_STEP)
        self._memory.limit(required, self._memory.outside_bytes())
        try:
            for _ in range(2):
                self._stepper.step(min(2, spec.point.gradient_accumulation_steps))
        except Exception as error:
            if classify(error, on_cpu=spec.device == "cpu", limited=True).outcome is not Outcome.OOM:
                raise
            self._report(
                {"event": "note", "text": "needs a little more than its peak: the claim is not verified"}
            )
        else:
            self._facts["required_verified"] = True
            self._facts["required_device_bytes"] = required

    def _save(self, engine: Any, model: Any) -> None:
        spec, folder = self._spec, Path(self._spec.work_dir) / "checkpoint"
        trained = self._facts["trainable_parameters"]
        if spec.point.lora_rank and spec.point.zero_stage < 3:
            if self._rank == 0:
                model.save_pretrained(folder)
        else:
            size = 2 * self._facts["total_parameters"] + 12 * trained
            free = shutil.disk_usage(spec.work_dir).free
            if size > min(MAX_SAVED_BYTES, free // 2):
                self._report({"event": "note", "text": f"a checkpoint of {size >> 30} GiB was not tried"})
                return
            engine.save_checkpoint(str(folder), exclude_frozen_parameters=bool(spec.point.lora_rank))
        if self._rank == 0:
            shutil.rmtree(folder, ignore_errors=True)

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        if self._memory is not None:
            self._memory.restart_peak()
        self._report({"event": "phase", "phase": str(phase)})

    def _keep_peak(self) -> None:
        assert self._memory is not None
        self._peaks[self._phase] = max(self._peaks.get(self._phase, 0), self._memory.peak_allocated_bytes())

    def _failed(self, error: Exception) -> TrialResult:
        stepping = self._phase in (Phase.FIRST_STEP, Phase.LATER_STEP) and self._stepper is not None
        if stepping:
            assert self._stepper is not None
            self._phase = self._stepper.phase
        limited = self._spec.budget_bytes is not None
        failure = classify(error, on_cpu=self._spec.device == "cpu", limited=limited)
        requested, short = failure.requested_bytes, failure.short_bytes
        free = self._memory.free_bytes() if self._memory is not None else None
        # What was freed on the way here may be more than was asked for: then nobody knows any more.
        if short is None and requested is not None and free is not None and requested > free:
            short = requested - free
        if self._memory is not None:
            # What reporting takes beyond the limit is not the configuration's.
            self._memory.close()
            self._memory.limit(None, 0)
        traceback.print_exception(error)
        # Frames hold the tensors that did not fit; what follows must have room to report.
        forget_frames(error)
        gc.collect()
        self.engine_survives = stepping and failure.allocator_refused
        return self._result(failure.outcome, failure.message, requested_bytes=requested, short_bytes=short)

    def _result(
        self,
        outcome: Outcome,
        message: str,
        *,
        requested_bytes: int | None = None,
        short_bytes: int | None = None,
    ) -> TrialResult:
        memory, spec = self._memory, self._spec
        values: dict[str, Any] = dict(self._facts)
        if memory is not None:
            values.update(self._memory_values(memory, outcome))
        timed = self._measurement
        if timed is not None:
            values["losses"] = tuple(timed.losses)
            values["step_seconds"] = tuple(timed.step_seconds)
            values["disturbed"] = timed.disturbed
            if timed.step_seconds and self._stepper is not None:
                middle, low, high = timed.tokens_per_second(self._stepper.tokens_per_step)
                values.update(
                    tokens_per_second=middle, tokens_per_second_low=low, tokens_per_second_high=high
                )
        return TrialResult(
            trial_id=spec.trial_id,
            outcome=outcome,
            phase=self._phase,
            message=message,
            trial_seconds=time.monotonic() - self._began,
            phase_peak_allocated_bytes={str(phase): peak for phase, peak in self._peaks.items()},
            host_peak_bytes=max(peak_resident_bytes(), self.started.host_peak_bytes if self.started else 0),
            build="reused" if self._reused else "fresh",
            oom_requested_bytes=requested_bytes,
            oom_short_bytes=short_bytes,
            versions=library_versions(),
            **values,
        )

    def _memory_values(self, memory: DeviceMemory, outcome: Outcome) -> dict[str, Any]:
        # A reused build was set up in another trial, but it needs what that took.
        setups = self.started.setup_peaks if self.started is not None else self._peaks
        setup = [setups[p] for p in (Phase.LOAD, Phase.START) if p in setups]
        steps = [self._peaks[p] for p in (Phase.FIRST_STEP, Phase.LATER_STEP) if p in self._peaks]
        values: dict[str, Any] = {
            "setup_peak_allocated_bytes": max(setup, default=None),
            "peak_allocated_bytes": max(steps, default=None),
        }
        try:
            values.update(
                peak_reserved_bytes=memory.peak_reserved_bytes(),
                device_bytes=memory.device_bytes(),
                outside_allocator_bytes=memory.outside_bytes(),
                gpu=memory.state(),
            )
            if outcome in (Outcome.OK, Outcome.STOPPED) and "required_device_bytes" not in self._facts:
                required = memory.required_bytes(max([*setup, *self._peaks.values()]))
                # It ran under the budget: rounding up may not say that it needs more.
                values["required_device_bytes"] = min(required, self._spec.budget_bytes or required)
        except RuntimeError:
            # After a device-side error CUDA answers nothing more; what is known already is enough.
            traceback.print_exc()
        memory.close()
        return values


def _import_libraries(spec: TrialSpec) -> None:
    """Everything that is imported before memory counts: on the CPU the budget is beyond the imports."""
    import deepspeed  # noqa: F401
    import transformers

    transformers.logging.set_verbosity_error()
    if spec.point.lora_rank:
        import peft  # noqa: F401
    if spec.point.quantization != "none" or spec.point.optimizer != "adamw":
        import bitsandbytes  # noqa: F401
    if spec.device == "cpu":
        # Threads' stacks are mapped once and then stay: not the configuration's memory.
        torch.ones(256, 256).matmul(torch.ones(256, 256))


def _count(parameters: Any) -> int:
    seen: dict[int, int] = {id(parameter): _elements(parameter) for parameter in parameters}
    return sum(seen.values())


def _elements(parameter: Any) -> int:
    """Elements as the user counts them: of the whole parameter, unpacked, wherever it is kept."""
    state = getattr(parameter, "quant_state", None)
    if state is not None:
        return int(torch.Size(state.shape).numel())
    if hasattr(parameter, "ds_numel"):
        return int(parameter.ds_numel)
    return int(parameter.numel())
