"""What is predicted of a study, and what a prediction means for a launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from autotune.planning.outlook import Budgets, Outlook
from autotune.tuning.adjusting import least_device_bytes
from trials.wire import ModelSpec

if TYPE_CHECKING:
    from autotune.throughput import Rates, Training

# Closer to the budget than this, a point's own trace decides.
NEAR_SHARE = 0.95
# Figures taken from a neighbour are right to this share.
ESTIMATE_SHARE = 0.9

Verdict = Literal["fits", "near", "device", "host"]
# What is near is looked at closely before it is launched: what it costs to be wrong is that look.
CHANCES: dict[Verdict | None, float] = {"fits": 1.0, "near": 0.9, "device": 0.0, "host": 0.0}


@dataclass(frozen=True)
class Foreseen:
    """What is predicted: for which training, on which machine.

    Attributes:
        model: what is trained.
        seq_len: tokens per sequence.
        lora_targets: adapted modules; None for all linear layers except the head.
        processes: data-parallel processes.
        budgets: of one process.
        rates: the machine's, for the speed.
    """

    model: ModelSpec
    seq_len: int
    lora_targets: tuple[str, ...] | None
    processes: int
    budgets: Budgets
    rates: Rates

    def training(self) -> Training:
        """What is trained, on what, for the speed."""
        from autotune.throughput import Training

        return Training(self.model, self.seq_len, self.rates, self.processes, self.lora_targets)


def verdict_of(outlook: Outlook, budgets: Budgets, *, is_decided: bool) -> Verdict:
    """Whether a point fits, comes so near that its own trace has to decide, or which limit it breaks.

    Args:
        outlook: the point with its prediction for this machine.
        budgets: what there is.
        is_decided: there is no closer look than this prediction.
    """
    budget, prediction = budgets.device_bytes, outlook.prediction
    if outlook.limit == "host" or budget is None:
        return outlook.limit or "fits"
    if outlook.limit == "device":
        # What is allocated is exact in shared traces too; how much more is needed is their estimate.
        least = least_device_bytes(prediction) * (ESTIMATE_SHARE if prediction.estimated else 1.0)
        return "device" if prediction.exact or least > budget else "near"
    near = ESTIMATE_SHARE if prediction.estimated else NEAR_SHARE
    if not (is_decided or prediction.exact) and prediction.required_device_bytes > near * budget:
        return "near"
    return "fits"
