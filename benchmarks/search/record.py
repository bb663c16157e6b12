"""`python -m benchmarks.search.record`: measures a space's points on this machine, appending to a table.

    python -m benchmarks.search.record --model qwen2.5-1.5b --method lora --budget 24GB \
        --seconds 480 --out benchmarks/search/tables/h200_qwen2.5-1.5b_lora.jsonl

Only points predicted to fit, with this machine's share outside the allocator, are run, a few of each build at
a time so that one engine serves them, and the builds in an order that covers the space: stopped at any time,
the table has seen everything coarsely. Then the fastest are measured once more, longer, for the optimum must
not be whichever was lucky. The same command goes on where it stopped. With --predict-only nothing is run: the
order is written beside the table, on any machine, and the next call uses it, so that no time on the GPU goes
into predicting.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from autotune.models import model_limits, resolve_model
from autotune.planning.outlook import Budgets, broken_limit
from autotune.planning.plan import PlanRequest, outlooks_of
from autotune.prediction.predictor import Predictor
from autotune.running import Machine, OutsideShare, TrialRunner, inspect_machine, machine_rates, needed_ops
from autotune.samplers.grid import golden_walk
from autotune.sizes import parse_size
from autotune.space import Capabilities, Setting, enumerate_points, load_space, space_for_method
from autotune.space.fields import point_order
from autotune.study.storage_url import default_folder
from autotune.throughput import H200_RATES
from benchmarks.search.table import read_table
from trials.wire import ModelSpec, Outcome, Point, TrialResult, TrialSpec

TIMEOUT_SECONDS = 300.0
# So many points of a build before the next build's turn; then the next so many.
PER_BUILD = 12
# Short, for there are many: warm-up as in a search, then whole steps for about so long.
MEASURE_SECONDS = 1.5
# What is within so much of the fastest is measured again for so long; the later row of a point counts.
AGAIN_WITHIN = 0.1
AGAIN_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A point to measure.

    Attributes:
        point: the configuration.
        required_device_bytes: as predicted; None where nothing is.
        outside_allocator_bytes: of these.
    """

    point: Point
    required_device_bytes: int | None
    outside_allocator_bytes: int = 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict, then measure until the time is up."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search.record",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--method", required=True, choices=("full", "lora", "qlora", "any"))
    parser.add_argument("--budget", type=parse_size, required=True, help="device memory, e.g. 24GB")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=480.0, help="start no further trial after this long")
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--global-batch", type=int, default=32)
    parser.add_argument("--space", help="a shipped space or a YAML file; by default the method's")
    parser.add_argument("--host-budget", type=parse_size, help="host memory, e.g. 100GB")
    parser.add_argument("--per-build", type=int, default=PER_BUILD)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--predict-only", action="store_true", help="only write the order, beside the table")
    chosen = parser.parse_args(arguments)
    wanted = _wanted(chosen)
    if chosen.predict_only:
        return
    _measure(chosen, wanted)


def covering_order(points: Iterable[Point], per_build: int) -> list[Point]:
    """The points in rounds: of each build a few, the builds and the points of each spread over the space.

    Args:
        points: in any order.
        per_build: points of a build in one round.
    """
    builds: dict[tuple[object, ...], list[Point]] = {}
    for point in sorted(points, key=point_order):
        builds.setdefault(point.build, []).append(point)
    first = {members[0]: build for build, members in builds.items()}
    order = [first[point] for point in golden_walk(list(first))]
    walks = {build: golden_walk(members) for build, members in builds.items()}
    most = max((len(walk) for walk in walks.values()), default=0)
    return [
        point
        for start in range(0, most, per_build)
        for build in order
        for point in walks[build][start : start + per_build]
    ]


def _wanted(chosen: argparse.Namespace) -> list[Wanted]:
    """The points predicted to fit, in the order in which they are measured; kept beside the table."""
    kept = chosen.out.with_suffix(".order.json")
    if kept.exists():
        values = json.loads(kept.read_text())
        return [Wanted(**{**one, "point": Point.model_validate(one["point"])}) for one in values]
    wanted = _points(chosen) if chosen.device == "cpu" else _predicted_points(chosen)
    found = [wanted[point] for point in covering_order(wanted, chosen.per_build)]
    values = [{**vars(one), "point": one.point.model_dump(mode="json")} for one in found]
    kept.write_text(json.dumps(values))
    print(f"{len(found)} points to measure: {kept}", flush=True)
    return found


def _setting(chosen: argparse.Namespace, capabilities: Capabilities, model: ModelSpec) -> Setting:
    return Setting(
        method=chosen.method,
        global_batch=chosen.global_batch,
        exact_global_batch=False,
        gpus=1,
        min_rank=16,
        capabilities=capabilities,
        num_layers=model_limits(model).num_layers,
    )


def _points(chosen: argparse.Namespace) -> dict[Point, Wanted]:
    """Every point of the space on the CPU, where nothing is predicted."""
    capabilities = inspect_machine("cpu").capabilities
    space = load_space(chosen.space or space_for_method(chosen.method))
    setting = _setting(chosen, capabilities, resolve_model(chosen.model))
    return {point: Wanted(point, None) for point in enumerate_points(space, setting).points}


def _predicted_points(chosen: argparse.Namespace) -> dict[Point, Wanted]:
    """The points that are predicted to fit on a GPU."""
    model = resolve_model(chosen.model)
    capabilities = Capabilities(device="cuda", bf16=True, fp16=True, liger=True, bitsandbytes=True)
    request = PlanRequest(
        model=model,
        seq_len=chosen.seq_len,
        setting=_setting(chosen, capabilities, model),
        space=chosen.space,
        budgets=Budgets(chosen.budget, chosen.host_budget),
        lora_targets=None,
        rates=H200_RATES,
    )
    with Predictor() as predictor:
        outlooks = outlooks_of(chosen.method, request, predictor, print).outlooks
    return {
        one.point: Wanted(
            one.point, one.prediction.required_device_bytes, one.prediction.outside_allocator_bytes
        )
        for one in outlooks
        if broken_limit(one.prediction, request.budgets) is None
    }


def _measure(chosen: argparse.Namespace, wanted: Sequence[Wanted]) -> None:
    begun = time.monotonic()
    machine = inspect_machine(chosen.device)
    model = resolve_model(chosen.model)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with TrialRunner(chosen.device, model_type=model.config["model_type"], log_dir=folder) as runner:
            points = [one.point for one in wanted]
            needed = needed_ops(points, machine)
            failed = runner.prepare(needed, print)
            # What `autotune run` keeps of a machine is not measured again.
            data_folder = default_folder()
            data_folder.mkdir(parents=True, exist_ok=True)
            has_cpu_adam = "cpu_adam" in needed and "cpu_adam" not in failed
            rates = machine_rates(machine, data_folder, runner, print, has_cpu_adam=has_cpu_adam)
            outside = OutsideShare(machine, data_folder)
            outside.measure(runner, points, folder, print)
            done = _begin(chosen, machine, model, dict(rates))
            wanted = [here for one in wanted if (here := on_machine(one, outside, chosen.budget)) is not None]
            left = [one for one in wanted if one.point not in done]
            print(f"{len(left)} points to measure, {len(done)} are", flush=True)
            with chosen.out.open("a") as output:
                for number, (one, seconds) in enumerate(_schedule(chosen.out, left, wanted), start=1):
                    if time.monotonic() - begun > chosen.seconds:
                        print(f"time is up: {max(0, len(left) - number + 1)} are left", flush=True)
                        return
                    spec = _spec(chosen, model, one.point, number, folder, machine, outside, seconds)
                    began = time.monotonic()
                    result = runner.run(spec, timeout_seconds=TIMEOUT_SECONDS)
                    outside.learn(one.point, result)
                    output.write(json.dumps(_row(one, result, time.monotonic() - began)) + "\n")
                    output.flush()
                    speed = result.tokens_per_second or 0.0
                    print(f"{number:4d} {result.outcome:8} {speed:>10,.0f} {one.point!r}", flush=True)


def on_machine(one: Wanted, outside: OutsideShare, budget_bytes: int) -> Wanted | None:
    """What is wanted as this machine's share outside the allocator makes it; None where it has no room."""
    here = outside.bytes_for(one.point)
    if one.required_device_bytes is None or not here:
        return one
    required = one.required_device_bytes + here - one.outside_allocator_bytes
    if required > budget_bytes:
        return None
    return dataclasses.replace(one, required_device_bytes=required, outside_allocator_bytes=here)


def _schedule(path: Path, left: Sequence[Wanted], wanted: Sequence[Wanted]) -> Iterator[tuple[Wanted, float]]:
    """What is measured and for how long: what is left, then the table's fastest, as it is by then."""
    yield from ((one, MEASURE_SECONDS) for one in left)
    yield from ((one, AGAIN_SECONDS) for one in fastest_of(path, wanted))


def fastest_of(path: Path, wanted: Iterable[Wanted]) -> list[Wanted]:
    """What the table has near its fastest point and measured once, those of a build after each other.

    Args:
        path: the table.
        wanted: all points.
    """
    times, speeds = Counter(_measured_points(path)), read_table(path).measured
    enough = (1 - AGAIN_WITHIN) * max(speeds.values(), default=0.0)
    once = [one for one in wanted if times[one.point] == 1]
    near = [one for one in once if speeds.get(one.point, -1.0) >= enough]
    return sorted(near, key=lambda one: (repr(one.point.build), -speeds[one.point]))


def _begin(
    chosen: argparse.Namespace, machine: Machine, model: ModelSpec, rates: dict[str, Any]
) -> set[Point]:
    """Write the table's first line, where there is none; the points that it holds already."""
    if chosen.out.exists() and chosen.out.stat().st_size:
        return set(_measured_points(chosen.out))
    inputs = {
        "model": model.model_dump(mode="json"),
        "seq_len": chosen.seq_len,
        "method": chosen.method,
        "gpu": machine.gpu_name or "cpu",
        "budget_bytes": chosen.budget,
        "global_batch": chosen.global_batch,
        "versions": machine.versions,
        "rates": rates,
        "note": "",
    }
    chosen.out.write_text(json.dumps(inputs) + "\n")
    return set()


def _measured_points(path: Path) -> Iterator[Point]:
    for line in path.read_text().splitlines()[1:]:
        if line.strip():
            yield Point.model_validate(json.loads(line)["point"])


def _spec(
    chosen: argparse.Namespace,
    model: ModelSpec,
    point: Point,
    number: int,
    folder: Path,
    machine: Machine,
    outside: OutsideShare,
    seconds: float,
) -> TrialSpec:
    work = folder / f"trial-{number}"
    work.mkdir()
    return TrialSpec(
        trial_id=f"table-{number}",
        model=model,
        point=point,
        seq_len=chosen.seq_len,
        device=chosen.device,
        budget_bytes=chosen.budget,
        outside_allocator_bytes=outside.bytes_for(point),
        host_budget_bytes=chosen.host_budget or machine.free_host_bytes,
        torch_adam=machine.torch_adam,
        min_measure_seconds=seconds / 2,
        measure_seconds=seconds,
        log_path=str(folder / f"trial-{number}.log"),
        work_dir=str(work),
    )


def _row(one: Wanted, result: TrialResult, seconds: float) -> dict[str, Any]:
    # On an engine that lived there was nothing to set up: all of it was measuring.
    setup = (result.setup_seconds or 0.0) if result.build == "fresh" else 0.0
    required = result.required_device_bytes
    return {
        "point": one.point.model_dump(mode="json"),
        "outcome": result.outcome.value,
        "tokens_per_second": _rounded(result.tokens_per_second),
        "low": _rounded(result.tokens_per_second_low),
        "high": _rounded(result.tokens_per_second_high),
        "build": result.build,
        "setup_seconds": round(setup, 2) if setup else None,
        "measure_seconds": round(max(0.0, seconds - setup), 2),
        "required_device_bytes": required if required is not None else one.required_device_bytes,
        "predicted": one.required_device_bytes,
        **({"message": result.message[:200]} if result.outcome is not Outcome.OK else {}),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


if __name__ == "__main__":
    main()
