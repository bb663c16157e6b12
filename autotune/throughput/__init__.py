"""How fast a configuration trains: physics with a few open numbers, which measurements correct."""

from autotune.throughput.belief import Belief, Observation
from autotune.throughput.forecast import predicted_speeds
from autotune.throughput.gain import Remaining
from autotune.throughput.rates import CPU_RATES, H200_RATES, Rates, probed_rates, rates_of
from autotune.throughput.work import Training
from autotune.throughput.worked import Worked

__all__ = [
    "CPU_RATES",
    "H200_RATES",
    "Belief",
    "Observation",
    "Rates",
    "Remaining",
    "Training",
    "Worked",
    "predicted_speeds",
    "probed_rates",
    "rates_of",
]
