"""`autotune plan`: what fits a budget, ranked, and why the rest does not; without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.options import (
    debug_option,
    json_option,
    log_file_option,
    option,
    quiet_option,
    search_options,
)
from autotune.cli.output import print_json, print_text
from autotune.cli.telling import Telling
from autotune.cli.unchecked import warn_of_versions
from autotune.cli.values import FOLDER, SIZES
from autotune.errors import NothingFits, UsageError

if TYPE_CHECKING:
    from autotune.planning.plan import PlanRequest


@click.command("plan")
@search_options
@option("--nvme-path", type=FOLDER, metavar="DIR", help="Plan with offload to NVMe too.")
@option(
    "--budgets",
    type=SIZES,
    help="What each budget buys, e.g. 16GB,24GB,48GB,80GB; 'curve': from 8 to 141 GB.",
)
@quiet_option
@log_file_option
@json_option
@debug_option
def plan(
    as_json: bool,
    quiet: bool,
    log_file: str | None,
    gpu_model: str | None,
    budgets: tuple[int, ...] | None,
    **flags: Any,
) -> int:
    """Predict every configuration, rank what fits, and say why the rest does not."""
    from autotune.planning.plan import make_plan
    from autotune.prediction.predictor import Predictor

    with Telling(quiet=quiet, log_file=log_file) as telling:
        request = _request(gpu_model, flags, telling.say, many=budgets is not None)
        if not quiet:
            warn_of_versions(telling.say)
        if budgets is not None:
            return _curve(request, budgets, gpu_model, telling, as_json=as_json)
        with Predictor(gpu=gpu_model) as predictor:
            found = make_plan(request, predictor, telling.say)
        for note in found.notes:
            telling.say(note)
    if as_json:
        print_json([outlook.as_json() for outlook in found.outlooks])
    else:
        from autotune.display.forecasts import plan_text

        print_text(plan_text(found, request.budgets))
    if not found.fitting:
        others = " or ".join(f"--method {method}" for method in found.other_methods)
        raise NothingFits(
            f"no {found.method} configuration fits",
            f"{others} would" if others else "a larger budget, shorter sequences or a smaller model would",
        )
    return 0


def _curve(
    request: PlanRequest,
    budgets: tuple[int, ...],
    gpu_model: str | None,
    telling: Telling,
    *,
    as_json: bool,
) -> int:
    """What each budget buys."""
    from autotune.planning.curve import make_curve
    from autotune.prediction.predictor import Predictor

    with Predictor(gpu=gpu_model) as predictor:
        found = make_curve(request, budgets, predictor, telling.say)
    for note in found.notes:
        telling.say(note)
    telling.close()
    shown = found.asked if budgets else found.steps
    if as_json:
        print_json([bought.as_json() for bought in shown])
    else:
        from autotune.display.budgets import curve_text

        print_text(curve_text(found, gpu_model or "an H200"))
    if all(bought.best is None for bought in shown):
        raise NothingFits(
            "nothing fits any of these budgets", "a larger one, shorter sequences or a smaller model would"
        )
    return 0


def _request(
    gpu_model: str | None, flags: dict[str, Any], say: Callable[[str], None], *, many: bool
) -> PlanRequest:
    from autotune.gpus import find_gpu
    from autotune.models import model_limits, resolve_with_notes
    from autotune.planning.outlook import Budgets
    from autotune.planning.plan import PlanRequest
    from autotune.space import Capabilities, Setting
    from autotune.throughput import Rates, rates_of

    budget = flags["gpu_budget"]
    if many and budget is not None:
        raise UsageError("--gpu-budget and --budgets both say the budget", "give one of them")
    if not many and (budget is None) == (gpu_model is None):
        raise UsageError(
            "a plan needs one budget", "give --gpu-budget, e.g. 24GB, --gpu-model, or several as --budgets"
        )
    bf16 = True
    if gpu_model is not None:
        gpu = find_gpu(gpu_model)
        budget, bf16 = gpu.memory_bytes, gpu.bf16
    model, notes = resolve_with_notes(flags["model"])
    for note in notes:
        say(f"note: {note}")
    limits = model_limits(model)
    seq_len = flags["seq_len"] or limits.default_seq_len
    if limits.max_seq_len is not None and seq_len > limits.max_seq_len:
        raise UsageError(
            f"{flags['model']} takes at most {limits.max_seq_len:,} tokens a sequence, not {seq_len:,}",
            f"give --seq-len {limits.max_seq_len} or less",
        )
    capabilities = Capabilities(
        device="cuda",
        bf16=bf16,
        fp16=True,
        liger=True,
        bitsandbytes=True,
        nvme=flags["nvme_path"] is not None,
    )
    setting = Setting(
        method=flags["method"],
        global_batch=None if flags["global_batch"] == "any" else flags["global_batch"],
        exact_global_batch=flags["exact_global_batch"],
        gpus=flags["gpus"],
        min_rank=flags["min_rank"],
        capabilities=capabilities,
        trainer=flags["trainer"],
        num_layers=limits.num_layers,
    )
    return PlanRequest(
        model=model,
        seq_len=seq_len,
        setting=setting,
        space=flags["space"],
        budgets=Budgets(budget, flags["host_budget"]),
        lora_targets=flags["lora_targets"],
        rates=rates_of(gpu_model) if gpu_model else Rates(),
    )
