"""`autotune report`: a study as one self-contained HTML page."""

from __future__ import annotations

import re
from pathlib import Path

import click

from autotune.cli.options import debug_option, json_option, option, storage_option, study_options
from autotune.cli.output import print_json, print_text
from autotune.cli.studies import find_study
from autotune.cli.values import TEXT
from autotune.errors import UsageError

LONGEST_STEM = 200
STANDARD_STREAM = "-"


@click.command("report")
@study_options
@option("--output", type=TEXT, metavar="FILE.html", help="Where to; '-' is stdout.  [default: STUDY.html]")
@storage_option
@json_option
@debug_option
def report(study: str | None, output: str | None, storage: str | None, as_json: bool) -> int:
    """Write one HTML page that shows a study: the winner, how sure it is, and all that was measured."""
    from autotune.report.evidence import gather
    from autotune.report.forecast import forecast_of
    from autotune.report.page import report_page
    from autotune.report.writing import check_place, write_page
    from autotune.sizes import format_size
    from autotune.study import default_storage_url

    found = find_study(storage, study)
    to_stdout = output == STANDARD_STREAM
    if to_stdout and as_json:
        raise UsageError("--json and the page cannot both go to stdout", "name a file with --output")
    path = Path(output) if output else Path(f"{_stem(found.name)}.html")
    if not to_stdout:
        check_place(path)
    evidence = gather(found, storage or default_storage_url())
    forecast = forecast_of(evidence, lambda text: click.echo(text, err=True))
    if to_stdout:
        print_text(report_page(evidence, forecast))
        return 0
    size_bytes = write_page(path, report_page(evidence, forecast))
    if as_json:
        print_json({"study": found.name, "output": str(path), "size_bytes": size_bytes})
    else:
        print_text(f"{path} ({format_size(size_bytes)})")
    return 0


def _stem(study: str) -> str:
    """A file's name that every system takes, of a study's."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", study).strip(".-")[:LONGEST_STEM] or "report"
