"""What this machine does per second: a few seconds of measuring, once per machine, in a forked process.

The figures are those that `autotune.throughput.Rates` names. Each is the best of several repetitions, for
what disturbs a measurement only ever makes it slower; but the host's launches are timed as they usually are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from trials.ops import is_compiled

REPETITIONS = {"cuda": 5, "cpu": 3}
# Square matrices of both sizes tell the rate of large ones and the size at which half of it is reached.
MATRIX_SIZES = {"cuda": (2048, 8192), "cpu": (128, 512)}
STREAM_BYTES = {"cuda": 1 << 30, "cpu": 1 << 25}
COPY_BYTES = {"cuda": 1 << 28, "cpu": 1 << 25}
ADAM_PARAMETERS = {"cuda": 1 << 25, "cpu": 1 << 22}
# A shared host launches a third faster or slower from one second to the next, and a fifth for half a minute
# at a time: its usual speed counts, which one moment does not show.
LAUNCH_SECONDS = {"cuda": 2.0, "cpu": 0.5}
# 1 where torch's Adam stood in for DeepSpeed's, which was not compiled: several times slower.
STAND_IN = "cpu_adam_stand_in"
# A decoder that computes next to nothing, so that its time is that of launching it.
LAYERS = 4
# As `autotune.throughput.work` counts a Llama layer's launches forward, and both ways.
LAYER_LAUNCHES = 32
BOTH_WAYS = 3


def probe_machine(device: str) -> dict[str, float]:
    """The machine's rates, by name.

    Args:
        device: "cuda" or "cpu".

    Returns:
        Without what could not be measured: on a machine with little memory, say.
    """
    probes: tuple[Callable[[str], dict[str, float]], ...] = (
        _matmul,
        _memory,
        _host_to_device,
        _launch,
        _cpu_adam,
    )
    rates: dict[str, float] = {}
    for probe in probes:
        try:
            rates |= probe(device)
        except (RuntimeError, MemoryError):
            # Too little memory for it: the table's figure serves.
            continue
    return rates


def _matmul(device: str) -> dict[str, float]:
    small, large = MATRIX_SIZES[device]
    dtype = torch.bfloat16
    seconds = {size: _product_seconds(device, size, dtype) for size in (small, large)}
    # seconds = 2 n^3 / rate x (1 + half / n): two sizes, two unknowns.
    per_operation = {size: value / (2.0 * size**3) for size, value in seconds.items()}
    half = (per_operation[small] - per_operation[large]) / (
        per_operation[large] / small - per_operation[small] / large
    )
    half = min(max(half, 1.0), float(large)) if half > 0 else 1.0
    rate = (1 + half / large) / per_operation[large]
    found = {"matmul_flops": rate, "matmul_half_size": half}
    torch.set_float32_matmul_precision("high")
    wide = _product_seconds(device, large, torch.float32)
    return found | {"fp32_matmul_flops": 2.0 * large**3 / wide * (1 + half / large)}


def _product_seconds(device: str, size: int, dtype: torch.dtype) -> float:
    left = torch.randn(size, size, device=device, dtype=dtype)
    right = torch.randn(size, size, device=device, dtype=dtype)
    times = 10 if device == "cuda" else 1
    return _best_seconds(lambda: torch.mm(left, right), device, times=times)


def _memory(device: str) -> dict[str, float]:
    source = torch.ones(STREAM_BYTES[device], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = _best_seconds(lambda: target.copy_(source), device)
    return {"memory_bytes": 2 * source.numel() / seconds}


def _host_to_device(device: str) -> dict[str, float]:
    source = torch.ones(COPY_BYTES[device], dtype=torch.uint8)
    if device == "cuda":
        source = source.pin_memory()
    target = torch.empty_like(source, device=device)
    seconds = _best_seconds(lambda: target.copy_(source, non_blocking=True), device)
    return {"host_bytes": source.numel() / seconds}


def _launch(device: str) -> dict[str, float]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=64,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).to(device=device, dtype=torch.bfloat16)
    tokens = torch.zeros(1, 16, dtype=torch.long, device=device)

    def layers() -> None:
        model.zero_grad(set_to_none=True)
        hidden = model.model(input_ids=tokens).last_hidden_state
        hidden.sum().backward()

    seconds = _usual_seconds(layers, device, LAUNCH_SECONDS[device])
    return {"launch_seconds": seconds / (LAYERS * LAYER_LAUNCHES * BOTH_WAYS)}


def _cpu_adam(device: str) -> dict[str, float]:
    count = ADAM_PARAMETERS[device]
    parameter = torch.nn.Parameter(torch.ones(count))
    parameter.grad = torch.ones(count)
    optimizer = _adam([parameter])
    seconds = _best_seconds(lambda: optimizer.step(), "cpu")
    return {"cpu_adam_parameters": count / seconds, STAND_IN: float(not is_compiled("cpu_adam"))}


def _adam(parameters: list[torch.nn.Parameter]) -> Any:
    """DeepSpeed's Adam for the host where it is compiled; torch's is a stand-in for it."""
    if is_compiled("cpu_adam"):
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        return DeepSpeedCPUAdam(parameters)
    return torch.optim.AdamW(parameters, foreach=True)


def _usual_seconds(work: Callable[[], Any], device: str, during: float) -> float:
    """The median time of one call, of as many as fit into some seconds after one that warms up."""
    work()
    _synchronize(device)
    seconds: list[float] = []
    until = time.perf_counter() + during
    while not seconds or time.perf_counter() < until:
        begun = time.perf_counter()
        work()
        _synchronize(device)
        seconds.append(time.perf_counter() - begun)
    return median(seconds)


def _best_seconds(work: Callable[[], Any], device: str, *, times: int = 1) -> float:
    """The shortest time of one call, of several repetitions after one that warms up."""
    best = float("inf")
    for repetition in range(1 + REPETITIONS[device]):
        _synchronize(device)
        begun = time.perf_counter()
        for _ in range(times):
            work()
        _synchronize(device)
        if repetition:
            best = min(best, (time.perf_counter() - begun) / times)
    return best


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
