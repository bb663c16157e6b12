"""`autotune list`: the studies of a storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from autotune.cli.options import debug_option, json_option, storage_option
from autotune.cli.output import print_json, print_text

if TYPE_CHECKING:
    from autotune.study import StudySummary


@click.command("list")
@storage_option
@json_option
@debug_option
def list_command(storage: str | None, as_json: bool) -> int:
    """The studies there are, the one last tuned last."""
    from autotune.cli.failure import one_line
    from autotune.study import contents_of, default_storage_url, redact

    url = storage or default_storage_url()
    contents = contents_of(url)
    summaries = contents.summaries
    for error in contents.unreadable.values():
        click.echo(f"not shown: {one_line(str(error))}", err=True)
    if as_json:
        print_json([_summary_json(summary) for summary in summaries])
    elif summaries:
        print_text(_text(summaries))
    elif not contents.unreadable:
        click.echo(f"no study in {redact(url)}: 'autotune run' makes one", err=True)
    return 0


def _summary_json(summary: StudySummary) -> dict[str, Any]:
    from trials.wire import Outcome

    return {
        "study": summary.name,
        "created_at": summary.created_at.isoformat(),
        "opened_at": summary.opened_at.isoformat(),
        "trials": {outcome.value: summary.trials.get(outcome, 0) for outcome in Outcome},
        "running": summary.running,
        "best_tokens_per_second": summary.best_tokens_per_second,
        "inputs": summary.inputs.model_dump(mode="json"),
    }


def _text(summaries: tuple[StudySummary, ...]) -> str:
    from autotune.display.columns import table
    from autotune.display.words import speed_words
    from autotune.sizes import format_size

    rows = [
        [
            summary.name,
            f"{summary.inputs.model}, {summary.inputs.method}, {format_size(summary.inputs.budget_bytes)}",
            str(sum(summary.trials.values())),
            speed_words(summary.best_tokens_per_second),
            "running now" if summary.running else f"{summary.opened_at.astimezone():%Y-%m-%d %H:%M}",
        ]
        for summary in summaries
    ]
    return table(["study", "about", "trials", "best", "last run"], rows, right=(2, 3))
