"""Trials that were predicted: kept side by side, compared and told; run for real, on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prediction_samples import GIB, MIB, make_foresight, prediction
from session_samples import make_session, make_task

from autotune.cli.show import _record_text, record_json
from autotune.running import TrialRunner, inspect_machine
from autotune.running.ops import needed_ops
from autotune.tuning.findings import findings_of
from autotune.tuning.search import Ending, search
from autotune.tuning.session import Session
from trials.wire import Outcome

pytestmark = pytest.mark.slow

PHASES = {"load": 30 * MIB, "start": 60 * MIB, "first_step": 100 * MIB, "later_step": 100 * MIB}


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, Ending, list[str]]]:
    """Two points under 1 GiB, one predicted to need 5: what the CPU counts is not what was predicted."""
    folder = tmp_path_factory.mktemp("searched")
    machine = inspect_machine("cpu")
    task = make_task(folder, "lora", budget_bytes=GIB, machine=machine, trials=5)
    foresight = make_foresight(folder, budget_bytes=GIB, model=task.model)
    small, large = sorted(task.stages[0].points, key=lambda point: point.micro_batch_size)
    # On the CPU nothing is outside the allocator.
    plain = prediction(PHASES).model_copy(
        update={"outside_allocator_bytes": 0, "required_device_bytes": 120 * MIB}
    )
    foresight.know(small, plain)
    foresight.know(large, plain.model_copy(update={"required_device_bytes": 5 * GIB}))
    with TrialRunner("cpu", model_type="llama", log_dir=folder) as runner:
        runner.prepare(needed_ops([small, large], machine), lambda text: None)
        session, lines = make_session(folder, task, foresight, runner)
        ending = search(session)
    yield session, ending, lines.getvalue().splitlines()


def test_only_what_may_fit_is_launched(searched: tuple[Session, Ending, list[str]]) -> None:
    session, ending, _ = searched
    [record] = session.study.records()
    assert ending is Ending.EXHAUSTED
    assert record.point.micro_batch_size == 1
    assert record.result is not None and record.result.outcome is Outcome.OK, record.result
    assert findings_of(session.study).skipped == 1


def test_the_trial_keeps_what_was_predicted_beside_what_was_measured(
    searched: tuple[Session, Ending, list[str]],
) -> None:
    session, _, _ = searched
    [record] = session.study.records()
    assert record.predicted is not None and record.result is not None
    assert record.predicted["phase_peak_allocated_bytes"] == PHASES
    shown = record_json(session.study, record)
    measured = record.result.phase_peak_allocated_bytes["later_step"]
    assert shown["compared"]["later_step"]["predicted_bytes"] == 100 * MIB
    assert shown["compared"]["later_step"]["off"] == pytest.approx(100 * MIB / measured - 1)
    text = _record_text(session.study, record)
    [line] = [line for line in text.splitlines() if line.startswith("peak in later steps")]
    assert "100 MiB" in line and line.endswith("%")


def test_the_difference_is_told_and_kept(searched: tuple[Session, Ending, list[str]]) -> None:
    session, _, lines = searched
    [record] = session.study.records()
    assert session.foresight is not None and record.result is not None
    assert [line for line in lines if line.startswith("trial 1: ") and "was predicted" in line]
    deltas = session.foresight.corrections.deltas(record.point, PHASES)
    measured = record.result.phase_peak_allocated_bytes
    assert deltas == {phase: measured[phase] - PHASES[phase] for phase in PHASES if phase in measured}
