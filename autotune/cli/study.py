"""`autotune study`: studies that travel (export, import, copy) and go (delete, prune)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from autotune.cli.options import debug_option, json_option, option, storage_option, study_option
from autotune.cli.output import print_json, print_text
from autotune.cli.studies import find_study
from autotune.cli.values import DURATION
from autotune.counting import counted
from autotune.errors import EnvironmentProblem, UsageError

if TYPE_CHECKING:
    from autotune.study import StudySummary
    from autotune.study.document import Document

STANDARD_STREAM = "-"
as_option = click.option("--as", "new_name", metavar="NAME", help="What the study is called there.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group("study", context_settings={"help_option_names": ["-h", "--help"]})
def study_group() -> None:
    """Export, import, copy, delete and prune studies."""


@study_group.command("export")
@click.argument("file", metavar="FILE")
@study_option
@storage_option
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@json_option
@debug_option
def export_study(file: str, study: str | None, storage: str | None, force: bool, as_json: bool) -> int:
    """Write a study to FILE ('-': stdout), one JSON object a line, for 'autotune study import'."""
    from autotune.study.document import document_of
    from autotune.study.study_file import write_lines

    found = find_study(storage, study)
    document = document_of(found)
    running = sum(record.result is None for record in found.records())
    if running:
        click.echo(f"{running} running trials are left out", err=True)
    text = "".join(write_lines(document))
    if file == STANDARD_STREAM:
        print_text(text)
        return 0
    _write(Path(file), text, force=force)
    if as_json:
        print_json({"file": file, **_counts(document)})
    else:
        print_text(f"{file}: {_counts_words(document)}")
    return 0


@study_group.command("import")
@click.argument("file", metavar="FILE")
@storage_option
@as_option
@json_option
@debug_option
def import_study(file: str, storage: str | None, new_name: str | None, as_json: bool) -> int:
    """Bring in the study of FILE ('-': stdin): all of it or nothing, and never over another one."""
    from autotune.study.study_file import read_lines

    if file == STANDARD_STREAM:
        document = read_lines(sys.stdin, "stdin")
    else:
        with _open(Path(file)) as lines:
            document = _decoded(lines, file)
    return _store(document, storage, new_name, as_json=as_json)


@study_group.command("copy")
@click.argument("name", required=False, metavar="[STUDY]")
@study_option
@storage_option
@click.option("--to", metavar="URL", help="The storage to copy to.  [default: the same]")
@as_option
@json_option
@debug_option
def copy(
    name: str | None,
    study: str | None,
    storage: str | None,
    to: str | None,
    new_name: str | None,
    as_json: bool,
) -> int:
    """Copy STUDY (without a name the last one) to another storage, or under another name."""
    from autotune.study.document import document_of

    if to is None and new_name is None:
        raise UsageError("where to is missing", "give --to URL, --as NAME, or both")
    document = document_of(find_study(storage, _one_name(name, study)))
    return _store(document, to or storage, new_name, as_json=as_json)


@study_group.command("delete")
@click.argument("names", nargs=-1, metavar="STUDY...")
@storage_option
@yes_option
@json_option
@debug_option
def delete(names: tuple[str, ...], storage: str | None, yes: bool, as_json: bool) -> int:
    """Delete each STUDY with all its trials, after a question."""
    from autotune.study import contents_of, default_storage_url
    from autotune.tuning.removal import refuse_busy, remove

    if not names:
        raise UsageError("no study is named", "'autotune list' lists them")
    url = storage or default_storage_url()
    contents = contents_of(url)
    there = {summary.name: summary for summary in contents.summaries}
    for name in names:
        if name in contents.unreadable:
            raise contents.unreadable[name]
        if name not in there:
            find_study(url, name)
    doomed = [there[name] for name in dict.fromkeys(names)]
    refuse_busy(doomed, datetime.now(UTC))
    _ask(doomed, yes=yes)
    remove(url, [summary.name for summary in doomed])
    return _gone(doomed, as_json=as_json)


@study_group.command("prune")
@option("--older-than", type=DURATION, help="Those last tuned longer ago, e.g. 90d.")
@option("--keep", type=click.IntRange(min=0), metavar="N", help="The last tuned N stay in any case.")
@storage_option
@yes_option
@json_option
@debug_option
def prune(older_than: float | None, keep: int | None, storage: str | None, yes: bool, as_json: bool) -> int:
    """Delete old studies, after showing them and a question; what is being tuned stays."""
    from autotune.study import contents_of, default_storage_url
    from autotune.study.pruning import prunable
    from autotune.tuning.removal import busy_words, remove

    if older_than is None and keep is None:
        raise UsageError("which studies are old is missing", "give --older-than 90d, --keep 20, or both")
    url, now = storage or default_storage_url(), datetime.now(UTC)
    summaries = contents_of(url).summaries
    busy = [summary.name for summary in summaries if busy_words(summary, now)]
    age = None if older_than is None else timedelta(seconds=older_than)
    doomed = prunable(summaries, now, older_than=age, keep=keep, running=busy)
    if doomed:
        _ask(doomed, yes=yes)
        remove(url, [summary.name for summary in doomed])
    return _gone(doomed, as_json=as_json)


def _one_name(argument: str | None, option_value: str | None) -> str | None:
    if argument is not None and option_value is not None and argument != option_value:
        raise UsageError(f"two studies are named, {argument} and {option_value}", "name one")
    return argument or option_value


def _store(document: Document, storage: str | None, new_name: str | None, *, as_json: bool) -> int:
    from autotune.study import default_storage_url
    from autotune.study.document import store

    is_new = store(document, storage or default_storage_url(), new_name)
    name = new_name or document.name
    if as_json:
        print_json({**_counts(document), "study": name, "new": is_new})
    elif is_new:
        print_text(f"{name}: {_counts_words(document)}")
    else:
        print_text(f"{name} is there already, with the same trials: nothing was done")
    return 0


def _counts(document: Document) -> dict[str, object]:
    return {
        "study": document.name,
        "trials": len(document.trials),
        "confirmations": len(document.confirmations),
    }


def _counts_words(document: Document) -> str:
    return f"{counted(len(document.trials), 'trial')}, {counted(len(document.confirmations), 'confirmation')}"


def _write(path: Path, text: str, *, force: bool) -> None:
    """Writes the file whole or not at all."""
    if path.exists() and not force:
        raise UsageError(f"{path} exists", "name another file, or give --force")
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise EnvironmentProblem(f"cannot write {path}: {error.strerror}", "give another file") from None


def _open(path: Path) -> TextIO:
    try:
        return path.open(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "give the file that was exported") from None


def _decoded(lines: TextIO, file: str) -> Document:
    from autotune.study.study_file import read_lines

    try:
        return read_lines(lines, file)
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not text", "give a file that 'autotune study export' wrote") from None


def _ask(doomed: Sequence[StudySummary], *, yes: bool) -> None:
    """Shows what would be deleted, and asks.

    Raises:
        UsageError: nobody can be asked.
        click.Abort: the answer is no.
    """
    from autotune.display.columns import table
    from autotune.display.words import speed_words

    rows = [
        [
            summary.name,
            str(sum(summary.trials.values())),
            speed_words(summary.best_tokens_per_second),
            f"{summary.opened_at.astimezone():%Y-%m-%d}",
        ]
        for summary in doomed
    ]
    if yes:
        return
    click.echo(table(["to be deleted", "trials", "best", "last run"], rows, right=(1, 2)), err=True)
    if not sys.stdin.isatty():
        raise UsageError("nothing was deleted: nobody can be asked here", "give --yes to delete them")
    click.confirm("delete for good?", abort=True, err=True)


def _gone(doomed: Sequence[StudySummary], *, as_json: bool) -> int:
    names = [summary.name for summary in doomed]
    if as_json:
        print_json({"deleted": names})
    else:
        print_text("\n".join(f"deleted {name}" for name in names) or "nothing to delete")
    return 0
