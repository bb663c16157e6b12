"""`autotune doctor`: all checks, and what they come to."""

from __future__ import annotations

from dataclasses import asdict

import click

from autotune.cli.doctor.check import Check
from autotune.cli.options import debug_option, json_option, option, quiet_option
from autotune.cli.output import print_json, print_text
from autotune.cli.telling import Telling
from autotune.errors import ExitCode


@click.command("doctor")
@option(
    "--validate",
    is_flag=True,
    help="Compare predictions with a dozen small runs on this GPU instead; exit code 2 where one is off.",
)
@quiet_option
@json_option
@debug_option
def doctor(validate: bool, quiet: bool, as_json: bool) -> int:
    """Whether this machine is ready: libraries, GPU, compilers, folders. Exit code 2 where one fails."""
    if validate:
        return _validate(quiet=quiet, as_json=as_json)
    checks = all_checks()
    if as_json:
        print_json({"ready": is_ready(checks), "checks": [asdict(check) for check in checks]})
    else:
        print_text(report(checks))
    return 0 if is_ready(checks) else int(ExitCode.USAGE)


def _validate(*, quiet: bool, as_json: bool) -> int:
    """Run the comparison, say what came of it."""
    from autotune.cli.unchecked import warn_of_versions
    from autotune.display.validations import validation_text
    from autotune.study.storage_url import default_folder
    from autotune.tuning.needed_folders import make_data_folder
    from autotune.tuning.validation import MOST_OFF, Validated, all_hold, run_validation, validation_json

    folder = default_folder()
    make_data_folder(folder, "this machine's figures")
    rows: list[Validated] = []
    try:
        with Telling(quiet=quiet) as telling:
            warn_of_versions(telling.say)
            machine = run_validation(folder, telling.say, rows.append)
    except KeyboardInterrupt:
        if rows and not as_json:
            print_text(validation_text(rows, MOST_OFF))
        raise
    if as_json:
        print_json(validation_json(machine.gpu_name, machine.versions, rows))
    else:
        print_text(validation_text(rows, MOST_OFF))
    return 0 if all_hold(rows) else int(ExitCode.USAGE)


def all_checks() -> list[Check]:
    """Every check; what takes seconds only where nothing else stands in the way."""
    from autotune.cli.doctor.building import building_checks
    from autotune.cli.doctor.device import device_checks
    from autotune.cli.doctor.folders import folder_checks
    from autotune.cli.doctor.loading import loading_check
    from autotune.cli.doctor.versions import version_checks

    devices = device_checks()
    with_gpu = any(check.name == "gpu" and check.verdict == "ok" for check in devices)
    cheap = [*version_checks(), *devices, *building_checks(with_gpu=with_gpu), *folder_checks()]
    if not is_ready(cheap):
        return cheap
    return [*cheap, loading_check("cuda" if with_gpu else "cpu")]


def is_ready(checks: list[Check]) -> bool:
    """Whether `autotune run` can work."""
    return all(check.verdict != "fail" for check in checks)


def report(checks: list[Check]) -> str:
    """A line per check, its hint under it, and the sum of it."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.verdict:<4}  {check.name:<{width}}  {check.found}")
        if check.hint:
            lines.append(f"      {'':<{width}}  -> {check.hint}")
    failed = [check.name for check in checks if check.verdict == "fail"]
    lines.append(f"\nnot ready: {', '.join(failed)}" if failed else "\nready")
    return "\n".join(lines)
