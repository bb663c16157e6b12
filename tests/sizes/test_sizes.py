from __future__ import annotations

import pytest

from autotune.errors import UsageError
from autotune.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("24GB", 25769803776),
        ("24GiB", 25769803776),
        ("24gb", 25769803776),
        ("24 GB", 25769803776),
        ("  24g ", 25769803776),
        ("1.5GB", 1610612736),
        (".5GB", 536870912),
        ("0.1GB", 107374182),  # 107374182.4
        ("800MB", 838860800),
        ("800MiB", 838860800),
        ("3KB", 3072),
        ("2TB", 2199023255552),
        ("1000000", 1000000),
        ("1000000B", 1000000),
        ("1", 1),
    ],
)
def test_sizes_are_powers_of_1024_however_they_are_written(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    (
        *(
            "",
            " ",
            "0",
            "0GB",
            "-1GB",
            "+1GB",
            "nan",
            "inf",
            "GB",
            "ib",
            "24XB",
            "24 GB left",
            "1,5GB",
            "1e9",
        ),
        *("2.GB", "24GBB", "0x10", "٢٤GB", "1.2.3GB", "0.1B", "24iGB", "9999999TB", "1_000"),
    ),
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_size(text)
    assert "24GB" in caught.value.hint


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (17, "17 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (851443712, "812 MiB"),
        (25125558681, "23.4 GiB"),
        (25769803776, "24.0 GiB"),
        (2**30 - 1, "1.0 GiB"),
        (2**40 - 1, "1.0 TiB"),
        (3 * 2**50, "3072.0 TiB"),
        (-851443712, "-812 MiB"),
    ],
)
def test_sizes_are_printed_in_the_unit_a_person_would_choose(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text
