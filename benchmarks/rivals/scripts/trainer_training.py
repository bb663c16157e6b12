"""Transformers' Trainer with `auto_find_batch_size`; writes every attempt to a file as it goes."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

STEPS = 8


def main() -> None:
    """Train a few steps at the batch the Trainer finds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--progress", type=Path, required=True, help="where attempts are written")
    arguments = parser.parse_args()
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from benchmarks.rivals.training_job import build, limit_memory, read_job

    job = read_job(arguments.job)
    limit_memory(job)
    # Without a master of its own, what the Trainer trains must be fp32; autocast computes in bf16.
    model = build(job, "bf16" if job.lora_rank else "fp32", fp32_adapters=True)
    vocabulary = model.get_input_embeddings().num_embeddings

    class Tokens(torch.utils.data.Dataset[dict[str, Any]]):  # type: ignore[misc]
        def __len__(self) -> int:
            return job.global_batch * STEPS

        def __getitem__(self, index: int) -> dict[str, Any]:
            generator = torch.Generator().manual_seed(job.seed + index)
            tokens = torch.randint(0, vocabulary, (job.seq_len,), generator=generator)
            return {"input_ids": tokens, "labels": tokens}

    class Attempts(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.attempts: list[dict[str, Any]] = []
            self.begun = 0.0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            # Private, but the only place that holds the batch being tried.
            self.attempts.append({"batch": trainer._train_batch_size, "step_seconds": []})
            write(done=False)

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.begun = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            if job.device == "cuda":
                torch.cuda.synchronize()
            self.attempts[-1]["step_seconds"].append(time.perf_counter() - self.begun)
            write(done=False)

    def write(*, done: bool) -> None:
        # Whole or not at all: the script is ended at its limit, whatever it is doing.
        fresh = arguments.progress.with_suffix(".new")
        fresh.write_text(json.dumps({"attempts": attempts.attempts, "done": done}))
        fresh.replace(arguments.progress)

    attempts = Attempts()
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(arguments.progress.parent / "trainer"),
            per_device_train_batch_size=job.global_batch,
            auto_find_batch_size=True,
            gradient_accumulation_steps=1,
            max_steps=STEPS,
            bf16=True,
            use_cpu=job.device == "cpu",
            learning_rate=1e-5,
            weight_decay=0.0,
            max_grad_norm=1.0,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            seed=job.seed,
        ),
        train_dataset=Tokens(),
        callbacks=[attempts],
    )
    trainer.train()
    write(done=True)


if __name__ == "__main__":
    main()
