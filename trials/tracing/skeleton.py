"""Traces what DeepSpeed allocates around a model, without the model's own operations.

DeepSpeed sees of a model its parameters and the order in which their gradients arrive. So the model's
forward is replaced by a chain that hands over a gradient for each parameter in that order; the engine is the
real one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from trials.tracing import labels
from trials.tracing.recorder import Recorder
from trials.tracing.tracer import TRACED_STEPS, Script, Session
from trials.wire import Phase, Point


def skeleton_script(arrivals: Sequence[str], turn: Callable[[Point], Point]) -> Script:
    """The steps of a point whose gradients arrive in this order of parameters' names; none if none do.

    Args:
        arrivals: names of parameters.
        turn: says, once the engine is started, how many micro batches a step has.
    """

    def script(session: Session) -> None:
        if not arrivals:
            return
        recorder = session.recorder
        accumulation = turn(session.spec.point).gradient_accumulation_steps
        named = dict(session.model.named_parameters())
        order = [named[name] for name in arrivals]
        session.model.forward = _chain(recorder, order)
        stepper = session.stepper(session.spec.point.micro_batch_size)
        for index in range(TRACED_STEPS):
            recorder.mark(f"step {index}")
            stepper.step(accumulation)
            labels.relabel_engine(recorder, session.engine)
        session.evaluate(session.spec.point.micro_batch_size)
        recorder.mark(f"phase {Phase.SAVING}")

    return script


class _Arrival(torch.autograd.Function):  # type: ignore[misc]
    """Passes a value on, and in the backward pass makes one parameter's gradient."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, parameter: torch.nn.Parameter) -> torch.Tensor:
        ctx.shape = getattr(parameter, "ds_shape", parameter.shape)
        ctx.dtype = parameter.dtype
        return value.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        return gradient, torch.empty(ctx.shape, dtype=ctx.dtype, device="meta")


def _chain(recorder: Recorder, order: Sequence[torch.nn.Parameter]) -> Any:
    with recorder.unrecorded():
        start = torch.zeros((), device=torch.device("meta"), requires_grad=True)

    def forward(**_: Any) -> Any:
        partitioned = [p for p in order if hasattr(p, "ds_status") and p.ds_status.name == "NOT_AVAILABLE"]
        if partitioned:
            # In a world of one that allocates nothing: the parts are the whole.
            partitioned[0].all_gather_coalesced(partitioned).wait()
        with recorder.unrecorded():
            value = start * 1.0
            for parameter in reversed(order):
                value = _Arrival.apply(value, parameter)
            return SimpleNamespace(loss=value)

    return forward
