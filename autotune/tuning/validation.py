"""A dozen small real runs on the user's GPU beside what is predicted of them: `autotune doctor --validate`.

Prediction performs what is inside DeepSpeed, transformers, peft and bitsandbytes, so with other versions of
them, or another generation of GPU, it has to be looked at again. The models are small enough for a card of
8 GB and large enough that half a percent is not an allocator's rounding; a run takes a few seconds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import EnvironmentProblem
from autotune.prediction import PredictionFailure
from autotune.tuning.adjusting import adjusted
from autotune.tuning.comparison import Compared, compared, recorded
from autotune.tuning.predicting import capability_of
from trials.wire import ModelSpec, Outcome, Point, TrialResult, TrialSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from autotune.planning.configuration import Configuration
    from autotune.prediction import Prediction, Predictor
    from autotune.running import Machine, OutsideShare, TrialRunner
    from autotune.space import Capabilities

# A peak that is further off than this fails the validation.
MOST_OFF = 0.01
RUN_TIMEOUT_SECONDS = 180.0
FULL_MODEL, FULL_SEQ_LEN = "smollm2-135m", 512
ADAPTED_MODEL, ADAPTED_SEQ_LEN, ADAPTED_LAYERS = "qwen2.5-0.5b", 1024, 8
_FULL: tuple[dict[str, Any], ...] = (
    {"micro_batch_size": 4},
    {"micro_batch_size": 4, "gradient_accumulation_steps": 2, "zero_stage": 1},
    {"micro_batch_size": 4, "gradient_accumulation_steps": 2, "zero_stage": 2, "checkpoint_fraction": 0.5},
    {"micro_batch_size": 2, "gradient_accumulation_steps": 2, "zero_stage": 3},
    {"micro_batch_size": 4, "gradient_accumulation_steps": 2, "zero_stage": 2, "offload": "optimizer"},
    {
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "zero_stage": 3,
        "offload": "optimizer+parameters",
    },
    {"micro_batch_size": 2, "precision": "fp32"},
    {"micro_batch_size": 4, "precision": "fp16", "checkpoint_fraction": 1.0},
    {"micro_batch_size": 4, "optimizer": "adamw8bit"},
    {"micro_batch_size": 4, "liger_kernel": True},
)
_ADAPTED: tuple[dict[str, Any], ...] = (
    {"micro_batch_size": 2, "lora_rank": 16, "checkpoint_fraction": 0.25},
    {"micro_batch_size": 2, "lora_rank": 64, "zero_stage": 2, "gradient_accumulation_steps": 2},
    {"micro_batch_size": 4, "lora_rank": 16, "quantization": "nf4", "checkpoint_fraction": 1.0},
    {"micro_batch_size": 2, "lora_rank": 16, "attention": "eager", "liger_kernel": True},
)


@dataclass(frozen=True)
class Validated:
    """One configuration, predicted and run.

    Attributes:
        configuration: what was run.
        figures: those that were both predicted and measured.
        problem: why there is no comparison; empty where there is one.
    """

    configuration: Configuration
    figures: tuple[Compared, ...] = ()
    problem: str = ""

    @property
    def peak_off(self) -> float | None:
        """By how much the peak of allocated memory was predicted wrong; None where it was not measured."""
        return next((one.off for one in self.figures if one.figure == "peak_allocated_bytes"), None)

    @property
    def holds(self) -> bool:
        """Whether the prediction was right."""
        return self.peak_off is not None and abs(self.peak_off) <= MOST_OFF

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            **self.configuration.as_json(),
            "holds": self.holds,
            "problem": self.problem,
            "compared": {one.figure: one.as_json() for one in self.figures},
        }


def configurations(capabilities: Capabilities) -> tuple[Configuration, ...]:
    """What to run on a machine that can do this; what it cannot do is left out.

    Args:
        capabilities: of the machine. Without bf16, fp16 takes its place.
    """
    from autotune.models import resolve_model
    from autotune.planning.configuration import Configuration
    from autotune.space import Setting, violation

    setting = Setting(
        method="any",
        global_batch=None,
        exact_global_batch=False,
        gpus=1,
        min_rank=1,
        capabilities=capabilities,
        trainer=None,
    )
    small = resolve_model(ADAPTED_MODEL)
    cut = ModelSpec(name=small.name, config={**small.config, "num_hidden_layers": ADAPTED_LAYERS})
    asked = [
        *((FULL_MODEL, resolve_model(FULL_MODEL), FULL_SEQ_LEN, fields) for fields in _FULL),
        *((ADAPTED_MODEL, cut, ADAPTED_SEQ_LEN, fields) for fields in _ADAPTED),
    ]
    found: dict[tuple[str, Point], Configuration] = {}
    for name, model, seq_len, fields in asked:
        point = Point(**fields)
        if point.precision == "bf16" and not capabilities.bf16:
            point = point.model_copy(update={"precision": "fp16"})
        if violation(point, setting) is None:
            found.setdefault((name, point), Configuration(name, model, seq_len, point))
    return tuple(found.values())


def validated(
    configuration: Configuration, prediction: Prediction | str, result: TrialResult | None
) -> Validated:
    """One configuration's comparison.

    Args:
        configuration: what was asked.
        prediction: for this machine; a text says why there is none.
        result: the run's; None where it was not launched.
    """
    if isinstance(prediction, str):
        return Validated(configuration, problem=f"cannot be predicted: {prediction}")
    assert result is not None, "what is predicted is run"
    if result.outcome is not Outcome.OK:
        words = " ".join(result.message.split())[:200]
        return Validated(configuration, problem=f"the run ended in {result.outcome.value}: {words}")
    return Validated(configuration, tuple(compared(recorded(prediction, {}), result)))


def all_hold(rows: Iterable[Validated]) -> bool:
    """Whether every peak was predicted to within a percent, and every configuration ran."""
    return all(row.holds for row in rows)


def run_validation(
    data_folder: Path, say: Callable[[str], None], done: Callable[[Validated], None]
) -> Machine:
    """Predict and run the configurations on this machine's GPU; the share outside the allocator is kept.

    Args:
        data_folder: existing folder of the machine's figures.
        say: told what is being done.
        done: told of each configuration when it has been run.

    Raises:
        EnvironmentProblem: there is no GPU, or trials cannot run on this machine.
        KeyboardInterrupt: the user stopped it.
    """
    from autotune.prediction import Predictor
    from autotune.prediction.pool import WorkerPool
    from autotune.prediction.predictor import worker_count
    from autotune.running import OutsideShare, TrialRunner, inspect_machine, needed_ops

    try:
        machine = inspect_machine("cuda")
    except EnvironmentProblem as problem:
        raise EnvironmentProblem(
            f"predictions are compared with runs on an NVIDIA GPU: {problem.message}",
            "without one, 'autotune estimate' and 'autotune plan' still predict",
        ) from problem
    if machine.problems:
        raise EnvironmentProblem(machine.problems[0], "'autotune doctor' says all that is missing")
    outside = OutsideShare(machine, data_folder)
    pool = WorkerPool(1, worker_count())
    with (
        closing(pool),
        tempfile.TemporaryDirectory(prefix="autotune-validate-") as scratch,
        TrialRunner("cuda", model_type=None, log_dir=Path(scratch)) as runner,
    ):
        folder = Path(scratch)
        # They load while the trial process does.
        pool.start()
        wanted = configurations(machine.capabilities)
        points = [one.point for one in wanted]
        say("starting the trial process (loads torch and transformers once)")
        failed = dict(runner.prepare(needed_ops(points, machine), say))
        if "cpu_adam" in failed or not machine.host_compiler:
            wanted = tuple(one for one in wanted if one.point.offload == "none")
            say("without DeepSpeed's operators for the CPU, offload is left out")
        outside.measure(runner, [one.point for one in wanted], folder, say)
        torch_adam = machine.torch_adam or "fused_adam" in failed
        with Predictor(gpu=capability_of(machine), torch_adam=torch_adam, pool=pool) as predictor:
            say(f"predicting {len(wanted)} configurations")
            predictions = _predictions(wanted, predictor)
        for number, (one, made) in enumerate(zip(wanted, predictions, strict=True), start=1):
            say(f"run {number} of {len(wanted)}")
            done(_validate(one, number, made, runner, outside, torch_adam, folder))
    return machine


def _predictions(
    wanted: Sequence[Configuration], predictor: Predictor
) -> list[Prediction | PredictionFailure]:
    """Each from its own trace, those of one model after the other at once."""
    found: list[Prediction | PredictionFailure] = []
    for _, group in groupby(wanted, key=lambda one: one.name):
        alike = list(group)
        points = [one.point for one in alike]
        found += predictor.predict_many(alike[0].model, alike[0].seq_len, points, exact=True)
    return found


def _validate(
    one: Configuration,
    number: int,
    made: Prediction | PredictionFailure,
    runner: TrialRunner,
    outside: OutsideShare,
    torch_adam: bool,
    folder: Path,
) -> Validated:
    if isinstance(made, PredictionFailure):
        return validated(one, made.error, None)
    prediction = adjusted(made, outside.bytes_for(one.point), {})
    work = folder / f"run-{number}"
    work.mkdir()
    spec = TrialSpec(
        trial_id=f"validate-{number}",
        model=one.model,
        point=one.point,
        seq_len=one.seq_len,
        torch_adam=torch_adam,
        # Memory is that of the first two steps; nothing is timed.
        warmup_steps=1,
        min_timed_steps=1,
        max_timed_steps=1,
        log_path=str(folder / f"run-{number}.log"),
        work_dir=str(work),
    )
    result = runner.run(spec, timeout_seconds=RUN_TIMEOUT_SECONDS, fresh=True)
    outside.learn(one.point, result)
    return validated(one, prediction, result)


def validation_json(
    machine_name: str | None, versions: Mapping[str, str], rows: Iterable[Validated]
) -> dict[str, Any]:
    """The object that `autotune doctor --validate --json` prints."""
    kept = list(rows)
    return {
        "validated": all_hold(kept),
        "gpu": machine_name,
        "versions": dict(versions),
        "most_off": MOST_OFF,
        "rows": [row.as_json() for row in kept],
    }
