"""`autotune status`: how a study stands."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.options import debug_option, json_option, storage_option, study_options
from autotune.cli.output import print_json, print_text
from autotune.cli.studies import find_study

if TYPE_CHECKING:
    from autotune.study import Study


@click.command("status")
@study_options
@storage_option
@json_option
@debug_option
def status(study: str | None, storage: str | None, as_json: bool) -> int:
    """How a study stands: whether it is running, its trials by outcome, and its best."""
    found = find_study(storage, study)
    state = study_state(found)
    if as_json:
        print_json(state)
    else:
        print_text(_text(found, state))
    return 0


def study_state(study: Study) -> dict[str, Any]:
    """The study's state as plain values: whether it runs (null where that cannot be seen), counts, best."""
    from autotune.tuning.findings import findings_json, findings_of
    from autotune.tuning.handover import TRIALS_NOTE
    from autotune.tuning.ownership import owner_of

    owner = owner_of(study)
    records = study.records()
    answer = findings_json(findings_of(study))
    del answer["price_list"]
    return answer | {
        "running": owner.is_running() if owner else False,
        "host": owner.host if owner else None,
        "pid": owner.pid if owner else None,
        "trials_asked": study.note(TRIALS_NOTE),
        "last_activity": max(
            ((r.finished_at or r.started_at).isoformat() for r in records if r.started_at), default=None
        ),
    }


def _local(moment: str | None) -> str:
    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M:%S}" if moment else ""


def _text(study: Study, state: dict[str, Any]) -> str:
    from autotune.display.columns import fields
    from autotune.display.results import counts_text, winner_text
    from autotune.sizes import format_size
    from autotune.tuning.findings import findings_of

    findings = findings_of(study)
    place = f"process {state['pid']} on {state['host']}"
    running = {True: f"running: {place}", False: "not running", None: f"taken by {place}"}[state["running"]]
    asked = state["trials_asked"]
    inputs = study.inputs
    lines = fields(
        [
            ("study", study.name),
            ("state", running),
            ("model", f"{inputs.model}, {inputs.method}, {inputs.seq_len:,} tokens"),
            ("budget", f"{format_size(inputs.budget_bytes)} on {inputs.gpu_name or inputs.device}"),
            ("trials", counts_text(findings) + (f" (of {asked} asked for)" if asked else "")),
            ("last activity", _local(state["last_activity"])),
        ]
    )
    if findings.chosen is None:
        return f"{lines}\n\nno configuration has succeeded so far"
    return f"{lines}\n\n{winner_text(findings.chosen, findings.budget_bytes)}"
