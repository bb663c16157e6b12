"""Run as a program: optimizer steps of our Stepper on real engines beside the same steps in plain PyTorch.

Prints one JSON object a line per case: the name, the relative distance of the parameters' updates from the
plain ones, both gradient norms, and what the engine reads back of its configuration. Each case has a process
of its own, forked after the imports.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")

import deepspeed  # noqa: F401 - once, before the forks
import peft  # noqa: F401
import torch
from deepspeed.utils import safe_get_full_fp32_param

from trials.adapters import add_adapters, trainable
from trials.batches import SyntheticBatches
from trials.checkpointing import set_checkpoint_fraction
from trials.device_memory import CpuMemory
from trials.ds_config import LEARNING_RATE, deepspeed_config
from trials.engine import partitioning_sink, start_distributed, start_engine
from trials.measuring import Stepper
from trials.model_build import build_model
from trials.ops import load_ops
from trials.wire import ModelSpec, Point, TrialSpec

VOCABULARY, SEQ_LEN, SEED = 64, 16, 3
MODEL = ModelSpec(
    name="few-parameters",
    config={
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 64,
        # Large enough that gradients differ clearly from token to token.
        "initializer_range": 0.2,
    },
)
# As the Stepper measures: warm-up steps of two micro batches, then full ones.
ACCUMULATIONS = (2, 2, 3, 3)


def _model(point: Point, sink: Callable[[Any], None] | None = None) -> Any:
    torch.manual_seed(SEED)
    model = build_model(MODEL, point, device=torch.device("cpu"), sink=sink)
    if point.lora_rank:
        torch.manual_seed(SEED + 1)
        model = add_adapters(model, point, None)
    set_checkpoint_fraction(model, point.checkpoint_fraction)
    return model.train()


def _plain(point: Point, ranks: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], list[float]]:
    """Before, after, and gradient norms: one whole batch a step, torch's own AdamW and clipping."""
    model = _model(point).float()
    parameters = trainable(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(
        parameters, lr=LEARNING_RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0
    )
    streams = [torch.Generator().manual_seed(SEED + rank) for rank in range(ranks)]
    norms = []
    for accumulation in ACCUMULATIONS:
        shape = (accumulation * point.micro_batch_size, SEQ_LEN)
        tokens = torch.cat([torch.randint(0, VOCABULARY, shape, generator=stream) for stream in streams])
        logits = model(input_ids=tokens, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, 1.0)))
        optimizer.step()
        optimizer.zero_grad()
    return before, {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}, norms


def _engine(
    point: Point, rank: int, ranks: int, folder: Path
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The fp32 parameters after the same steps in a DeepSpeed engine, and what the engine says."""
    start_distributed("cpu", rank, ranks, folder / "process-group")
    count = sum(p.numel() for p in trainable(_model(point)))
    config = deepspeed_config(
        point,
        trainable_parameters=count,
        largest_parameter=VOCABULARY * 32,
        device="cpu",
        processes=ranks,
        torch_adam=True,
    )
    model = _model(point, partitioning_sink(point, config))
    engine = start_engine(model, point, trainable(model), config)
    spec = TrialSpec(
        trial_id="accumulation",
        model=MODEL,
        point=point,
        seq_len=SEQ_LEN,
        device="cpu",
        processes=ranks,
        log_path=str(folder / "log"),
        work_dir=str(folder),
    )
    told = {"engine": {**_read_back(engine), "trainable": count}}
    batches = SyntheticBatches(VOCABULARY, SEQ_LEN, torch.device("cpu"), SEED + rank)
    stepper = Stepper(engine, spec, batches, CpuMemory(), lambda event: None)
    norms: list[float | None] = []
    for accumulation in ACCUMULATIONS:
        stepper.step(accumulation)
        norm = engine.get_global_grad_norm()
        # Without ZeRO and mixed precision the engine clips and keeps no norm.
        norms.append(None if norm is None else float(norm))
    masters = _unfused_masters(engine.optimizer)
    after = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            master = masters.get(id(parameter), safe_get_full_fp32_param(parameter))
            after[name] = (parameter if master is None else master).detach().clone()
    return after, {**told, "norms": norms}


def _unfused_masters(optimizer: Any) -> dict[int, torch.Tensor]:
    """The fp32 masters of 16-bit training without ZeRO, by the identity of their parameters."""
    if type(optimizer).__name__ != "FP16_UnfusedOptimizer":
        return {}
    pairs = [
        (id(low), high)
        for lows, highs in zip(optimizer.fp16_groups, optimizer.fp32_groups, strict=True)
        for low, high in zip(lows, highs, strict=True)
    ]
    return dict(pairs)


def _read_back(engine: Any) -> dict[str, Any]:
    """The engine's own reading of its configuration."""
    zero = engine._config.zero_config
    return {
        "stage": engine.zero_optimization_stage(),
        "micro_batch_size": engine.train_micro_batch_size_per_gpu(),
        "accumulation": engine.gradient_accumulation_steps(),
        "processes": engine.dp_world_size,
        "bf16": engine.bfloat16_enabled(),
        "fp16": engine.fp16_enabled(),
        "offload_optimizer": str(zero.offload_optimizer.device) if zero.offload_optimizer else None,
        "offload_parameters": str(zero.offload_param.device) if zero.offload_param else None,
        "clipping": engine.gradient_clipping(),
        "bucket": zero.reduce_bucket_size,
        "optimizer": type(engine.basic_optimizer).__name__,
    }


def _case(name: str, point: Point, rank: int, ranks: int, folder: Path) -> None:
    after, said = _engine(point, rank, ranks, folder)
    if rank:
        return
    before, expected, expected_norms = _plain(point, ranks)
    assert after.keys() == expected.keys()
    moved = torch.cat([(expected[key] - before[key]).flatten() for key in before])
    apart = torch.cat([(after[key] - expected[key]).flatten() for key in before])
    told = {
        "case": name,
        "update_distance": float(apart.norm() / moved.norm()),
        **said,
        "expected_norms": expected_norms,
    }
    print("RESULT " + json.dumps(told), flush=True)


def main() -> None:
    """Cases come as a JSON object on the command line: name -> {"ranks": n, "point": {...}}."""
    # Forked processes have the operators from the start, as the trials' own server does it.
    for operator in ("cpu_adam", "shared_memory_communication"):
        try:
            load_ops([operator])
        except Exception as error:
            print(f"{operator} cannot be built here: {error}", file=sys.stderr)
    failed = False
    for name, case in json.loads(sys.argv[1]).items():
        point = Point(
            **{"precision": "fp32", "gradient_accumulation_steps": ACCUMULATIONS[-1], **case["point"]}
        )
        with tempfile.TemporaryDirectory() as folder:
            children = []
            for rank in range(case["ranks"]):
                pid = os.fork()
                if pid == 0:
                    try:
                        _case(name, point, rank, case["ranks"], Path(folder))
                    except BaseException:
                        import traceback

                        traceback.print_exc()
                        os._exit(1)
                    os._exit(0)
                children.append(pid)
            failed |= any(os.waitpid(pid, 0)[1] for pid in children)
    sys.exit(failed)


if __name__ == "__main__":
    main()
