"""What a search measures next, once something was carried over from another study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from session_samples import make_session, make_task
from tuning_samples import add, trial_result

from autotune.reuse import Similar, profile_of
from autotune.study import Record
from autotune.tuning.head_start import HeadStart
from autotune.tuning.search import _next_point
from trials.wire import Point


def test_the_search_measures_what_it_would_have_begun_with_after_what_was_carried_over(
    tmp_path: Path,
) -> None:
    task = make_task(tmp_path, "lora", sampler="physics")
    session, _ = make_session(tmp_path, task, None)
    space = [Point(lora_rank=16, micro_batch_size=size) for size in (1, 2, 4, 8)]
    target = profile_of(session.study.inputs, task.model, None)
    session.head_start = HeadStart(session.study, target, [Similar("s", 0.8, "", target, ())], lambda _: None)
    carried = {"point": space[3].model_dump(mode="json"), "expected": 1.0, "study": "s"}
    session.study.set_note("reuse", {"carried": [carried]})
    add(session.study, space[3], trial_result(1000.0))

    class Proposer:
        """Would begin with the second, and goes on with the first."""

        def propose(self, history: Sequence[Record], candidates: Sequence[Point]) -> Point:
            return space[0] if history else space[1]

    def next_point() -> Point:
        records = session.measured()
        left = [point for point in space if point not in {record.point for record in records}]
        return _next_point(session, records, [], left, Proposer())

    assert next_point() == space[1]
    add(session.study, space[1], trial_result(900.0))
    assert next_point() == space[0]
