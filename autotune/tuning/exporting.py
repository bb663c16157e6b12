"""Which of a study's points goes to a trainer, and what is said where the winner does not go whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import UsageError
from autotune.export import (
    EVERY,
    EXPORTERS,
    Exporter,
    Winner,
    chosen_exporters,
    export_folder,
    loss_words,
    senseless,
)
from autotune.space.trainers import TITLES, losses
from autotune.tuning.confirm import Chosen, effective_records
from autotune.tuning.confirmations import confirmation_of, failed_points
from autotune.tuning.handover import missing_folder
from autotune.tuning.session import measured_records
from autotune.winner import choose_winner
from trials.wire import Outcome, Point

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from autotune.space.setting import RequestedMethod
    from autotune.study import Study


def trial_of(study: Study, number: int) -> Chosen:
    """A trial that ran well, to be exported in the winner's place.

    Args:
        study: whose trial.
        number: as `autotune show` counts, from 1.

    Raises:
        UsageError: there is no such trial, or it did not run well.
    """
    for record in measured_records(study):
        if record.position == number and record.result is not None:
            if record.result.outcome is not Outcome.OK:
                outcome = record.result.outcome.value
                raise UsageError(
                    f"trial {number} ended in {outcome}", "only a trial that ran well is exported"
                )
            return Chosen(record, confirmation_of(study, record.point))
    raise UsageError(f"the study {study.name} has no trial {number}", f"'{study.command('show')}' lists them")


def best_without_loss(study: Study, trainer: str) -> Chosen | None:
    """The best measured point that the trainer can express wholly; None where none was measured."""
    records = [record for record in effective_records(study) if not losses(trainer, record.point)]
    best = choose_winner(records, exclude=failed_points(study), budget_bytes=study.inputs.budget_bytes)
    return trial_of(study, best.position) if best is not None else None


def trainers_files(formats: Iterable[str], point: Point) -> dict[str, str]:
    """The file that each trainer of these formats reads first, by the trainer's title."""
    exporters = chosen_exporters(formats, point)
    return {TITLES[one.name]: one.main_file for one in exporters if one.has_own_files}


def refuse_senseless(formats: Iterable[str], method: RequestedMethod) -> None:
    """Raises a UsageError where no winner of the method could be exported so, before a night is spent."""
    if method != "full":
        return
    for name in formats:
        reason = senseless(name, Point()) if name != EVERY else None
        if reason is not None:
            raise UsageError(*reason)


def export_winner(winner: Winner, folder: Path, formats: Sequence[str], say: Callable[[str], None]) -> Path:
    """The winner's folder after a run: what makes no sense for it is left out, and said, as is what is lost.

    Args:
        winner: what won.
        folder: where to.
        formats: the trainers asked for; `all` is every one.
        say: told in one sentence what a trainer does not get.
    """
    missing = missing_folder(winner)
    if missing is not None:
        say(missing)
    names = list(EXPORTERS) if EVERY in formats else list(dict.fromkeys(formats))
    kept: list[Exporter] = []
    for name in names:
        reason = senseless(name, winner.point)
        if reason is not None:
            say(f"{name} is left out: {reason[0]}")
            continue
        kept.append(EXPORTERS[name])
        for words in loss_words(name, winner):
            say(f"{name}: {words}; --trainer {name} searches only what {TITLES[name]} can do")
    return export_folder(winner, folder, kept)
