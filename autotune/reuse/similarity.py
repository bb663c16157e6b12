"""How far what was learned of one training is trusted for another: a product of factors, with reasons.

What carries over is which configurations are fast relative to others. That depends on the ratio of arithmetic
to memory to launching kernels, so it changes with everything below, and a factor says how much of it is left:

    another device (CPU or GPU)     nothing carries over
    the architecture                0.85 for another one of the same build (gated like Llama, or plain like
                                    GPT-2), 0.7 for another build, 0.7 more where only one has experts
    size                            parameters 0.80, width to depth 0.90, vocabulary to width 0.92, queries to
                                    keys and values 0.97, each per factor of e between the two
    the method                      0.8 where one searches methods that the other does not, 0.5 for another
    sequence length                 0.90 per factor of e
    budget                          0.92 per factor of e, of the budget and of the budget to the parameters
    global batch                    0.97 per factor of e; 0.95 where only one searches it
    the GPU                         0.8 for another one, and 0.75 per factor of e between their ratios of
                                    arithmetic to bandwidth; 0.7 where either is in no table
    GPUs per trial                  0.7 for another number
    processors (on the CPU alone)   0.9 per factor of e, for another number
    LoRA's modules                  0.85 for others
    libraries                       torch, transformers, deepspeed, peft, bitsandbytes: 0.97 each for another
                                    minor version, 0.9 for another major one; patches do not matter

The figures are judgements, not fits: a trust only weighs, and what does not hold is noticed by measuring
(`agreement`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.errors import UsageError
from autotune.reuse.profile import Profile
from autotune.sizes import format_size

# Below this a study is not worth a measurement.
LEAST_TRUST = 0.15
LIBRARIES = ("torch", "transformers", "deepspeed", "peft", "bitsandbytes")
_METHODS = {
    "full": {"full"},
    "lora": {"lora"},
    "qlora": {"qlora"},
    "auto": {"lora", "qlora"},
    "any": {"full", "lora", "qlora"},
}
# A ratio nearer to 1 than this is not worth a word.
_SAME_RATIO = 1.05


@dataclass(frozen=True)
class Factor:
    """One way in which two trainings differ.

    Attributes:
        share: of what was learned, what is left; in [0, 1].
        words: how they differ; empty where it is not worth a word.
    """

    share: float
    words: str


@dataclass(frozen=True)
class Similarity:
    """How far a study is trusted.

    Attributes:
        trust: in [0, 1]; 1 for the same training.
        why: in words.
    """

    trust: float
    why: str


def similarity(source: Profile, target: Profile) -> Similarity:
    """How far what was learned of one training is trusted for another.

    Args:
        source: of which something is known.
        target: that is about to be tuned.
    """
    factors = list(_factors(source, target))
    trust = math.prod(factor.share for factor in factors)
    told = sorted((factor for factor in factors if factor.words), key=lambda factor: factor.share)
    return Similarity(trust, ", ".join(factor.words for factor in told) or "the same training")


def _factors(source: Profile, target: Profile) -> Iterator[Factor]:
    if source.device != target.device:
        yield Factor(0.0, f"on the {_device(source)}, not the {_device(target)}")
        return
    if source.model_digest == target.model_digest:
        yield Factor(1.0, "the same model")
    else:
        yield from _model_factors(source, target)
    yield _method(source, target)
    yield _ratio(0.90, source.seq_len, target.seq_len, f"{source.seq_len:,} tokens a sequence")
    budget = f"a budget of {format_size(source.budget_bytes)}"
    yield _ratio(0.92, source.budget_bytes, target.budget_bytes, budget)
    tightness = [profile.budget_bytes / profile.parameters for profile in (source, target)]
    yield Factor(_left(0.92, *tightness), "")
    yield _global_batch(source, target)
    if source.gpus != target.gpus:
        yield Factor(0.7, f"on {source.gpus} GPUs")
    if source.lora_targets != target.lora_targets and {source.method, target.method} != {"full"}:
        yield Factor(0.85, "LoRA in other modules")
    if target.device == "cuda":
        yield _gpu(source, target)
    elif source.host_cpus and target.host_cpus:
        yield _ratio(0.9, source.host_cpus, target.host_cpus, f"on {source.host_cpus} processors")
    yield from _libraries(source, target)


def _model_factors(source: Profile, target: Profile) -> Iterator[Factor]:
    if source.family == target.family:
        yield Factor(1.0, f"the same architecture ({source.family})")
    elif source.gated == target.gated:
        yield Factor(0.85, f"a similar architecture ({source.family})")
    else:
        yield Factor(0.7, f"another architecture ({source.family})")
    if (source.experts > 1) != (target.experts > 1):
        yield Factor(0.7, "experts" if source.experts > 1 else "no experts")
    relative = source.parameters / target.parameters
    size = f"{relative:.2g} times the parameters"
    yield _ratio(0.80, source.parameters, target.parameters, size)
    for base, ratio in (
        (0.90, [profile.hidden / profile.layers for profile in (source, target)]),
        (0.92, [profile.vocabulary / profile.hidden for profile in (source, target)]),
        (0.97, [profile.heads / profile.kv_heads for profile in (source, target)]),
    ):
        yield Factor(_left(base, *ratio), "")


def _method(source: Profile, target: Profile) -> Factor:
    ours, theirs = _METHODS[target.method], _METHODS[source.method]
    if ours == theirs:
        return Factor(1.0, "")
    return Factor(0.8 if ours & theirs else 0.5, f"method {source.method}")


def _global_batch(source: Profile, target: Profile) -> Factor:
    ours, theirs = target.global_batch, source.global_batch
    if ours is None or theirs is None:
        return Factor(
            1.0 if ours == theirs else 0.95, "" if ours == theirs else f"a global batch of {theirs}"
        )
    return _ratio(0.97, theirs, ours, f"a global batch of {theirs}")


def _gpu(source: Profile, target: Profile) -> Factor:
    from autotune.gpus import find_gpu

    if source.gpu_name == target.gpu_name:
        return Factor(1.0, "the same GPU")
    words = f"on a {source.gpu_name}"
    try:
        gpus = [find_gpu(profile.gpu_name or "") for profile in (source, target)]
    except UsageError:
        return Factor(0.7, words)
    balance = [gpu.bf16_flops / gpu.memory_bandwidth_bytes_per_second for gpu in gpus]
    return Factor(0.8 * _left(0.75, *balance), words)


def _libraries(source: Profile, target: Profile) -> Iterator[Factor]:
    for name in LIBRARIES:
        ours, theirs = target.versions.get(name), source.versions.get(name)
        if ours is None or theirs is None or _parts(ours)[:2] == _parts(theirs)[:2]:
            continue
        same_major = _parts(ours)[:1] == _parts(theirs)[:1] != ("0",)
        yield Factor(0.97 if same_major else 0.9, f"{name} {theirs}")


def _parts(version: str) -> tuple[str, ...]:
    return tuple(version.partition("+")[0].split("."))


def _ratio(base: float, ours: float, theirs: float, words: str) -> Factor:
    near = max(ours / theirs, theirs / ours) < _SAME_RATIO
    return Factor(_left(base, ours, theirs), "" if near else words)


def _left(base: float, one: float, other: float) -> float:
    """`base` per factor of e between two positive numbers."""
    return float(base ** abs(math.log(one / other)))


def _device(profile: Profile) -> str:
    return "CPU" if profile.device == "cpu" else "GPU"
