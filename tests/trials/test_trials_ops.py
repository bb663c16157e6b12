"""An operator counts as built where ninja would only have to look at it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from trials.ops import extensions_folder, is_built

RULES = "rule copy\n  command = cp $in $out\n"


class Builder:
    """As one of DeepSpeed's: with a source of its own."""

    name = "own_adam"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sources(self) -> list[str]:
        return ["adam.cpp"]

    def deepspeed_src_path(self, source: str) -> str:
        return str(self._folder / source)


@pytest.mark.skipif(shutil.which("ninja") is None, reason="there is no ninja")
def test_an_operator_is_built_where_ninja_has_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "operators"))
    source = tmp_path / "adam.cpp"
    source.write_text("")
    builder = Builder(tmp_path)
    assert not is_built(builder)
    folder = extensions_folder() / builder.name
    folder.mkdir()
    (folder / "build.ninja").write_text(f"{RULES}build own_adam.so: copy {source}\n")
    assert not is_built(builder)
    subprocess.run(["ninja"], cwd=folder, check=True, capture_output=True)
    assert is_built(builder)

    # An environment whose sources lie elsewhere.
    assert not is_built(Builder(tmp_path / "elsewhere"))
    # An upgrade.
    os.utime(source, (time.time() + 60, time.time() + 60))
    assert not is_built(builder)
