"""A started DeepSpeed engine that measures one point after another: changed, and put back as it was started.

Micro batch, accumulation and the checkpointed share can be changed on a live engine. What its steps leave
behind cannot stay: gradients, buckets, half-done bookkeeping after an out-of-memory, and optimizer state that
a fresh engine would only create in its first step. All of it is dropped, so that the next point begins where
a fresh engine begins, and its first step is a first step.

Checked with deepspeed 0.19.8, whose attributes are named here.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from trials.checkpointing import set_checkpoint_fraction
from trials.device_memory import DeviceMemory
from trials.wire import Device, Phase, Point

# What may be held beyond an engine's start. On the GPU hardly anything. On the CPU oneDNN keeps some MiB for
# each new shape, which a fresh engine would need for its own shapes too.
LEFT_SHARE: dict[Device, float] = {"cuda": 0.002, "cpu": 0.0}
LEFT_BYTES: dict[Device, int] = {"cuda": 8 << 20, "cpu": 96 << 20}


def why_not_kept(point: Point) -> str | None:
    """Why an engine of this build measures one point only; None where it can measure more."""
    if point.offload.startswith("nvme_"):
        return "its optimizer state is on NVMe, where it cannot be dropped"
    if point.optimizer == "paged_adamw8bit":
        return "paged memory is never given back"
    return None


class LiveEngine:
    """An engine, as it was right after its start.

    Args:
        engine: DeepSpeed's, which has done no step yet.
        model: what it trains.
        memory: of its device.
        device: where it trains.
        processes: data-parallel processes.
    """

    def __init__(
        self, engine: Any, model: nn.Module, memory: DeviceMemory, device: Device, processes: int
    ) -> None:
        self.engine = engine
        self.model: Any = model
        self._memory = memory
        self._device: Device = device
        self._processes = processes
        self._inner: Any = getattr(engine.optimizer, "optimizer", engine.optimizer)
        self._groups = list(self._inner.param_groups)
        self._grouped = [list(group["params"]) for group in self._groups]
        self._states = set(self._inner.state)
        self._with_gradient = {id(master) for master in self._masters() if master.grad is not None}
        self._linked = getattr(engine.optimizer, "_hp_optimizer_states_linked", None)
        self._started_bytes = memory.allocated_bytes()

    def adapt(self, point: Point) -> None:
        """Change it to another point of its build."""
        engine, optimizer = self.engine, self.engine.optimizer
        engine.set_train_micro_batch_size(point.micro_batch_size)
        sequences = point.micro_batch_size * point.gradient_accumulation_steps * self._processes
        engine.set_train_batch_size(sequences)
        engine.tput_timer.batch_size = sequences
        if hasattr(optimizer, "gradient_accumulation_steps"):
            optimizer.gradient_accumulation_steps = point.gradient_accumulation_steps
        set_checkpoint_fraction(self.model, point.checkpoint_fraction)

    def put_back(self) -> bool:
        """Drop what its steps have left.

        Returns:
            Whether no more memory is held than right after the start: else something is left that cannot be
            dropped, and what would be measured next is not to be believed.

        Raises:
            Exception: DeepSpeed's bookkeeping is beyond repair.
        """
        self._put_back_engine()
        optimizer = self.engine.optimizer
        if hasattr(optimizer, "parameter_offload"):
            self._put_back_stage3()
        elif hasattr(optimizer, "bit16_groups"):
            self._put_back_stages_1_and_2()
        self._put_back_masters()
        gc.collect()
        # What is there now stays: the next collection need not look at it.
        gc.freeze()
        self._memory.give_back()
        left = self._memory.allocated_bytes() - self._started_bytes
        print(f"put back: {left:,} bytes beyond the {self._started_bytes:,} after the start", flush=True)
        return left <= max(LEFT_BYTES[self._device], LEFT_SHARE[self._device] * self._started_bytes)

    def _put_back_engine(self) -> None:
        engine = self.engine
        engine.micro_steps = 0
        engine.losses = None
        engine._running_engine_step = False
        for parameter in self.model.parameters():
            parameter.grad = None
            if getattr(parameter, "grad_accum", None) is not None:
                parameter.grad_accum = None
        hooks = getattr(engine.optimizer, "_backward_hook_state", None)
        if hooks is not None:
            hooks.reset_for_new_step()
            hooks.backward_active_depth = 0
            hooks.remaining_grad_acc_hooks = 0

    def _put_back_masters(self) -> None:
        """Gradients and optimizer state of the fp32 parameters that were not there at the start."""
        # A step that failed may have left the optimizer with one group, or with none.
        self._inner.param_groups = self._groups
        for group, parameters in zip(self._groups, self._grouped, strict=True):
            group["params"] = parameters
        for master in self._masters():
            if id(master) not in self._with_gradient:
                master.grad = None
        for master in set(self._inner.state) - self._states:
            del self._inner.state[master]
        if self._linked is False:
            # Its fragments are views of the state.
            self.engine.optimizer._hp_optimizer_states_linked = False
            for parameter in self.model.parameters():
                mapping = getattr(parameter, "_hp_mapping", None)
                if mapping is not None:
                    mapping.optim_fragment = None

    def _masters(self) -> Iterator[Any]:
        for parameters in self._grouped:
            yield from parameters
        optimizer = self.engine.optimizer
        yield from getattr(optimizer, "single_partition_of_fp32_groups", ())
        yield from getattr(optimizer, "fp32_partitioned_groups_flat", ())

    def _put_back_stages_1_and_2(self) -> None:
        optimizer = self.engine.optimizer
        optimizer._wait_for_offload_copies()
        optimizer.zero_grad(set_to_none=True)
        for bucket in optimizer.ipg_buckets.values():
            bucket.clear()
        optimizer._release_ipg_buffers()
        optimizer.extra_large_param_to_reduce.clear()
        optimizer.previous_reduced_grads.clear()
        optimizer.params_already_reduced = [False] * len(optimizer.params_already_reduced)
        optimizer.reset_partition_gradient_structures()
        for gradients in (optimizer.averaged_gradients, optimizer.all_grad_tensors):
            for group in gradients:
                gradients[group] = None
        # Counted up by each micro batch, from -1.
        optimizer.micro_step_id = -1
        if optimizer.cpu_offload:
            optimizer.accumulated_grads_in_cpu.clear()
            optimizer._offload_accumulated_param_ids = set()
            optimizer.reset_cpu_buffers()

    def _put_back_stage3(self) -> None:
        from deepspeed.runtime.zero import parameter_offload

        optimizer = self.engine.optimizer
        optimizer.zero_grad(set_to_none=True)
        for bucket in optimizer.ipg_buckets.values():
            bucket.clear_params()
        optimizer.param_reduce_events.clear()
        for parameter in optimizer.params_already_reduced:
            optimizer.params_already_reduced[parameter] = False
        optimizer.averaged_gradients = {}
        optimizer._offload_boundary_param_ids = set()
        optimizer.norm_for_param_grads = {}
        # The model is on this stack as long as it lives, and above it what a forward pass did not leave.
        del parameter_offload.FWD_MODULE_STACK[1:]
        for module in self.model.modules():
            if "applied_pre_backward_ref_cnt" in module.__dict__:
                module.applied_pre_backward_ref_cnt = 0
        offload = optimizer.parameter_offload
        coordinator = offload.get_param_coordinator()
        coordinator.release_backward_leftovers()
        offload.partition_all_parameters()
        if not coordinator.is_invalid_trace():
            coordinator._invalidate_trace()
        # It remembers by step and for ever which parameters to release: a copy begins with no such memory.
        offload.param_coordinator = copy.copy(coordinator)


@dataclass(frozen=True)
class Started:
    """An engine with what belongs to it, kept from one trial to the next. Sizes in bytes.

    Attributes:
        engine: what is changed and put back.
        memory: of its device.
        device: where batches go.
        facts: what a trial's result says of the build.
        setup_peaks: peak allocated by phase, of loading and starting it.
        host_peak_bytes: largest resident memory until then.
    """

    engine: LiveEngine
    memory: DeviceMemory
    device: torch.device
    facts: dict[str, Any]
    setup_peaks: dict[Phase, int]
    host_peak_bytes: int
