"""`python -m benchmarks.rivals`: runs what the output does not hold yet, or writes the page."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from autotune.running import OutsideShare, TrialRunner
from autotune.running.machine import Machine, inspect_machine
from autotune.running.ops import needed_ops
from autotune.running.probing import machine_rates
from autotune.sizes import parse_size
from autotune.study.storage_url import default_folder
from benchmarks.json_rows import Row, append_row, read_rows
from benchmarks.rivals.cases import DEFAULT_CASES, Case, Setting, parse_case
from benchmarks.rivals.contender import Found, Job
from benchmarks.rivals.deepspeed_autotuner import run_deepspeed_autotuner
from benchmarks.rivals.exhaustive import best_of_tables
from benchmarks.rivals.hf_trainer import run_auto_find
from benchmarks.rivals.measuring import MEASURE_TIMEOUT_SECONDS, run_point
from benchmarks.rivals.ours import run_autotune, run_autotune_same_kernels
from benchmarks.rivals.recipe import run_recipe
from benchmarks.rivals.report import report
from benchmarks.rivals.rows import find_found, found_row, measured_row, measurements_of
from trials.wire import Outcome, Point

RESULTS = Path(__file__).parent.parent / "results" / "rivals.md"
OUTPUT = Path(__file__).parent / "h200.jsonl"
DEFAULT_LIMIT_SECONDS = 150.0
# How often each winner is measured, all of them in turns.
DEFAULT_ROUNDS = 3
# Enough for a trial of ours; with less left, measuring again waits for the next call.
MEASURE_ROOM_SECONDS = 30.0

CONTENDERS: dict[str, Callable[[Job], Found | None]] = {
    "autotune": run_autotune,
    "deepspeed-autotuner": run_deepspeed_autotuner,
    "hf-auto-find": run_auto_find,
    "usual-recipe": run_recipe,
    "table": lambda job: best_of_tables(job.case, job.setting),
    "autotune-same-kernels": run_autotune_same_kernels,
}
ONLY_IF_ASKED = ("autotune-same-kernels",)
# What `autotune run` may need of the machine, so that no contender waits for it.
KINDS = (
    Point(),
    Point(zero_stage=1, offload="optimizer"),
    Point(zero_stage=3),
    Point(zero_stage=3, offload="optimizer+parameters"),
)


def main() -> None:
    """Run or report."""
    arguments = _parser().parse_args()
    if arguments.report:
        page = report(read_rows(arguments.output), "python -m benchmarks.rivals")
        arguments.results.parent.mkdir(exist_ok=True)
        arguments.results.write_text(page)
        print(page)
        return
    setting = Setting(
        seq_len=arguments.seq_len,
        global_batch=arguments.global_batch,
        budget_bytes=parse_size(arguments.gpu_budget),
        device=arguments.device,
    )
    cases = [parse_case(text) for text in arguments.case or DEFAULT_CASES]
    names = arguments.only or [name for name in CONTENDERS if name not in ONLY_IF_ASKED]
    with tempfile.TemporaryDirectory(prefix="rivals-") as folder:
        _Sitting(arguments, setting, Path(folder)).run(cases, names)


class _Sitting:
    """One call: what it prepared, and what time it has left."""

    def __init__(self, arguments: argparse.Namespace, setting: Setting, folder: Path) -> None:
        self._begun = time.monotonic()
        self._arguments = arguments
        self._setting = setting
        self._folder = folder
        self._rows = read_rows(arguments.output)
        self._jobs = 0

    def run(self, cases: list[Case], names: list[str]) -> None:
        """All contenders of one case, then its winners measured alike, then the next case."""
        if not any(self._is_left(case, names) for case in cases):
            self._say("the output holds all of it")
            return
        machine = inspect_machine(self._setting.device)
        with TrialRunner(self._setting.device, model_type=None, log_dir=self._folder) as runner:
            runner.prepare([], self._say)
            start_seconds = time.monotonic() - self._begun
            outside = self._prepare(runner, machine, start_seconds)

            def job(case: Case) -> Job:
                self._jobs += 1
                folder = self._folder / f"job-{self._jobs}"
                folder.mkdir()
                return Job(
                    case=case,
                    setting=self._setting,
                    machine=machine,
                    outside=outside,
                    runner=runner,
                    runner_start_seconds=start_seconds,
                    folder=folder,
                    limit_seconds=self._arguments.limit,
                )

            for case in cases:
                for name in names:
                    self._compete(name, case, job)
                self._measure(case, job)

    def _is_left(self, case: Case, names: list[str]) -> bool:
        """Whether anything of a case is not in the output yet."""
        setting = self._setting.model_dump(mode="json")
        missing = [name for name in names if not find_found(self._rows, case.name, setting, name)]
        if missing == ["table"]:
            missing = ["table"] if best_of_tables(case, self._setting) else []
        return bool(missing) or any(
            self._times_measured(row) < self._arguments.rounds
            for row in self._rows
            if self._is_winner(row, case)
        )

    def _prepare(self, runner: TrialRunner, machine: Machine, start_seconds: float) -> OutsideShare:
        begun = time.monotonic()
        self._say(f"the trial process is up after {start_seconds:.0f} s")
        failed = runner.prepare(needed_ops(KINDS, machine), self._say)
        for name, reason in failed.items():
            self._say(f"{name} cannot be built: {reason}")
        folder = default_folder()
        folder.mkdir(parents=True, exist_ok=True)
        outside = OutsideShare(machine, folder)
        outside.measure(runner, KINDS, self._folder, self._say)
        machine_rates(machine, folder, runner, self._say, has_cpu_adam="cpu_adam" not in failed)
        row = {
            "kind": "machine",
            "gpu": machine.gpu_name,
            "driver": machine.driver,
            "versions": machine.versions,
            "outside_allocator_bytes": outside.known,
            "runner_start_seconds": start_seconds,
            "prepare_seconds": time.monotonic() - begun,
            "limit_seconds": self._arguments.limit,
        }
        append_row(self._arguments.output, self._rows, row)
        return outside

    def _compete(self, name: str, case: Case, job: Callable[[Case], Job]) -> None:
        if find_found(self._rows, case.name, self._setting.model_dump(mode="json"), name):
            return
        if name != "table" and self._left() < self._arguments.limit:
            self._say(f"time is up before {name} on {case.name}")
            return
        clear_locks()
        self._say(f"{name} on {case.name}")
        found = CONTENDERS[name](job(case))
        if found is None:
            self._say("no table is recorded for it")
            return
        append_row(self._arguments.output, self._rows, found_row(case, self._setting, name, found))
        own = f"{found.own_tokens_per_second:,.0f} tokens/s" if found.own_tokens_per_second else "nothing"
        words = [found.status, own, f"{found.wall_seconds:.0f} s", f"tried {found.tried}"]
        self._say(", ".join([*words, f"{found.ooms} out of memory", *([found.note] if found.note else [])]))

    def _measure(self, case: Case, job: Callable[[Case], Job]) -> None:
        """All winners one after another, and again: what the host does meanwhile is done to all."""
        for count in range(1, self._arguments.rounds + 1):
            for row in [row for row in self._rows if self._is_winner(row, case)]:
                if self._times_measured(row) >= count:
                    continue
                clear_locks()
                if self._left() < MEASURE_ROOM_SECONDS:
                    self._say(f"time is up before the winner of {row['contender']} is measured ({count})")
                    continue
                point = Point.model_validate(row["point"])
                allowed = min(MEASURE_TIMEOUT_SECONDS, self._left())
                result = run_point(job(case), point, "again", allowed)
                if result.outcome is Outcome.TIMEOUT and allowed < MEASURE_TIMEOUT_SECONDS:
                    self._say(f"time is up while the winner of {row['contender']} is measured ({count})")
                    continue
                append_row(
                    self._arguments.output, self._rows, measured_row(case, self._setting, point, result)
                )
                speed = result.tokens_per_second
                words = f"{speed:,.0f} tokens/s" if speed else result.message
                self._say(f"winner of {row['contender']} ({count}): {result.outcome}, {words}")

    def _times_measured(self, row: Row) -> int:
        return len(measurements_of(self._rows, row["case"], row["setting"], row["point"]))

    def _is_winner(self, row: Row, case: Case) -> bool:
        setting = self._setting.model_dump(mode="json")
        return (
            row["kind"] == "found"
            and row["case"] == case.name
            and row["setting"] == setting
            and row["point"] is not None
        )

    def _left(self) -> float:
        return float(self._arguments.seconds) - (time.monotonic() - self._begun)

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._begun:6.1f} s  {text}", flush=True)


def clear_locks() -> None:
    """Remove build locks that a contender left when it was ended: whoever came next would wait for ever."""
    from trials.ops import YOUNG_LOCK_SECONDS, extensions_folder, remove_stale_locks

    folder = extensions_folder()
    remove_stale_locks(folder)
    if any(folder.glob("*/lock")):
        # Too young to be told from one that is being taken.
        time.sleep(YOUNG_LOCK_SECONDS + 1)
        remove_stale_locks(folder)


def _parser() -> argparse.ArgumentParser:
    defaults = Setting()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="rows; what it holds is not run again")
    parser.add_argument("--seconds", type=float, default=560.0, help="start nothing that may end after this")
    parser.add_argument("--limit", type=float, default=DEFAULT_LIMIT_SECONDS, help="seconds a contender has")
    parser.add_argument(
        "--rounds", type=int, default=DEFAULT_ROUNDS, help="how often each winner is measured"
    )
    parser.add_argument("--only", action="append", choices=list(CONTENDERS), help="repeatable")
    parser.add_argument("--case", action="append", help="model:full or model:lora; repeatable")
    parser.add_argument("--seq-len", type=int, default=defaults.seq_len)
    parser.add_argument("--global-batch", type=int, default=defaults.global_batch)
    parser.add_argument("--gpu-budget", default="24GB")
    parser.add_argument("--device", choices=("cuda", "cpu"), default=defaults.device)
    parser.add_argument("--report", action="store_true", help="run nothing: write the page from the output")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the page")
    return parser


if __name__ == "__main__":
    main()
