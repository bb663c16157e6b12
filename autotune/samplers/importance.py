"""How much each knob decides about throughput, by Optuna's PED-ANOVA over the trials of a study."""

from __future__ import annotations

from collections.abc import Sequence

from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.samplers import RandomSampler
from optuna.trial import TrialState

from autotune.samplers.encoding import Encoding
from autotune.samplers.shadow import shadow_study
from autotune.study.record import Record
from autotune.study.states import verdict

# Optuna advises at least five trials among the good ones; of fewer than this, five are no longer "the best".
LEAST_TRIALS = 15
GOOD_TRIALS = 5
GOOD_SHARE = 0.1


def knob_importances(records: Sequence[Record]) -> dict[str, float]:
    """The share of each knob in what separates the fast trials from the rest, the largest first.

    ZeRO stage and offload are one knob, and an accumulation that follows from the micro batch is none.

    Args:
        records: a study's trials; those with a throughput count.

    Returns:
        Shares that sum to 1, by the knob's fields joined with `+`; empty where fewer than `LEAST_TRIALS`
        have a throughput, or where no knob varies.
    """
    finished = [r for r in records if r.result and verdict(r.result).state == TrialState.COMPLETE]
    encoding = Encoding(record.point for record in finished)
    if len(finished) < LEAST_TRIALS or not encoding.knobs:
        return {}
    study = shadow_study(finished, encoding, RandomSampler())
    evaluator = PedAnovaImportanceEvaluator(target_quantile=max(GOOD_SHARE, GOOD_TRIALS / len(finished)))
    importances: dict[str, float] = get_param_importances(study, evaluator=evaluator)
    return importances
