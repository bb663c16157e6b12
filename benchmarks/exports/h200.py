"""The Hugging Face Trainer and TRL's SFTTrainer with exported files, beside what was announced for them.

    python -m benchmarks.exports.h200 FOLDER [FOLDER ...] [--steps 8] [--output h200_exports.json]

Each folder is an export of formats transformers and trl. Weights and tokens are random, made from the
folder's own autotune.json: nothing is downloaded. One process loads torch and transformers, and forks for
each run, for nothing else may be loaded before CUDA is. TRL and datasets must be importable. Run it where
the winners were measured, after them: DeepSpeed's operators are compiled then.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

PEAK_WITHIN, SPEED_WITHIN = 0.02, 0.05
SKIPPED_STEPS = 3
TRAINERS = ("transformers", "trl")


def main() -> int:
    """Run all, print and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exports.h200", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--trainer", action="append", choices=TRAINERS)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    # Without this, asking whether there is a GPU would start CUDA in the process that forks.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error")
    import torch
    import transformers  # noqa: F401 - loaded once for all forks; more of it would load peft, and that starts CUDA

    if not torch.cuda.is_available():
        os.environ["DS_ACCELERATOR"] = "cpu"
    rows = []
    with tempfile.TemporaryDirectory(prefix="autotune-h200-") as scratch:
        for folder in arguments.folders:
            for trainer in arguments.trainer or TRAINERS:
                rows.append(one_run(folder.resolve(), trainer, arguments.steps, Path(scratch)))
                print(words(rows[-1]), flush=True)
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row.get("within") for row in rows) else 1


def one_run(folder: Path, trainer: str, steps: int, scratch: Path) -> dict[str, Any]:
    """One trainer on one folder, in a fork; its figures beside the announced ones."""
    record = json.loads((folder / "autotune.json").read_text(encoding="utf-8"))
    begun = time.perf_counter()
    work = scratch / record["model"]["name"].replace("/", "-")
    if trainer == "trl" and not (work / "model" / "config.json").exists():
        forked(lambda: make_material(work, record, steps), scratch / "material.json")
    run = run_trl if trainer == "trl" else run_transformers
    report = scratch / f"{folder.name}-{trainer}.json"
    found = forked(lambda: run(folder, record, steps, work), report)
    announced = record["measured"]
    row: dict[str, Any] = {
        "folder": folder.name,
        "point": record["point"],
        "trainer": trainer,
        "seconds": round(time.perf_counter() - begun, 1),
        **found,
    }
    within = "error" not in found
    for name, most in (("peak_allocated_bytes", PEAK_WITHIN), ("tokens_per_second", SPEED_WITHIN)):
        row[f"announced_{name}"] = announced[name]
        if found.get(name) and announced[name]:
            off = found[name] / announced[name] - 1
            row[f"{name}_off"] = off
            within = within and abs(off) <= most
    row["within"] = within
    return row


def forked(work: Callable[[], dict[str, Any]], report: Path) -> dict[str, Any]:
    """What the work returns in a process forked from this one, which has not started CUDA."""
    child = os.fork()
    if child == 0:
        try:
            report.write_text(json.dumps(work()), encoding="utf-8")
        except BaseException as error:
            traceback.print_exc()
            report.write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}), encoding="utf-8")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    os.waitpid(child, 0)
    if not report.exists():
        return {"error": "the process died"}
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


def make_clock() -> Any:
    """A callback for every trainer of transformers' kind: seconds of each optimizer step, and the peak."""
    import torch
    import transformers.trainer
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        seconds: ClassVar[list[float]] = []
        last: ClassVar[float]

        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            Clock.last = time.perf_counter()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            now = time.perf_counter()
            Clock.seconds.append(now - Clock.last)
            Clock.last = now

    transformers.trainer.DEFAULT_CALLBACKS.append(Clock)
    return Clock


def figures(clock: Any, record: dict[str, Any]) -> dict[str, Any]:
    """Tokens per second and the peak over the steps."""
    import torch

    seconds = clock.seconds[SKIPPED_STEPS:] or clock.seconds
    found: dict[str, Any] = {
        "tokens_per_second": record["tokens_per_step"] / statistics.median(seconds),
        "step_seconds": clock.seconds,
    }
    if torch.cuda.is_available():
        found["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
    return found


def run_transformers(folder: Path, record: dict[str, Any], steps: int, work: Path) -> dict[str, Any]:
    """The exported script, as it is."""
    clock = make_clock()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.argv = ["train_transformers.py", "--steps", str(steps)]
    import train_transformers  # type: ignore[import-not-found]

    train_transformers.main()
    return figures(clock, record)


def run_trl(folder: Path, record: dict[str, Any], steps: int, work: Path) -> dict[str, Any]:
    """TRL's own script with the exported YAML; the model and the data are given as its user gives them."""
    import torch

    alone = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }
    os.environ.update(alone)
    if torch.cuda.is_available():
        # DeepSpeed cannot read suffixes like 9.0a.
        os.environ["TORCH_CUDA_ARCH_LIST"] = "{}.{}".format(*torch.cuda.get_device_capability())
    clock = make_clock()
    os.chdir(folder)
    from trl.scripts import sft

    given = ["--model_name_or_path", str(work / "model"), "--dataset_name", str(work / "tokens")]
    given += ["--max_steps", str(steps), "--output_dir", str(work / "trained")]
    parsed = sft.make_parser().parse_args_and_config(args=["--config", "trl.yaml", *given])
    sft.main(*parsed)
    return figures(clock, record)


def make_material(work: Path, record: dict[str, Any], steps: int) -> dict[str, Any]:
    """A folder with random weights and a tokenizer, and one of sequences that are tokenised already."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast

    values = dict(record["model"]["config"])
    config = CONFIG_MAPPING[values.pop("model_type")].from_dict(values)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(work / "model")
    words = Tokenizer(models.WordLevel({"<unk>": 0, "</s>": 1, "<pad>": 2}, "<unk>"))
    special = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(work / "model")
    chance, vocabulary = random.Random(0), config.get_text_config().vocab_size
    rows = (steps + 1) * record["tokens_per_step"] // record["seq_len"]
    (work / "tokens").mkdir()
    with (work / "tokens" / "train.jsonl").open("w", encoding="utf-8") as file:
        for _ in range(rows):
            tokens = chance.choices(range(vocabulary), k=record["seq_len"])
            file.write(json.dumps({"input_ids": tokens}) + "\n")
    return {}


def words(row: dict[str, Any]) -> str:
    """One run in a line."""
    title = f"{row['folder']} in {row['trainer']} ({row['seconds']} s)"
    if "error" in row:
        return f"{title}: {row['error']}"
    parts = []
    if row.get("peak_allocated_bytes"):
        gib = 2**30
        parts.append(
            f"peak {row['peak_allocated_bytes'] / gib:.3f} GiB, announced "
            f"{row['announced_peak_allocated_bytes'] / gib:.3f} ({row['peak_allocated_bytes_off']:+.2%})"
        )
    speed = f"{row['tokens_per_second']:,.0f} tok/s, announced {row['announced_tokens_per_second']:,.0f}"
    parts.append(f"{speed} ({row['tokens_per_second_off']:+.2%})")
    return f"{title}: {'; '.join(parts)}; {'within' if row['within'] else 'NOT WITHIN'}"


if __name__ == "__main__":
    raise SystemExit(main())
