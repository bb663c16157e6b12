"""Memory before launch: what a configuration allocates, needs and reserves, phase by phase, without a GPU."""

from __future__ import annotations

from autotune.prediction.bound import PointPredictor
from autotune.prediction.errors import PredictionUnavailable
from autotune.prediction.prediction import Prediction, PredictionFailure
from autotune.prediction.predictor import Predictor

__all__ = ["PointPredictor", "Prediction", "PredictionFailure", "PredictionUnavailable", "Predictor"]
