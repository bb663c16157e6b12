"""`README.md` of the export folder: what this is, how to start it, and what it was measured with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from string import Template

from autotune.export.arguments import (
    batch_arguments,
    checkpointing_arguments,
    optimizer_arguments,
    precision_arguments,
)
from autotune.export.escaping import (
    code_block,
    code_span,
    markdown_words,
    one_command,
    shell_words,
    table_cell,
)
from autotune.export.exporter import Exporter, loss_words
from autotune.export.record import tokens_per_step
from autotune.export.script import start
from autotune.export.template import render
from autotune.export.winner import Winner
from autotune.sizes import format_size
from autotune.space.trainers import TITLES

# Distributions that the script imports, or that transformers loads for it.
ALWAYS_NEEDED = ("torch", "transformers", "accelerate", "deepspeed")


def readme(winner: Winner, exporters: Sequence[Exporter] = ()) -> str:
    """The text of the folder's README, with the trainers that were exported for."""
    point, measured = winner.point, winner.measured
    facts = {
        "cpu": measured.gpu is None,
        "load_weights": winner.load_weights,
        "lora": point.lora_rank > 0,
        "nvme": point.offload.startswith("nvme_"),
        "partly_checkpointed": 0 < point.checkpoint_fraction < 1,
        "quantized": point.quantization != "none",
        "several_gpus": winner.gpus > 1,
        "trainers": any(exporter.has_own_files for exporter in exporters),
        "weights_known": winner.weights_source is not None,
    }
    machine = table_cell(markdown_words(measured.gpu.name)) if measured.gpu else "the CPU"
    budget = format_size(winner.gpu_budget_bytes)
    template = files("autotune.export").joinpath("README.md.tmpl").read_text(encoding="utf-8")
    # A block that is left out leaves the blank lines around it.
    text = re.sub(r"\n{3,}", "\n\n", render(template, facts))
    return Template(text).substitute(
        title=f"{markdown_words(winner.model.name)}: {point.method} fine-tuning in {budget}",
        machine=machine if winner.gpus == 1 else f"{winner.gpus} x {machine}",
        summary="\n".join(f"| {name} | {value} |" for name, value in _summary(winner)),
        starting=code_block(_starting(winner)),
        gpus=winner.gpus,
        weights=code_span(winner.weights_source or ""),
        seq_len=f"{winner.seq_len:,}",
        arguments="\n".join(f"    {argument}," for argument in _training_arguments(winner)),
        command=code_block(one_command(winner.command)),
        trainers="\n\n".join(_trainer(one, winner) for one in exporters if one.has_own_files),
    )


def _trainer(exporter: Exporter, winner: Winner) -> str:
    """How one trainer is started, and what its file loses."""
    names = ", ".join(f"`{name}`" for name in exporter.names)
    lines = [f"**{TITLES[exporter.name]}**: {names}"]
    lines += [f"Lost: {words}." for words in loss_words(exporter.name, winner)]
    if exporter.requirements:
        lines.append(f"`pip install {' '.join(exporter.requirements)}`, in an environment of its own.")
    return "\n".join([*lines, "", code_block(exporter.start(winner))])


def _starting(winner: Winner) -> str:
    """The commands that install what is needed, do what was measured, and train."""
    command = start(winner)
    pause = " " * max(2, 45 - len(command))
    return "\n".join(
        [
            shell_words(["pip", "install", *_requirements(winner)]),
            f"{command}{pause}# 20 steps on random tokens: what was measured",
            f"{command} --data my.jsonl --steps 1000 --learning-rate 1e-4 --output trained",
        ]
    )


def _summary(winner: Winner) -> list[tuple[str, str]]:
    measured = winner.measured
    rows = [
        ("throughput", f"{measured.tokens_per_second or 0.0:,.0f} tokens/s"),
        ("tokens per optimizer step", f"{tokens_per_step(winner):,}"),
    ]
    sizes = [("device memory needed", measured.required_device_bytes)]
    if winner.device != "cpu":
        # There no allocator keeps what it has had, and what is held says nothing.
        sizes.append(("device memory held where there is more", measured.device_bytes))
    sizes.append(("host memory", measured.host_peak_bytes))
    rows += [(name, format_size(size)) for name, size in sizes if size is not None]
    for name, value in winner.point.model_dump(mode="json", exclude_none=True).items():
        rows.append((f"`{name}`", str(value).lower() if isinstance(value, bool) else str(value)))
    return rows


def _requirements(winner: Winner) -> list[str]:
    point, versions = winner.point, winner.measured.versions
    needed = [*ALWAYS_NEEDED]
    if point.lora_rank:
        needed.append("peft")
    if point.quantization != "none" or point.optimizer != "adamw":
        needed.append("bitsandbytes")
    if point.liger_kernel:
        needed.append("liger-kernel")
    # A local version such as 2.11.0+cu130 is on no index but its maker's.
    pins = {name: version.partition("+")[0] for name, version in versions.items()}
    return [f"{name}=={pins[name]}" if name in pins else name for name in needed]


def _training_arguments(winner: Winner) -> list[str]:
    arguments = {
        "deepspeed": "ds_config.auto.json",
        **batch_arguments(winner),
        **precision_arguments(winner),
        **optimizer_arguments(winner),
        "use_liger_kernel": winner.point.liger_kernel,
        **checkpointing_arguments(winner),
    }
    # What is off is off by default.
    return [f"{name}={value!r}".replace("'", '"') for name, value in arguments.items() if value is not False]
