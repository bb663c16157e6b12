"""`autotune best`: a study's winner and its price list."""

from __future__ import annotations

import click

from autotune.cli.options import debug_option, json_option, storage_option, study_options
from autotune.cli.output import print_json, print_text
from autotune.cli.studies import find_study
from autotune.errors import ExitCode, NothingFits


@click.command("best")
@study_options
@storage_option
@json_option
@debug_option
def best(study: str | None, storage: str | None, as_json: bool) -> int:
    """The winner of a study, and the best throughput for each value of the quality knobs."""
    from autotune.display.results import findings_text
    from autotune.sizes import format_size
    from autotune.tuning.findings import findings_json, findings_of

    found = find_study(storage, study)
    findings = findings_of(found)
    if as_json:
        print_json(findings_json(findings))
    elif findings.chosen is not None:
        print_text(findings_text(findings))
    if findings.chosen is None:
        raise NothingFits(
            f"the study {findings.study} has no configuration that fits {format_size(findings.budget_bytes)}",
            f"'{found.command('show')}' has its trials",
        )
    return int(ExitCode.WINNER)
