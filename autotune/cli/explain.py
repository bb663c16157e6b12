"""`autotune explain`: why one configuration fits or not, and what would make it fit; without a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from autotune.cli.completing import complete_gpus, complete_studies
from autotune.cli.estimate import point_options
from autotune.cli.options import (
    debug_option,
    json_option,
    log_file_option,
    option,
    quiet_option,
    storage_option,
    study_option,
)
from autotune.cli.output import print_json, print_text
from autotune.cli.settings import is_from_file
from autotune.cli.telling import Telling
from autotune.cli.unchecked import warn_of_versions
from autotune.cli.values import NAMES, SIZE
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.planning.configuration import Configuration
    from autotune.planning.explanation import Question
    from autotune.study import Study


@click.command("explain")
@click.argument("what", nargs=-1, metavar="[JSON | [STUDY] TRIAL]", shell_complete=complete_studies)
@point_options
@option("--gpu-budget", type=SIZE, help="What it should fit in, e.g. 24GB.")
@option(
    "--gpu-model",
    metavar="NAME",
    shell_complete=complete_gpus,
    help='The GPU it should fit on: "RTX 4090".',
)
@option("--host-budget", type=SIZE, help="Host memory that may be used.")
@option("--gpus", type=click.IntRange(min=1), default=1, show_default=True, help="GPUs that share the work.")
@option("--lora-targets", type=NAMES, help="Modules that get LoRA.  [default: all linear but the head]")
@study_option
@storage_option
@quiet_option
@log_file_option
@json_option
@debug_option
def explain(what: tuple[str, ...], as_json: bool, quiet: bool, log_file: str | None, **flags: Any) -> int:
    """Say why a configuration fits or not, and which single changes would make it fit.

    The configuration is given by flags, as a JSON object, or as a trial of a study:

    \b
        autotune explain --model llama2-7b --lora-rank 16 --micro-batch-size 8 --gpu-budget 24GB
        autotune explain '{"model": "llama2-7b", "lora_rank": 16}' --gpu-model "RTX 4090"
        autotune explain STUDY 3
    """
    from autotune.planning.explanation import explain as answer
    from autotune.prediction.predictor import Predictor

    ctx = click.get_current_context()
    from_file = {name for name in flags if is_from_file(ctx, name)}
    with Telling(quiet=quiet, log_file=log_file) as telling:
        question = _question(what, flags, from_file, telling.say)
        if not quiet:
            warn_of_versions(telling.say)
        with Predictor(gpu=flags["gpu_model"]) as predictor:
            explanation = answer(question, predictor, telling.say)
    if as_json:
        from autotune.display.explanations import reason, verdict

        print_json({**explanation.as_json(), "sentences": [verdict(explanation), reason(explanation)]})
    else:
        from autotune.display.explanations import explanation_text

        print_text(explanation_text(explanation))
    return 0


def _question(what: tuple[str, ...], flags: dict[str, Any], from_file: set[str], say: Any) -> Question:
    from autotune.planning.configuration import configuration_of, parse_object
    from trials.wire import Point

    fields = {
        name: flags[name]
        for name in ("model", "seq_len", "method", *Point.model_fields)
        if flags.get(name) is not None
    }
    if not what:
        return _asked(configuration_of(fields), flags, say)
    if what[0].lstrip().startswith("{"):
        if len(what) > 1:
            raise UsageError("one JSON object is one configuration", "put it in single quotes")
        given = parse_object(what[0])
        twice = [name for name in fields if name in given and name not in from_file]
        if twice:
            raise UsageError(f"--{twice[0].replace('_', '-')} and the JSON both give {twice[0]}", "give one")
        return _asked(configuration_of({**fields, **given}), flags, say)
    extra = [name for name in fields if name not in from_file]
    if extra:
        raise UsageError(
            f"--{extra[0].replace('_', '-')} does not go with a trial, which has its own configuration",
            "give flags or JSON without a trial",
        )
    return _of_trial(what, flags)


def _asked(one: Configuration, flags: dict[str, Any], say: Any) -> Question:
    from autotune.cli.estimate import check_possible
    from autotune.planning.explanation import Question
    from autotune.planning.outlook import Budgets

    for note in one.notes:
        say(f"note: {note}")
    budget, rates = _target(flags)
    if budget is None and flags["host_budget"] is None:
        raise UsageError("what should it fit in?", "give --gpu-budget, e.g. 24GB, or --gpu-model")
    check_possible(one.point, flags["gpus"])
    if flags["lora_targets"] and one.point.lora_rank == 0:
        raise UsageError("--lora-targets needs LoRA", "give --lora-rank, or --method lora")
    return Question(
        name=one.name,
        model=one.model,
        seq_len=one.seq_len,
        point=one.point,
        budgets=Budgets(budget, flags["host_budget"]),
        lora_targets=flags["lora_targets"],
        gpus=flags["gpus"],
        rates=rates,
    )


def _of_trial(what: tuple[str, ...], flags: dict[str, Any]) -> Question:
    from autotune.cli.show import find_trial
    from autotune.cli.studies import find_study
    from autotune.planning.explanation import Question
    from autotune.planning.outlook import Budgets
    from autotune.tuning.handover import model_of

    *names, number = what
    if len(names) > 1 or not number.isdecimal():
        raise UsageError(
            f"{' '.join(what)!r} names no trial", "give [STUDY] NUMBER, a JSON object, or flags alone"
        )
    study = find_study(flags["storage"], names[0] if names else flags["study"])
    record = find_trial(study, int(number))
    budget, rates = _target(flags)
    if budget is None:
        budget = _own_budget(study, int(number))
    return Question(
        name=study.inputs.model,
        model=model_of(study),
        seq_len=study.inputs.seq_len,
        point=record.point,
        budgets=Budgets(budget, flags["host_budget"] or study.inputs.host_budget_bytes),
        lora_targets=study.inputs.lora_targets,
        gpus=study.inputs.gpus,
        rates=rates,
    )


def _own_budget(study: Study, number: int) -> int:
    if study.inputs.device == "cpu":
        # There the budget counts what the process holds, offloaded state included, and no CUDA.
        raise UsageError(
            f"the study {study.name} ran on the CPU, whose memory is measured and not predicted",
            f"'{study.command('show')} {number}' has it; --gpu-budget asks whether it would fit a GPU",
        )
    return study.inputs.budget_bytes


def _target(flags: dict[str, Any]) -> tuple[int | None, Any]:
    """The device budget, where the flags give one, and the rates of the GPU."""
    from autotune.gpus import find_gpu
    from autotune.throughput import H200_RATES, rates_of

    name, budget = flags["gpu_model"], flags["gpu_budget"]
    if name is None:
        return budget, H200_RATES
    if budget is not None:
        raise UsageError("--gpu-budget and --gpu-model both say the budget", "give one of them")
    return find_gpu(name).memory_bytes, rates_of(name)
