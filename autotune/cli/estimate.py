"""`autotune estimate`: the memory of one configuration, or of a JSONL file of them, without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.completing import complete_gpus, complete_models
from autotune.cli.options import debug_option, json_option, option, stack
from autotune.cli.output import print_json, print_text
from autotune.cli.settings import is_from_file
from autotune.cli.unchecked import warn_of_versions
from autotune.cli.values import NAMES, SIZE
from autotune.errors import AutotuneError, EnvironmentProblem, UsageError

if TYPE_CHECKING:
    from autotune.planning.configuration import Configuration
    from autotune.planning.outlook import Budgets
    from autotune.prediction.predictor import Predictor
    from trials.wire import Point

_PRECISIONS = ("bf16", "fp16", "fp32")
_OFFLOADS = ("none", "optimizer", "optimizer+parameters", "nvme_optimizer", "nvme_optimizer+parameters")
_FRACTION = click.FloatRange(0.0, 1.0)
_COUNT = click.IntRange(min=1)

point_options = stack(
    option(
        "--model",
        metavar="NAME",
        shell_complete=complete_models,
        help="A hub id, a folder, a config.json, or a shipped card.",
    ),
    option("--seq-len", type=_COUNT, help="Tokens per sequence.  [default: 1024, or the model's maximum]"),
    option(
        "--method", type=click.Choice(("full", "lora", "qlora")), help="[default: follows from the fields]"
    ),
    option("--micro-batch-size", type=_COUNT, help="[default: 1]"),
    option("--gradient-accumulation-steps", type=_COUNT, help="[default: 1]"),
    option("--precision", type=click.Choice(_PRECISIONS), help="[default: bf16]"),
    option("--checkpoint-fraction", type=_FRACTION, help="Share of recomputed layers.  [default: 0]"),
    option("--zero-stage", type=click.IntRange(0, 3), help="[default: 0]"),
    option("--offload", type=click.Choice(_OFFLOADS), help="[default: none]"),
    option("--lora-rank", type=click.IntRange(min=0), help="0: full fine-tuning.  [default: 0]"),
    option("--quantization", type=click.Choice(("none", "nf4", "int8")), help="[default: none]"),
    option("--optimizer", type=click.Choice(("adamw", "adamw8bit", "paged_adamw8bit"))),
    option("--attention", type=click.Choice(("sdpa", "eager", "flash_attention_2"))),
    option("--liger-kernel/--no-liger-kernel", default=None, help="Fused loss and kernels."),
    option("--zero-bucket-elements", type=_COUNT, help="[default: trained parameters, at most 5e8]"),
)


@click.command("estimate")
@point_options
@option("--configs", metavar="FILE", help="A JSONL file instead: one configuration a line; - for stdin.")
@option("--gpu-budget", type=SIZE, help="Says whether it fits, e.g. 24GB.")
@option(
    "--gpu-model",
    metavar="NAME",
    shell_complete=complete_gpus,
    help='The GPU it is for, and its memory as the budget: "RTX 4090".',
)
@option("--host-budget", type=SIZE, help="Host memory that may be used.")
@option("--gpus", type=_COUNT, default=1, show_default=True, help="GPUs; the figures are of one of them.")
@option("--lora-targets", type=NAMES, help="Modules that get LoRA.  [default: all linear but the head]")
@option("--timeline", metavar="FILE.svg", help="Also draw allocated memory over one optimizer step.")
@json_option
@debug_option
def estimate(
    configs: str | None,
    gpu_budget: int | None,
    gpu_model: str | None,
    host_budget: int | None,
    gpus: int,
    lora_targets: tuple[str, ...] | None,
    timeline: str | None,
    as_json: bool,
    **fields: Any,
) -> int:
    """Predict device and host memory of a configuration, piece by piece, before anything is launched."""
    from autotune.planning.outlook import Budgets
    from autotune.prediction.predictor import Predictor

    given = {key: value for key, value in fields.items() if value is not None}
    if configs is not None:
        ctx = click.get_current_context()
        # A file of configurations says all of each itself.
        given = {key: value for key, value in given.items() if not is_from_file(ctx, key)}
    if (configs is None) == ("model" not in given):
        raise UsageError("give either --model or --configs FILE", "autotune estimate --help shows both")
    if configs is not None and given:
        raise UsageError(f"--{next(iter(given)).replace('_', '-')} does not go with --configs")
    if gpu_model is not None and gpu_budget is not None:
        raise UsageError("--gpu-budget and --gpu-model both say the budget", "give one of them")
    if timeline is not None and configs is not None:
        raise UsageError("--timeline draws one configuration, not a file of them")
    if timeline is not None and Path(timeline).suffix.lower() not in ("", ".svg"):
        raise UsageError(
            f"--timeline draws an SVG picture, not {Path(timeline).suffix}", "--timeline step.svg"
        )
    if gpu_model is not None:
        from autotune.gpus import find_gpu

        gpu_budget = find_gpu(gpu_model).memory_bytes
    budgets = Budgets(gpu_budget, host_budget)
    warn_of_versions()
    with Predictor(gpu=gpu_model) as predictor:
        if configs is None:
            from autotune.planning.configuration import configuration_of

            one = configuration_of(given)
            answer = _estimate(one, predictor, budgets, gpus, lora_targets, as_json)
            if as_json:
                print_json(answer)
            else:
                print_text(answer["text"])
            if timeline is not None:
                _draw(timeline, one, predictor, gpus, lora_targets)
            return 0
        return _estimate_file(configs, predictor, budgets, gpus, lora_targets, as_json)


def _estimate_file(
    path: str,
    predictor: Predictor,
    budgets: Budgets,
    gpus: int,
    lora_targets: tuple[str, ...] | None,
    as_json: bool,
) -> int:
    from autotune.planning.configuration import parse_line

    good = total = 0
    for number, line in _lines(path):
        total += 1
        try:
            configuration = parse_line(line)
            answer = _estimate(configuration, predictor, budgets, gpus, lora_targets, as_json)
            good += 1
        except AutotuneError as error:
            answer = {"error": str(error).replace("\n  ", ": "), "line": number, **_as_given(line)}
        if as_json:
            print_json(answer)
        else:
            print_text(answer.get("text") or f"line {number}: {answer['error']}")
            print_text("")
    if total == 0:
        raise UsageError(f"{path} holds no configuration", "one JSON object a line")
    if 0 < good < total:
        click.echo(f"{total - good} of {total} configurations could not be predicted", err=True)
    if good == 0:
        raise UsageError(f"none of the {total} configurations could be predicted")
    return 0


def _estimate(
    one: Configuration,
    predictor: Predictor,
    budgets: Budgets,
    gpus: int,
    lora_targets: tuple[str, ...] | None,
    as_json: bool,
) -> dict[str, Any]:
    from autotune.planning.outlook import broken_limit, prediction_json
    from autotune.sizes import format_size

    check_possible(one.point, gpus)
    if lora_targets and one.point.lora_rank == 0:
        raise UsageError("--lora-targets needs LoRA", "give --lora-rank, or --method lora")
    prediction = predictor.predict(
        one.model, one.seq_len, one.point, lora_targets=lora_targets, processes=gpus
    )
    limit = broken_limit(prediction, budgets)
    if as_json:
        answer = {**one.as_json(), **prediction_json(prediction)}
        answer["notes"] = [*one.notes, *answer["notes"]]
        if budgets.device_bytes is not None or budgets.host_bytes is not None:
            answer |= {"fits": limit is None, "limit": limit, "budget_bytes": budgets.device_bytes}
        return answer
    from autotune.display.forecasts import estimate_text

    verdict = ""
    if limit == "host" and budgets.host_bytes is not None:
        verdict = f"(does not fit: {format_size(budgets.host_bytes)} of host memory are allowed)"
    elif budgets.device_bytes is not None:
        spare = budgets.device_bytes - prediction.required_device_bytes
        word = "fits" if spare >= 0 else "does not fit"
        verdict = f"({word} in {format_size(budgets.device_bytes)}: {format_size(abs(spare))} "
        verdict += "to spare)" if spare >= 0 else "short)"
    title = f"{one.name}, {one.seq_len:,} tokens a sequence"
    prediction = prediction.model_copy(update={"notes": (*one.notes, *prediction.notes)})
    return {"text": estimate_text(title, one.point, prediction, verdict)}


def check_possible(point: Point, gpus: int) -> None:
    """Raises a UsageError where no machine could run the point."""
    from autotune.planning.steps import setting_of_any_machine
    from autotune.space import violation

    problem = violation(point, setting_of_any_machine(gpus))
    if problem is not None:
        raise UsageError(problem)


def _lines(path: str) -> Iterator[tuple[int, str]]:
    lines: Iterable[str]
    if path == "-":
        lines = sys.stdin
    else:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise EnvironmentProblem(
                f"cannot read {path}: {error.strerror}", "--configs takes a JSONL file"
            ) from error
        except UnicodeDecodeError as error:
            raise EnvironmentProblem(f"{path} is not text", "--configs takes a JSONL file") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, line


def _as_given(line: str) -> dict[str, Any]:
    """What can be said of a configuration that was refused."""
    import json

    try:
        values = json.loads(line)
    except ValueError:
        return {}
    return {"configuration": values} if isinstance(values, dict) else {}


def _draw(
    path: str,
    one: Configuration,
    predictor: Predictor,
    gpus: int,
    lora_targets: tuple[str, ...] | None,
) -> None:
    from autotune.planning.timeline import timeline_svg
    from autotune.report.writing import write_page

    text = timeline_svg(
        predictor.events(one.model, one.seq_len, one.point, lora_targets, gpus), one.as_json()
    )
    write_page(Path(path), text, "give another --timeline, or make room")
    click.echo(f"drawn: {path}", err=True)
