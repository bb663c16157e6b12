"""One call's work on one study: measuring points, one after the other, with whatever may happen meanwhile."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autotune.errors import AutotuneError
from autotune.study import PointTaken
from autotune.study.judging import judge
from autotune.tuning.folders import Folders, trial_id
from autotune.tuning.hindsight import look_back, surprise_words
from autotune.tuning.interrupts import Interrupts
from autotune.tuning.observer import Observer, Progress
from autotune.tuning.repeats import repeated_failure, repeated_problem
from autotune.tuning.stopping import decided_below, stop_below
from autotune.tuning.task import Task
from autotune.winner import choose_winner
from trials.wire import Outcome, Point, TrialResult, TrialSpec

if TYPE_CHECKING:
    from autotune.running import OutsideShare, TrialRunner
    from autotune.study import Record, Study
    from autotune.throughput import Rates, Training
    from autotune.throughput.advisor import Chance
    from autotune.tuning.foresight import Foresight
    from autotune.tuning.head_start import HeadStart

DISREGARDED_NOTE = "disregarded"
SKIPPED_NOTE = "skipped"
CONFIRMATION: dict[str, Any] = {"min_timed_steps": 5, "measure_seconds": 20.0}
# A GPU's steps of a fifth of a second follow a busy host up and down: a few that agree say little.
GPU_TRIAL: dict[str, Any] = {"min_measure_seconds": 1.0}
GPU_CONFIRMATION: dict[str, Any] = {**CONFIRMATION, "max_timed_steps": 100, "min_measure_seconds": 5.0}
# A machine that is always disturbed is not measured twice for every point.
MOST_REPEATS_IN_VAIN = 2


@dataclass
class Session:
    """The parts that measuring needs, and what this call has measured.

    Attributes:
        task: what is tuned.
        study: where it is kept.
        runner: what launches trials.
        observer: who watches.
        interrupts: the user's wish to stop.
        folders: logs, work, export.
        outside: the machine's shares of device memory outside PyTorch's allocator.
        torch_adam: whether AdamW must be torch's.
        deadline: monotonic time at which the search ends.
        foresight: what is predicted; None where memory is only known by measuring it.
        head_start: what similar studies give; None where there is nothing.
        rates: what the machine does per second; None: as the table of GPUs has it.
        results: of this call, in order.
        failures: longer runs of this call that did not hold, in order.
        unconfirmed: points whose longer runs of this call said nothing of them.
    """

    task: Task
    study: Study
    runner: TrialRunner
    observer: Observer
    interrupts: Interrupts
    folders: Folders
    outside: OutsideShare
    torch_adam: bool
    deadline: float
    foresight: Foresight | None = None
    head_start: HeadStart | None = None
    rates: Rates | None = None
    results: list[tuple[int, TrialResult]] = field(default_factory=list)
    failures: list[TrialResult] = field(default_factory=list)
    unconfirmed: set[Point] = field(default_factory=set)
    _repeats_in_vain: int = field(default=0, init=False)
    _told_of_others: bool = field(default=False, init=False)

    def seconds_left(self) -> float:
        """Until the search's time is up; negative after that."""
        return self.deadline - time.monotonic()

    def measured(self) -> list[Record]:
        """The study's trials that have ended and count, as they are judged now."""
        return judged_records(self.study)

    def pending(self) -> list[Record]:
        """The trials that other live processes run now."""
        return [record for record in self.study.records() if record.result is None]

    def training(self) -> Training:
        """What is trained, on what: all that speed depends on beside the point."""
        from autotune.throughput import Training
        from autotune.tuning.predicting import rates_of_machine

        task = self.task
        return Training(
            model=task.model,
            seq_len=task.seq_len,
            rates=self.rates or rates_of_machine(task.machine),
            processes=task.request.gpus,
            lora_targets=task.request.lora_targets,
        )

    def chance(self) -> Chance | None:
        """The chance that points fit, as it is predicted; None where nothing is."""
        return None if self.foresight is None else self.foresight.chances

    def progress(self, candidates: int) -> Progress:
        """How far the study is, with this many points left to measure."""
        records = self.measured()
        best = choose_winner(records, budget_bytes=self.task.budget.size_bytes)
        # They have a number like any other trial, and are made up for.
        ignored = len(disregarded(self.study))
        return Progress(
            measured=len(records) + ignored,
            trials=self.task.request.trials + ignored,
            candidates=candidates,
            seconds_left=max(0.0, self.seconds_left()),
            best_point=best.point if best else None,
            best_result=best.result if best else None,
            skipped=int(self.study.note(SKIPPED_NOTE) or 0),
        )

    def foresee(self, points: Sequence[Point]) -> None:
        """Predict these points; where that is impossible, say so and go on without predictions."""
        if self.foresight is None:
            return
        try:
            self.foresight.look(points)
        except (AutotuneError, OSError) as error:
            reason = error.message if isinstance(error, AutotuneError) else str(error)
            self.observer.say(
                f"memory cannot be predicted here ({reason}): it is measured, and what needs more than a "
                "configuration that did not fit is left out"
            )
            self.foresight.close()
            self.foresight = None
            if self.study.note(SKIPPED_NOTE):
                with self.interrupts.held():
                    self.study.set_note(SKIPPED_NOTE, 0)
        self.keep_skipped()

    def may_fit(self, points: Sequence[Point]) -> list[Point]:
        """Of these points those that are not predicted to break a budget."""
        if self.foresight is None:
            return list(points)
        return [point for point in points if self.foresight.may_fit(point)]

    def required_bytes(self, point: Point) -> int | None:
        """Device memory that a point is predicted to need; None where nothing is predicted of it."""
        outlook = self.foresight.outlook(point) if self.foresight else None
        return outlook.prediction.confirmed_required_device_bytes if outlook else None

    def decide(self, point: Point) -> bool:
        """Whether a point is to be launched; one near the budget is looked at closely first."""
        if self.foresight is None or self.foresight.decide(point):
            return True
        self.observer.detail("a configuration does not fit, as a closer look at it shows")
        self.keep_skipped()
        return False

    def keep_skipped(self) -> None:
        """Keep in the study how many points are not launched because of their prediction."""
        if self.foresight is None:
            return
        skipped = self.foresight.skipped({record.point for record in self.study.records()})
        if skipped != self.study.note(SKIPPED_NOTE):
            with self.interrupts.held():
                self.study.set_note(SKIPPED_NOTE, skipped)

    def measure(self, point: Point, candidates: int) -> None:
        """Run one trial of the search and record it.

        A trial that the end of the search's time cut short is not recorded: nothing is known of its point.

        Raises:
            KeyboardInterrupt: the user stopped it; the point may be tried again.
            EnvironmentProblem: the last trials all failed alike and none has succeeded.
        """
        records = self.measured()
        trial_timeout = self.task.request.trial_timeout_seconds
        allowed = min(trial_timeout, max(1.0, self.seconds_left()))
        number: int | None = None
        predicted = self.foresight.recorded(point) if self.foresight else None
        try:
            with self.interrupts.held():
                number = self.study.begin(point, predicted)
            position = self._position(number)
            spec = self.spec(trial_id(position, number), point, records=records)
            self.observer.trial_started(position, point, self.progress(candidates))
            result = self._undisturbed(f"trial {position}", spec, allowed)
            if result.outcome is Outcome.TIMEOUT and allowed < trial_timeout:
                return
            with self.interrupts.held():
                self.study.finish(number, result)
                self.results.append((number, result))
                number = None
        except PointTaken:
            return
        finally:
            if number is not None:
                self.study.abandon(number)
        self.observer.trial_finished(position, point, result, self.progress(candidates - 1))
        self.look_back(f"trial {position}", point, result, predicted)
        self._stop_if_hopeless()

    def _position(self, number: int) -> int:
        """The number by which users know the trial that has just begun."""
        return next(record.position for record in self.study.records() if record.number == number)

    def _undisturbed(self, name: str, spec: TrialSpec, timeout_seconds: float) -> TrialResult:
        """Run a trial; where its timing was disturbed, once more."""
        result = self.run(spec, timeout_seconds)
        if result.disturbed is None or result.outcome not in (Outcome.OK, Outcome.STOPPED):
            return result
        if self._repeats_in_vain >= MOST_REPEATS_IN_VAIN:
            self.observer.say(f"{name} was disturbed: {result.disturbed}")
            return result
        self.observer.say(f"{name} was disturbed ({result.disturbed}): it is measured once more")
        work = spec.model_copy(update={"work_dir": str(self.folders.fresh_work())})
        again = self.run(work, min(timeout_seconds, max(1.0, self.seconds_left())))
        if again.outcome not in (Outcome.OK, Outcome.STOPPED):
            # Cut short by the end of the time, or worse: the first one ended well.
            return result
        self._repeats_in_vain = self._repeats_in_vain + 1 if again.disturbed else 0
        if self._repeats_in_vain == MOST_REPEATS_IN_VAIN:
            self.observer.say("measuring again does not help: disturbed trials are only marked from here on")
        return again

    def look_back(
        self, name: str, point: Point, result: TrialResult, predicted: dict[str, Any] | None
    ) -> None:
        """Compare a result with its prediction, and learn from what was not foreseen."""
        if self.foresight is None or predicted is None:
            return
        budgets = self.foresight.about.budgets
        assert budgets.device_bytes is not None and budgets.host_bytes is not None
        surprise = surprise_words(name, predicted, result, budgets.device_bytes, budgets.host_bytes)
        if surprise:
            self.observer.say(surprise)
        look_back(self.foresight, name, point, result, self.observer.say)
        self.keep_skipped()

    def run(self, spec: TrialSpec, timeout_seconds: float, *, fresh: bool = False) -> TrialResult:
        """Run one specification, empty its work folder, and keep what it shows of the machine.

        Args:
            spec: what to run.
            timeout_seconds: it is killed after this long.
            fresh: whether in a process of its own, even where a live engine could measure it.

        Raises:
            KeyboardInterrupt: the user stopped it.
        """
        try:
            result = self.runner.run(
                spec, timeout_seconds=timeout_seconds, on_event=self._on_event, fresh=fresh
            )
        finally:
            self.folders.clear_work()
        self.outside.learn(spec.point, result)
        return result

    def _on_event(self, event: dict[str, Any]) -> None:
        self.observer.trial_event(event)
        if event.get("about") == "others" and not self._told_of_others:
            self._told_of_others = True
            self.observer.say(f"{event['text']}: what is measured meanwhile is slower than it would be alone")

    def spec(
        self,
        trial_id: str,
        point: Point,
        *,
        records: Sequence[Record] = (),
        confirm: bool = False,
        limited: bool = True,
    ) -> TrialSpec:
        """The specification of one trial.

        Args:
            trial_id: names its log file.
            point: the configuration.
            records: the trials so far: one that is surely slower than they are may stop early.
            confirm: whether it is the winner's longer run.
            limited: whether the budgets are enforced.
        """
        task = self.task
        if task.device == "cuda":
            longer = GPU_CONFIRMATION if confirm else GPU_TRIAL
        else:
            longer = CONFIRMATION if confirm else {}
        self.folders.logs.mkdir(parents=True, exist_ok=True)
        return TrialSpec(
            trial_id=trial_id,
            model=task.model,
            point=point,
            seq_len=task.seq_len,
            lora_targets=task.request.lora_targets,
            device=task.device,
            processes=task.request.gpus,
            budget_bytes=task.budget.size_bytes if limited else None,
            outside_allocator_bytes=self.outside.bytes_for(point),
            host_budget_bytes=task.host_budget_bytes if limited else None,
            nvme_path=task.request.nvme_path,
            torch_adam=self.torch_adam,
            seed=task.request.seed,
            stop_below_tokens_per_second=stop_below(point, records),
            decided_below_tokens_per_second=decided_below(point, records),
            confirm=confirm,
            log_path=str(self.folders.log_of(trial_id)),
            work_dir=str(self.folders.fresh_work()),
            **longer,
        )

    def _stop_if_hopeless(self) -> None:
        if any(result.outcome in (Outcome.OK, Outcome.STOPPED) for result in self._all_results()):
            return
        failure = repeated_failure([result for _, result in self.results])
        if failure is None:
            return
        # Whatever was wrong with the machine says nothing about these points: they may be tried again.
        failed = [number for number, _ in self.results[-3:]]
        self.study.set_note(DISREGARDED_NOTE, [*disregarded(self.study), *failed])
        raise repeated_problem(failure, self.folders.log_of(failure.trial_id))

    def _all_results(self) -> Sequence[TrialResult]:
        return [record.result for record in measured_records(self.study) if record.result is not None]


def measured_records(study: Study) -> list[Record]:
    """The study's trials that have ended, but for those that only showed that the machine was not ready."""
    ignored = set(disregarded(study))
    return [r for r in study.records() if r.result is not None and r.number not in ignored]


def judged_records(study: Study) -> list[Record]:
    """The same trials; what did not hold in a longer run ends as that one did: it is no configuration to win,
    and shows what needs too much like any trial that failed.
    """
    return list(judge(measured_records(study), study.confirmations(), study.inputs.budget_bytes))


def disregarded(study: Study) -> list[int]:
    """Numbers of the trials that say nothing of their points."""
    return list(study.note(DISREGARDED_NOTE) or [])
