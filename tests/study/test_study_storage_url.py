"""Where studies are kept by default, and that passwords are never shown."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autotune.study import default_storage_url, redact


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql://me:se@cr/e:t@host/db", "postgresql://me:***@host/db"),
        ("mysql+pymysql://:secret@host/db", "mysql+pymysql://:***@host/db"),
        ("postgresql://host/db?user=me&password=secret", "postgresql://host/db?user=me&password=***"),
        ("postgresql://host/db?sslpassword=secret&a=b", "postgresql://host/db?sslpassword=***&a=b"),
        ("postgresql://me@host:5432/db", "postgresql://me@host:5432/db"),
        ("sqlite:///s.db", "sqlite:///s.db"),
        ("sqlite:////home/a:b@c/s.db", "sqlite:////home/a:b@c/s.db"),
        ("sqlite:///C:\\Users\\me@home\\s.db", "sqlite:///C:\\Users\\me@home\\s.db"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redact(url) == shown
    assert "secret" not in redact(url)


def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_STORAGE", "postgresql://host/db")
    assert default_storage_url() == "postgresql://host/db"


@pytest.mark.skipif(sys.platform != "linux", reason="the XDG folders are Linux's")
def test_the_default_is_in_the_users_data_folder_and_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_STORAGE", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_storage_url() == f"sqlite:///{tmp_path}/data/autotune/studies.db"
    for not_absolute in ("", "data"):
        monkeypatch.setenv("XDG_DATA_HOME", not_absolute)
        assert default_storage_url() == f"sqlite:///{tmp_path}/.local/share/autotune/studies.db"
    assert not list(tmp_path.iterdir())
