"""`autotune run` without its screen: search, confirm, export, and an account of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.counting import counted
from autotune.errors import EnvironmentProblem, UsageError
from autotune.export import check_export_folder
from autotune.tuning.candidates import MEMORY_FAILURES
from autotune.tuning.completion import is_searched, note_searched
from autotune.tuning.confirm import best_so_far, confirm_winner
from autotune.tuning.confirmations import failed_points
from autotune.tuning.exporting import export_winner, refuse_senseless, trainers_files
from autotune.tuning.findings import RunResult, findings_of
from autotune.tuning.folders import Folders, check_can_be_made, study_folders
from autotune.tuning.gained import tell_worth
from autotune.tuning.handover import measured_on, remember, winner_of
from autotune.tuning.head_start import HeadStart
from autotune.tuning.interrupts import Interrupts
from autotune.tuning.needed_folders import check_operators_folder, make_data_folder
from autotune.tuning.observer import Observer, Opened
from autotune.tuning.ownership import give_back, take
from autotune.tuning.predicting import foresight_of, tracing_processes
from autotune.tuning.readiness import get_ready
from autotune.tuning.removal import remove
from autotune.tuning.request import Request
from autotune.tuning.search import Ending, anything_left, search
from autotune.tuning.session import Session, measured_records
from autotune.tuning.shortfall import (
    PredictedShortfall,
    Shortfall,
    found_shortfall,
    known_shortfall,
    predict_shortfall,
)
from autotune.tuning.similar_studies import begin, check_named, reuse_json
from autotune.tuning.task import Task, prepare_task
from trials.wire import Outcome

if TYPE_CHECKING:
    from autotune.study import Study


def tune(request: Request, observer: Observer, interrupts: Interrupts) -> RunResult:
    """Find the fastest configuration that fits, confirm it and export it; an unfinished study goes on.

    Args:
        request: what the user asked for.
        observer: told what happens.
        interrupts: installed by the caller.

    Returns:
        The study's findings, also where nothing fits or the user stopped it.

    Raises:
        UsageError: the request is wrong.
        EnvironmentProblem: the machine, the storage or the export folder cannot do it.
        KeyboardInterrupt: stopped before there was a study, or a second time.
    """
    from autotune.study import Study, default_storage_url
    from autotune.study.storage_url import default_folder

    began = time.monotonic()
    refuse_senseless(request.exports, request.method)
    task = prepare_task(request, observer.say)
    url = request.storage or default_storage_url()
    check_named(task, url)
    check_operators_folder(task)
    if request.export_dir is not None:
        # Before there is a study to be left behind.
        _check_export(request.export_dir, request.exports)
    study = Study.open(url, task.inputs, request.study)
    folders = study_folders(default_folder(), study.name, url, request.export_dir)
    if request.export_dir is None:
        _check_export(folders.export, request.exports)
    make_data_folder(folders.logs, "the trials' logs")
    take(study)
    refused = False
    try:
        folders.clear_work()
        remember(study, task.model, request.command, request.trials)
        return _tune_study(task, study, folders, default_folder(), observer, interrupts, began)
    except UsageError:
        refused = not study.records()
        raise
    finally:
        give_back(study)
        if refused:
            # A request that could not be measured at all leaves no study behind.
            remove(url, [study.name])


def _check_export(folder: Path, formats: tuple[str, ...]) -> None:
    check_export_folder(folder, formats)
    check_can_be_made(folder, "the winner", "choose another folder with --export-dir")


def _tune_study(
    task: Task,
    study: Study,
    folders: Folders,
    data_folder: Path,
    observer: Observer,
    interrupts: Interrupts,
    began: float,
) -> RunResult:
    from autotune.study import default_storage_url

    observer.opened(
        Opened(
            study=study.name,
            stages=tuple(stage.words() for stage in task.stages),
            measured=len(measured_records(study)),
            trials=task.request.trials,
            sampler=task.request.sampler,
        )
    )
    shortfall, interrupted = known_shortfall(study), False
    if not _is_finished(study, task):
        try:
            url = task.request.storage or default_storage_url()
            head_start = begin(study, task, url, observer.say, observer.detail)
            shortfall = _work(task, study, folders, data_folder, observer, interrupts, began, head_start)
        except KeyboardInterrupt:
            if interrupts.count != 1:
                raise
            interrupted = True
    chosen = best_so_far(study)
    exported, trainers = None, {}
    if chosen is not None:
        winner = winner_of(study, chosen)
        trainers = trainers_files(task.request.exports, winner.point)
        exported = export_winner(winner, folders.export, task.request.exports, observer.say)
    return RunResult(
        findings=findings_of(study),
        export_dir=exported,
        shortfall=None if chosen else shortfall,
        interrupted=interrupted,
        reuse=reuse_json(study),
        trainers=trainers,
        wall_seconds=time.monotonic() - began,
    )


def _is_finished(study: Study, task: Task) -> bool:
    """Whether nothing is left to run: no trial, and the winner confirmed or known not to exist.

    Asked before the trial process is started, which takes longer than all else that remains to be done then.
    What that process knows of the model can only take points away.
    """
    unused = len(measured_records(study)) < task.request.trials
    if unused and anything_left(task, study) and not is_searched(study, task):
        return False
    chosen = best_so_far(study)
    return chosen.confirmation is not None if chosen else known_shortfall(study) is not None


def _work(
    task: Task,
    study: Study,
    folders: Folders,
    data_folder: Path,
    observer: Observer,
    interrupts: Interrupts,
    began: float,
    head_start: HeadStart | None,
) -> Shortfall | PredictedShortfall | None:
    from autotune.running import TrialRunner

    model_type = task.model.config.get("model_type")
    with (
        tracing_processes(task) as pool,
        TrialRunner(task.device, model_type=model_type, log_dir=folders.logs) as runner,
    ):
        try:
            observer.say("starting the trial process (loads torch and transformers once)")
            ready = get_ready(task, runner, data_folder, folders.logs, observer.say)
            study.set_machine(measured_on(task.machine, ready.rates.as_plain() if ready.rates else None))
            for stage in ready.task.stages:
                for note in stage.notes:
                    observer.say(note)
            with foresight_of(ready, data_folder, observer, pool) as foresight:
                session = Session(
                    task=ready.task,
                    study=study,
                    runner=runner,
                    observer=observer,
                    interrupts=interrupts,
                    folders=folders,
                    outside=ready.outside,
                    torch_adam=ready.torch_adam,
                    deadline=began + task.request.timeout_seconds,
                    foresight=foresight,
                    head_start=head_start,
                    rates=ready.rates,
                )
                return _search_and_confirm(session, task)
        except KeyboardInterrupt:
            # Said before the processes end, which takes a moment.
            observer.say(stopping_words(study))
            raise


def stopping_words(study: Study) -> str:
    """What a user who stops the study is left with."""
    if best_so_far(study) is not None:
        return "stopping: the best so far is kept; the same command goes on later"
    measured = len(measured_records(study))
    if not measured:
        return "stopping before a trial has ended: there is no best yet; the same command begins again"
    what = f"{counted(measured, 'trial')} ended and {'is' if measured == 1 else 'are'} kept, but none is good"
    return f"stopping: {what} so far; the same command goes on later"


def _search_and_confirm(session: Session, asked: Task) -> Shortfall | PredictedShortfall | None:
    """Search, confirm, and where nothing holds say what is missing.

    Args:
        session: the work.
        asked: the task before the model was looked at, as the next call will have it.
    """
    told = -1
    while True:
        failed = failed_points(session.study)
        ending = search(session)
        measured = len(session.measured())
        if measured != told:
            told = measured
            session.observer.say(f"the search is over: {ending.value}")
            tell_worth(session)
        cut_short = ending in (Ending.TRIALS, Ending.TIME)
        won = confirm_winner(session, go_on=cut_short) is not None
        if won or cut_short or failed_points(session.study) == failed:
            break
    # Not before: what does not hold leaves something to search for.
    _note_searched(session, asked, ending)
    if won:
        return None
    if ending is Ending.EXHAUSTED and not session.measured():
        # Nothing was launched, and nothing need be to say why.
        foreseen = predict_shortfall(session)
        if foreseen is not None:
            return foreseen
    _require_memory_failures(session.study)
    return found_shortfall(session, cut_short=cut_short)


def _note_searched(session: Session, asked: Task, ending: Ending) -> None:
    foresight = session.foresight
    if ending is Ending.SETTLED or (ending is Ending.EXHAUSTED and foresight is not None):
        with session.interrupts.held():
            note_searched(
                session.study,
                asked,
                host_limited=foresight is not None and foresight.is_host_limited(),
                until=asked.request.until if ending is Ending.SETTLED else 0.0,
            )


def _require_memory_failures(study: Study) -> None:
    """Raises where no failure was about memory: to say that nothing fits would be wrong."""
    trials = [record.result for record in measured_records(study) if record.result is not None]
    longer_runs = [record.result for record in study.confirmations() if record.result is not None]
    if any(result.outcome in MEMORY_FAILURES for result in [*trials, *longer_runs]):
        return
    if not trials:
        raise EnvironmentProblem("the time was up before a trial had ended", "give --timeout more")
    reasons = f"'{study.command('show')}' has the reasons"
    if any(result.outcome is Outcome.OK for result in trials):
        last = longer_runs[-1]
        why = f"{last.outcome.value}: {last.message}"
        raise EnvironmentProblem(f"no configuration held in a longer run of its own ({why})", reasons)
    outcomes = ", ".join(sorted({result.outcome.value for result in trials}))
    why = next((": " + " ".join(result.message.split())[:200] for result in trials if result.message), "")
    raise EnvironmentProblem(f"no trial succeeded and none was about memory ({outcomes}){why}", reasons)
