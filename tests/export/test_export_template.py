from __future__ import annotations

import pytest

from autotune.export.template import render

TEXT = """a
# [if x]
b
    # [if not y]
c
    # [else]
d
    # [end]
# [end]
e # [if x] stays
"""


@pytest.mark.parametrize(
    ("x", "y", "kept"),
    [
        (True, False, ["a", "b", "c", "e # [if x] stays"]),
        (True, True, ["a", "b", "d", "e # [if x] stays"]),
        (False, True, ["a", "e # [if x] stays"]),
    ],
)
def test_only_the_blocks_whose_facts_hold_are_kept(x: bool, y: bool, kept: list[str]) -> None:
    assert render(TEXT, {"x": x, "y": y}).splitlines() == kept


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# [if x]\n", "not closed"),
        ("# [end]\n", "outside"),
        ("# [else]\n", "outside"),
        ("# [if z]\n# [end]\n", "unknown fact 'z'"),
    ],
)
def test_a_broken_template_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        render(text, {"x": True})
