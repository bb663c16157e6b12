"""Finding and reading search spaces: the shipped ones by name, a user's by path."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path

from autotune.errors import UsageError
from autotune.space.fields import Value, point_fields
from autotune.space.marked_yaml import parse_table
from autotune.space.space import Space
from autotune.space.values import field_values

SPACE_OF_METHOD = {"auto": "lora", "full": "full", "lora": "lora", "qlora": "qlora", "any": "any"}

# What the same thing is called by the trainers users come from; close spellings are found without help.
OTHER_NAMES = {
    "activation_checkpointing": "checkpoint_fraction",
    "attn_implementation": "attention",
    "batch_size": "micro_batch_size",
    "bits": "quantization",
    "dtype": "precision",
    "gradient_checkpointing": "checkpoint_fraction",
    "load_in_4bit": "quantization",
    "load_in_8bit": "quantization",
    "lora_r": "lora_rank",
    "optim": "optimizer",
    "per_device_train_batch_size": "micro_batch_size",
    "r": "lora_rank",
    "rank": "lora_rank",
    "reduce_bucket_size": "zero_bucket_elements",
    "torch_dtype": "precision",
    "train_micro_batch_size_per_gpu": "micro_batch_size",
    "use_liger_kernel": "liger_kernel",
}


def space_for_method(method: str) -> str:
    """The name of the shipped space that `--method` implies.

    Raises:
        UsageError: there is no such method.
    """
    if method not in SPACE_OF_METHOD:
        close = get_close_matches(method.lower(), list(SPACE_OF_METHOD), n=1)
        hint = f"did you mean {close[0]}?" if close else "one of: " + ", ".join(SPACE_OF_METHOD)
        raise UsageError(f"there is no method {method!r}", hint)
    return SPACE_OF_METHOD[method]


@cache
def shipped_spaces() -> tuple[str, ...]:
    """The names of the spaces that come with autotune, sorted."""
    folder = files("search_spaces")
    return tuple(
        sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))
    )


def load_space(name_or_path: str) -> Space:
    """Loads a shipped space by its name or a user's own by its path, and checks it strictly.

    A name of a shipped space wins over a file of that name: write `./quick` for the file.

    Raises:
        UsageError: there is no such space or file, it cannot be read, or something in it is wrong; the
            message names the file, the line and the column.
    """
    if name_or_path in shipped_spaces():
        text = (files("search_spaces") / f"{name_or_path}.yaml").read_text(encoding="utf-8")
        return parse_space(text, name=name_or_path, file=f"{name_or_path}.yaml")
    path = Path(name_or_path).expanduser()
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        raise _no_such_space(name_or_path) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: the file is not text in UTF-8", "a space is a YAML file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{path}: the space cannot be read: {reason}") from None
    return parse_space(text, name=path.stem, file=str(path))


def parse_space(text: str, *, name: str, file: str) -> Space:
    """Reads a space from the text of a YAML file.

    Args:
        text: the YAML document.
        name: the space's name.
        file: the file's name, for messages.

    Raises:
        UsageError: something in it is wrong.
    """
    fields = point_fields()
    table = parse_table(text, file)
    if not table.entries:
        raise table.place.error("the space lists no field", "as in micro_batch_size: [1, 2, 4]")
    values: dict[str, tuple[Value, ...]] = {}
    for entry in table.entries:
        if entry.key not in fields:
            raise entry.place.error(*_unknown_field(entry.key))
        values[entry.key] = field_values(fields[entry.key], entry.value)
    return Space.of(name, values)


def _unknown_field(name: str) -> tuple[str, str]:
    known = list(point_fields())
    plain = name.lower().replace("-", "_")
    close = [OTHER_NAMES[plain]] if plain in OTHER_NAMES else get_close_matches(plain, known, n=1)
    message = f"unknown field {name!r}"
    return (f"{message}: did you mean {close[0]}?", "") if close else (message, "fields: " + ", ".join(known))


def _no_such_space(name: str) -> UsageError:
    shipped = shipped_spaces()
    if "/" in name or "\\" in name or name.endswith((".yaml", ".yml")):
        return UsageError(f"there is no file {name}", "shipped spaces: " + ", ".join(shipped))
    close = get_close_matches(name.lower(), shipped, n=1)
    hint = f"did you mean {close[0]}?" if close else "shipped: " + ", ".join(shipped) + "; or give a path"
    return UsageError(f"there is no space {name!r}", hint)
