"""What an exporter is: a trainer's name, its files, and how to start it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autotune.export.escaping import docstring, one_line
from autotune.export.winner import Winner
from autotune.sizes import format_size
from autotune.space.trainers import TITLES, losses

Files = Callable[[Winner], Mapping[str, str]]

# What fits was measured with it; torch reads it when it first uses the GPU.
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


@dataclass(frozen=True)
class Exporter:
    """The winner in one trainer's words.

    Attributes:
        name: as on the command line.
        main_file: the file that the trainer reads; the first of the names.
        names: every file it writes, of the folder's own ones only the main file.
        files: the text of each file by name; pure. The folder's own files are not among them.
        start: the shell command that starts it, in the folder.
        requirements: distributions to install beside those that train.py needs.
    """

    name: str
    main_file: str
    names: tuple[str, ...]
    files: Files
    start: Callable[[Winner], str]
    requirements: tuple[str, ...] = ()

    @property
    def has_own_files(self) -> bool:
        """Whether it writes more than the folder holds for everybody."""
        return self.name not in ("deepspeed", "script")


def environment(winner: Winner) -> str:
    """The environment variables of a command that starts it."""
    return "DS_ACCELERATOR=cpu" if winner.device == "cpu" else ALLOCATOR


def torchrun(winner: Winner, words: str) -> str:
    """A command under torch's launcher, which DeepSpeed needs even for one GPU."""
    return f"{environment(winner)} torchrun --nproc-per-node {winner.gpus} {words}"


def loss_words(trainer: str, winner: Winner) -> tuple[str, ...]:
    """What of the winner this trainer cannot express: sentences without a full stop."""
    return tuple(loss.words(trainer) for loss in losses(trainer, winner.point))


def header(exporter_name: str, winner: Winner, start: str, *remarks: str) -> tuple[str, ...]:
    """The first lines of an exported file: what it is, what is lost, how it starts; fit for comments.

    Args:
        exporter_name: the trainer's.
        winner: what is exported.
        start: the shell command.
        remarks: where the trainer does otherwise than what was measured, a sentence each.
    """
    measured = winner.measured
    needs = measured.required_device_bytes or measured.device_bytes
    memory = f" in {format_size(needs)}" if needs is not None else ""
    speed = f"{measured.tokens_per_second or 0.0:,.0f} tokens/s{memory}"
    return (
        f"{one_line(winner.model.name)} for {TITLES[exporter_name]}: {winner.point.method} fine-tuning, "
        f"measured by autotune at {speed}.",
        *(f"LOST: {words}." for words in loss_words(exporter_name, winner)),
        f"Start, in this folder: {start}",
        *remarks,
    )


def script_header(exporter_name: str, winner: Winner, start: str) -> str:
    """The same for a script's docstring, which says itself how it starts."""
    first, *others = header(exporter_name, winner, start)[:-1]
    return docstring("\n".join([first, *([""] if others else []), *others]))
