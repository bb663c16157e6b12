"""The few numbers that physics leaves open, what each means, and how far each is believed.

A coefficient multiplies a time that was computed from sizes and rates: 1 where the computation were right.
Its logarithm has a normal prior, whose mean was fitted on measurements (`python -m benchmarks.search.fit`,
kept in priors.json) and whose spread says by what factor it differs between models and machines.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

import numpy as np
import numpy.typing as npt

Part = Literal["device", "host", "wait", "step"]
Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Coefficient:
    """One open number.

    Attributes:
        name: of the time it multiplies.
        part: where that time falls. Of a micro batch: `device` and `host` run side by side, so the longer
            counts; `wait` comes on top. `step`: once per optimizer step.
        spread: the standard deviation of its logarithm.
        meaning: in words.
    """

    name: str
    part: Part
    spread: float
    meaning: str


COEFFICIENTS = (
    Coefficient("matmul", "device", 0.25, "matrix products of layers and head"),
    Coefficient("attention", "device", 0.4, "attention, which grows with the sequence length"),
    Coefficient("traffic", "device", 0.4, "norms, activations, residuals, adapters: memory read and written"),
    Coefficient("logits", "device", 0.4, "the loss over the vocabulary"),
    Coefficient("nf4", "device", 0.4, "NF4 weights back to 16 bits"),
    Coefficient("int8", "device", 0.5, "int8 products and their scales"),
    Coefficient("launch", "host", 0.35, "launching a layer's operations"),
    Coefficient("liger", "host", 0.4, "launching liger's kernels"),
    Coefficient("adapters", "host", 0.35, "launching LoRA's operations"),
    Coefficient("recompute", "host", 0.3, "launching a layer's forward once more"),
    Coefficient("quantized", "host", 0.4, "launching what quantised layers add"),
    Coefficient("hooks", "host", 0.5, "DeepSpeed's work per gradient, ZeRO-1 and 2"),
    Coefficient("partitioning", "host", 0.5, "ZeRO-3's work per module"),
    Coefficient("loss", "host", 0.5, "embedding, head, loss and the engine, per micro batch"),
    Coefficient("refetch", "wait", 0.4, "offloaded parameters to the device again"),
    Coefficient("gradients_out", "wait", 0.5, "gradients to the host"),
    Coefficient("communication", "wait", 0.6, "between GPUs"),
    Coefficient("step_launch", "step", 0.4, "the optimizer's work per tensor"),
    Coefficient("step_bitsandbytes", "step", 0.4, "what bitsandbytes adds to that"),
    Coefficient("step_memory", "step", 0.4, "optimizer state read and written on the device"),
    Coefficient("cpu_adam", "step", 0.3, "Adam on the host and the parameters' way back"),
    Coefficient("nvme", "step", 0.6, "optimizer state to NVMe and back"),
)
INDEX = {coefficient.name: index for index, coefficient in enumerate(COEFFICIENTS)}
PARTS = np.array([coefficient.part for coefficient in COEFFICIENTS])


@dataclass(frozen=True)
class Prior:
    """What is believed of the logarithms of the coefficients before anything is measured here.

    Attributes:
        mean: one for each coefficient.
        spread: standard deviations.
    """

    mean: Vector
    spread: Vector


def hand_prior() -> Prior:
    """Every computed time is right, to within its spread: what fitting begins from."""
    return Prior(np.zeros(len(COEFFICIENTS)), np.array([one.spread for one in COEFFICIENTS]))


@cache
def shipped_prior(device: str) -> Prior:
    """The fitted means for a kind of device (cuda or cpu)."""
    text = resources.files("autotune.throughput").joinpath("priors.json").read_text(encoding="utf-8")
    return prior_of(json.loads(text)["log_coefficients"].get(device, {}))


def prior_of(means: dict[str, float]) -> Prior:
    """A prior with these means by name; 0 for the others."""
    return Prior(np.array([means.get(one.name, 0.0) for one in COEFFICIENTS]), hand_prior().spread)
