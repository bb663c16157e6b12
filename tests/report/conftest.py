"""Studies and pages that are made once: they are only read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from report_studies import (
    empty_study,
    evidence_of,
    full_study,
    hopeless_study,
    single_study,
    unconfirmed_study,
)

from autotune.report.evidence import Evidence
from autotune.report.forecast import forecast_of
from autotune.report.page import report_page

KINDS = {
    "full": full_study,
    "empty": empty_study,
    "hopeless": hopeless_study,
    "single": single_study,
    "unconfirmed": unconfirmed_study,
}


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder as the working folder, and an environment without anything of autotune's."""
    for name in [name for name in os.environ if name.startswith("AUTOTUNE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def unhurried_disk() -> Iterator[None]:
    """SQLite does not wait for the disk: these studies have no crash to survive."""

    def at_once(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", at_once)
    try:
        yield
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "connect", at_once)


@pytest.fixture(scope="session")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Evidence]:
    """What is known of a study of every kind, by kind."""
    found = {}
    for kind, make in KINDS.items():
        folder = tmp_path_factory.mktemp(kind)
        with unhurried_disk():
            found[kind] = evidence_of(make(folder), folder)
    return found


@pytest.fixture(scope="session")
def pages(evidence: dict[str, Evidence]) -> dict[str, str]:
    """The page of each study, by kind."""
    return {kind: report_page(one, forecast_of(one, lambda _: None)) for kind, one in evidence.items()}
