"""An operator counts as built where it only has to be loaded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trials.ops import BUILDERS, extensions_folder, is_built


@pytest.mark.parametrize("name", BUILDERS)
def test_an_operator_is_built_once_its_library_is_newer_than_its_sources(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deepspeed.accelerator import get_accelerator

    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    builder = get_accelerator().create_op_builder(BUILDERS[name])
    if builder is None:
        pytest.skip(f"{name} is not for this device")
    assert not is_built(builder)
    library = extensions_folder() / builder.name / f"{builder.name}.so"
    library.parent.mkdir()
    library.write_bytes(b"")
    rules = "\n".join(builder.deepspeed_src_path(source) for source in builder.sources())
    (library.parent / "build.ninja").write_text(rules)
    assert is_built(builder)
    # As another environment left it, whose sources lie elsewhere.
    (library.parent / "build.ninja").write_text(rules.replace("site-packages", "elsewhere"))
    assert not is_built(builder)
    (library.parent / "build.ninja").write_text(rules)
    # As after an upgrade of DeepSpeed.
    os.utime(library, (0, 0))
    assert not is_built(builder)
