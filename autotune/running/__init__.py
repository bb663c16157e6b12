"""Running trials: the pre-warmed process and its wire, and what the machine can do."""

from autotune.running.machine import Machine, default_device, inspect_machine
from autotune.running.ops import needed_ops
from autotune.running.outside import OutsideShare
from autotune.running.probing import machine_rates
from autotune.running.runner import TrialRunner

__all__ = [
    "Machine",
    "OutsideShare",
    "TrialRunner",
    "default_device",
    "inspect_machine",
    "machine_rates",
    "needed_ops",
]
