"""A user's space is read strictly, and every mistake is told with its place and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.space import load_space, parse_space, shipped_spaces, space_for_method
from autotune.space.fields import point_fields
from trials.wire import Point


def read(text: str) -> dict[str, tuple[object, ...]]:
    return dict(parse_space(text, name="mine", file="mine.yaml").values)


def complaint(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse_space(text, name="mine", file="mine.yaml")
    assert len(str(caught.value).splitlines()) <= 2
    return caught.value


def test_every_field_of_a_point_can_be_listed() -> None:
    assert set(point_fields()) == set(Point.model_fields)
    assert [point_fields()[name].neutral for name in point_fields()] == list(Point().model_dump().values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("micro_batch_size: 4", (4,)),
        ("micro_batch_size: [8, 2, 4]", (2, 4, 8)),
        ("micro_batch_size: {from: 1, to: 10, step: 3}", (1, 4, 7, 10)),
        ("micro_batch_size: {from: 1, to: 9, step: 3}", (1, 4, 7)),
        ("micro_batch_size: {from: 3, to: 48, factor: 2}", (3, 6, 12, 24, 48)),
        ("micro_batch_size: {from: 5, to: 5, factor: 2}", (5,)),
        ("micro_batch_size: 1_000", (1000,)),
        ("checkpoint_fraction: {from: 0, to: 1, step: 0.25}", (0.0, 0.25, 0.5, 0.75, 1.0)),
        ("checkpoint_fraction: {from: 0, to: 0.3, step: 0.1}", (0.0, 0.1, 0.2, 0.3)),
        ("checkpoint_fraction: [1, .5]", (0.5, 1.0)),
        ("zero_stage: {from: 0, to: 3, step: 1}", (0, 1, 2, 3)),
        ("offload: none", ("none",)),
        ("offload: [optimizer+parameters, none]", ("none", "optimizer+parameters")),
        ("liger_kernel: [off, on]", (False, True)),
        ("liger_kernel: yes", (True,)),
        ("zero_bucket_elements: [50000000, default]", (None, 50_000_000)),
        ("zero_bucket_elements: null", (None,)),
        ("quantization: 'nf4'", ("nf4",)),
    ],
)
def test_values_are_read_as_written(text: str, expected: tuple[object, ...]) -> None:
    (values,) = read(text).values()
    assert values == expected
    assert [type(value) for value in values] == [type(value) for value in expected]


@pytest.mark.parametrize(
    ("text", "place", "what", "remedy"),
    [
        (
            "zero_stage: 1\nmicro_batch: 4",
            "mine.yaml:2:1",
            "unknown field 'micro_batch'",
            "micro_batch_size?",
        ),
        ("gradient_checkpointing: true", "1:1", "unknown field", "did you mean checkpoint_fraction?"),
        ("lora-rank: 8", "1:1", "unknown field", "did you mean lora_rank?"),
        ("qqqq: 8", "1:1", "unknown field", "fields: micro_batch_size"),
        ("<<: {zero_stage: 1}", "1:1", "unknown field '<<'", ""),
        ("zero_stage: 1\nzero_stage: 2", "2:1", "zero_stage is listed twice, first in line 1", ""),
        ("zero_stage: 4", "1:13", "'4' is not a value", "one of: 0, 1, 2, 3"),
        ("zero_stage: true", "1:13", "'true' is not a value", ""),
        ("zero_stage: '1'", "1:13", "'1' is not a value", ""),
        ("offload: off", "1:10", "'off' is not a value", "YAML reads off as false: write none"),
        ("quantization: [no]", "1:16", "'no' is not a value", "write none"),
        ("offload: optimiser", "1:10", "'optimiser' is not a value", "did you mean optimizer?"),
        ("precision: [bf16, BF16]", "1:19", "'BF16' is not a value", "did you mean bf16?"),
        ("liger_kernel: 'true'", "1:15", "'true' is not a value", "write true without quotes"),
        ("liger_kernel: 1", "1:15", "'1' is not a value", "one of: false, true"),
        ("micro_batch_size: 0", "1:19", "0 is out of range", "at least 1"),
        ("micro_batch_size: -2", "1:19", "-2 is out of range", ""),
        ("micro_batch_size: 4.0", "1:19", "4.0 is not a whole number", "write 4"),
        ("micro_batch_size: 1e3", "1:19", "'1e3' is not a number", "write 1000"),
        ("micro_batch_size: four", "1:19", "'four' is not a number", "whole number"),
        ("micro_batch_size: true", "1:19", "'true' is not a number", ""),
        ("micro_batch_size: 010", "1:19", "010 is not a plain decimal number", "leading zero"),
        ("micro_batch_size: 1:30", "1:19", "1:30 is not a plain decimal number", ""),
        ("micro_batch_size: 0x10", "1:19", "0x10 is not a plain decimal number", ""),
        ("micro_batch_size: 2026-01-01", "1:19", "neither text nor number", ""),
        ("micro_batch_size: !!python/name:os.system x", "1:19", "neither text nor number", ""),
        ("micro_batch_size:", "1:18", "micro_batch_size has no value", "leave the field out"),
        ("micro_batch_size: []", "1:19", "lists no value", "leave the field out"),
        ("micro_batch_size: [1, 2, 1]", "1:26", "lists 1 twice", ""),
        ("checkpoint_fraction: [0, 0.0]", "1:26", "lists 0.0 twice", ""),
        ("micro_batch_size: [[1, 2]]", "1:20", "a list inside a list", ""),
        ("checkpoint_fraction: 1.5", "1:22", "1.5 is out of range", "from 0 to 1"),
        ("checkpoint_fraction: 50%", "1:22", "'50%' is not a number", ""),
        ("checkpoint_fraction: .nan", "1:22", "not a plain decimal number", ""),
        ("checkpoint_fraction: .inf", "1:22", "not a plain decimal number", ""),
        ("micro_batch_size: {from: 1, to: 4}", "1:19", "either step or factor", "factor: 2}"),
        ("micro_batch_size: {from: 1, to: 4, step: 1, factor: 2}", "1:19", "either step or factor", ""),
        ("micro_batch_size: {from: 1, till: 4, step: 1}", "1:29", "a range has no 'till'", ""),
        ("micro_batch_size: {from: 4, to: 1, step: 1}", "1:19", "ends before it begins", "swap"),
        ("micro_batch_size: {from: 1, to: 4, step: 0}", "1:42", "the step of a range is", ""),
        ("micro_batch_size: {from: 1, to: 4, step: 0.5}", "1:42", "a whole number", ""),
        ("micro_batch_size: {from: 1, to: 4, factor: 1}", "1:44", "the factor of a range is", ""),
        ("micro_batch_size: {from: 0, to: 4, step: 1}", "1:26", "0 is out of range", ""),
        ("lora_rank: {from: 0, to: 64, factor: 2}", "1:12", "cannot begin at 0", ""),
        ("micro_batch_size: {from: 1, to: 1000000000, step: 1}", "1:19", "over 1000 values", "larger step"),
        ("offload: {from: none, to: optimizer, step: 1}", "1:10", "has no range", ""),
        ("liger_kernel: {from: 0, to: 1, step: 1}", "1:15", "has no range", ""),
        ("zero_stage: [0, 1\noffload: none", "mine.yaml:2", "not valid YAML", ""),
        ("zero_stage: 1\n\toffload: none", "mine.yaml:2", "not valid YAML", ""),
        ("a: 1\n---\nb: 2", "mine.yaml", "not valid YAML", ""),
        ("- zero_stage", "1:1", "a space is a mapping", ""),
        ("zero_stage", "1:1", "a space is a mapping", ""),
        ("{}", "1:1", "lists no field", ""),
        ("? [a]\n: 1", "1:3", "a key is a field's name", ""),
        ("", "mine.yaml", "the file is empty", ""),
        ("# nothing", "mine.yaml", "the file is empty", ""),
        ("a: \x00", "mine.yaml", "not valid YAML", ""),
        ("a: " + "[" * 1500, "mine.yaml", "", ""),
    ],
)
def test_a_mistake_is_told_with_its_place_and_a_remedy(text: str, place: str, what: str, remedy: str) -> None:
    error = complaint(text)
    assert place in error.message
    assert what in error.message
    assert remedy in str(error)


def test_shipped_spaces_load_and_are_known_by_name() -> None:
    assert shipped_spaces() == ("any", "full", "lora", "qlora", "quick")
    for name in shipped_spaces():
        assert load_space(name).name == name


def test_the_method_implies_a_shipped_space() -> None:
    implied = {method: space_for_method(method) for method in ("auto", "full", "lora", "qlora", "any")}
    assert implied == {"auto": "lora", "full": "full", "lora": "lora", "qlora": "qlora", "any": "any"}
    with pytest.raises(UsageError, match="did you mean qlora"):
        space_for_method("qlor")


def test_the_shipped_spaces_keep_their_promises() -> None:
    lora, qlora, full, union = (load_space(name) for name in ("lora", "qlora", "full", "any"))
    assert lora.of_field("quantization") == ("none",) and min(lora.of_field("lora_rank")) == 16  # type: ignore[type-var]
    assert qlora.of_field("quantization") == ("nf4",)
    assert full.of_field("lora_rank") == (0,) and full.of_field("optimizer") == ("adamw", "adamw8bit")
    for name in point_fields():
        parts = {value for space in (full, lora, qlora) for value in space.of_field(name)}
        assert set(union.of_field(name)) == parts, name


def test_a_users_file_is_loaded_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"\xef\xbb\xbfzero_stage: 2\r\n")
    space = load_space(str(path))
    assert (space.name, dict(space.values)) == ("mine", {"zero_stage": (2,)})


def test_a_shipped_name_wins_over_a_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quick").write_text("zero_stage: 3")
    monkeypatch.chdir(tmp_path)
    assert load_space("quick").values["zero_stage"] == (0, 2)
    assert load_space("./quick").values["zero_stage"] == (3,)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("qlorra", "did you mean qlora?"),
        ("nowhere/mine.yaml", "there is no file nowhere/mine.yaml"),
        ("zzz", "any, full, lora, qlora, quick"),
        ("", "cannot be read"),
        ("a\0b", "cannot be read"),
    ],
)
def test_a_space_that_cannot_be_found_is_told(name: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_space(name)
    assert what in str(caught.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_space(f"{tmp_path}/")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not text in UTF-8"):
        load_space(str(binary))


def test_the_digest_depends_on_the_values_alone() -> None:
    one = parse_space("zero_stage: [0, 2]\nlora_rank: 16", name="a", file="a.yaml")
    same = parse_space("# ranks\nlora_rank: [16]\nzero_stage: [2, 0]", name="b", file="b.yaml")
    other = parse_space("zero_stage: [0, 2]\nlora_rank: 32", name="a", file="a.yaml")
    assert one.digest == same.digest != other.digest
