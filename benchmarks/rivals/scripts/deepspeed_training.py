"""A plain DeepSpeed training script, as DeepSpeed's autotuner launches it: the configuration decides all."""

from __future__ import annotations

import argparse
from pathlib import Path

# The tuner ends the script by itself after its profiled steps; this is for a run without it.
MOST_STEPS = 50


def main() -> None:
    """Train on random tokens until the tuner has what it wants."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--deepspeed_config", required=True, help="a file, or its content in base64")
    parser.add_argument("--local_rank", type=int, default=0)
    arguments = parser.parse_args()
    import deepspeed
    import torch

    from benchmarks.rivals.training_job import build, limit_memory, read_job
    from trials.adapters import trainable
    from trials.batches import SyntheticBatches

    job = read_job(arguments.job)
    deepspeed.init_distributed(dist_backend="gloo" if job.device == "cpu" else "nccl", verbose=False)
    limit_memory(job)
    model = build(job, "bf16", fp32_adapters=False)
    vocabulary = model.get_input_embeddings().num_embeddings
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=trainable(model), config=arguments.deepspeed_config
    )
    batches = SyntheticBatches(vocabulary, job.seq_len, torch.device(job.device), job.seed)
    while engine.global_steps < MOST_STEPS:
        loss = engine(**batches.next(engine.train_micro_batch_size_per_gpu())).loss
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
