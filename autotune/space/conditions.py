"""Every condition that makes a point impossible, in one place.

A rule looks at one point in one setting and answers with the reason, in the user's words and without this
point's own numbers, so that lost points can be counted by reason; or with None. Shape rules read only the
micro batch, the accumulation and the checkpointed share; engine rules read only the other fields. So a space
is checked engine by engine and shape by shape, never point by point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.space.batch import accumulation_steps, misses_global_batch
from autotune.space.setting import Setting
from autotune.space.trainers import LIMITS, why_beyond
from trials.wire import Point

Rule = Callable[[Point, Setting], str | None]

SHAPE_FIELDS = ("micro_batch_size", "gradient_accumulation_steps", "checkpoint_fraction")


def violation(point: Point, setting: Setting) -> str | None:
    """Why a point is impossible in a setting, or None if it can be tried."""
    broken = first_broken(ENGINE_RULES + SHAPE_RULES, point, setting)
    return broken[1] if broken else None


def first_broken(rules: Sequence[Rule], point: Point, setting: Setting) -> tuple[int, str] | None:
    """The first of the rules that a point breaks: its position and its reason; None if it keeps all."""
    for position, rule in enumerate(rules):
        reason = rule(point, setting)
        if reason is not None:
            return position, reason
    return None


def _offload_needs_stage(point: Point, setting: Setting) -> str | None:
    if "parameters" in point.offload and point.zero_stage != 3:
        return "offload of parameters needs ZeRO stage 3: set zero_stage: [3]"
    if "nvme" in point.offload and point.zero_stage != 3:
        return "offload to NVMe needs ZeRO stage 3: set zero_stage: [3]"
    if point.offload != "none" and point.zero_stage == 0:
        return "offload of the optimizer needs ZeRO stage 1, 2 or 3: set zero_stage: [1, 2, 3]"
    return None


def _nvme_needs_path(point: Point, setting: Setting) -> str | None:
    if "nvme" in point.offload and not setting.capabilities.nvme:
        return "offload to NVMe needs a folder on such a disk and libaio: give --nvme-path"
    return None


def _quantization_needs_lora(point: Point, setting: Setting) -> str | None:
    if point.quantization == "none":
        return None
    if point.lora_rank == 0:
        return "a quantised base cannot be trained in full: set lora_rank above 0"
    if not setting.capabilities.bitsandbytes:
        return "quantization needs bitsandbytes: install it"
    if point.quantization == "int8" and point.zero_stage == 3:
        # bitsandbytes' Linear8bitLt keeps the whole weight in its own state (state.CB), which ZeRO-3 neither
        # partitions nor offloads: every weight is held twice. NF4 has no such copy.
        return "int8 weights are out of ZeRO stage 3's reach: set zero_stage: [0, 1, 2], or use nf4"
    return None


def _eight_bit_optimizer(point: Point, setting: Setting) -> str | None:
    if point.optimizer == "adamw":
        return None
    if not setting.capabilities.bitsandbytes:
        return "8-bit optimizers need bitsandbytes: install it"
    if point.offload != "none":
        return "8-bit optimizers keep their state on the GPU: set optimizer: [adamw] for offload"
    if point.optimizer == "paged_adamw8bit" and setting.capabilities.device != "cuda":
        # bitsandbytes falls back silently, and the point would be measured under a wrong name.
        return "paged_adamw8bit needs a GPU: on the CPU it is nothing but adamw8bit"
    return None


def _precision_is_supported(point: Point, setting: Setting) -> str | None:
    capabilities = setting.capabilities
    if point.precision == "fp16" and capabilities.device == "cpu":
        return "DeepSpeed refuses fp16 on the CPU: set precision: [bf16]"
    if point.precision == "fp16" and not capabilities.fp16:
        return "the device does not compute in fp16: set precision: [bf16]"
    if point.precision == "bf16" and not capabilities.bf16:
        return "the device does not compute in bf16: set precision: [fp16]"
    return None


def _attention_is_possible(point: Point, setting: Setting) -> str | None:
    capabilities = setting.capabilities
    if point.attention in capabilities.refused_attentions:
        return f"the model refuses {point.attention} attention"
    if point.attention != "flash_attention_2":
        return None
    if capabilities.device != "cuda":
        return "flash_attention_2 needs a GPU: set attention: [sdpa]"
    if not capabilities.flash_attention_2:
        return "flash_attention_2 is not installed: set attention: [sdpa]"
    if point.precision == "fp32":
        return "flash_attention_2 computes in 16 bits only: set precision: [bf16]"
    return None


def _liger_is_possible(point: Point, setting: Setting) -> str | None:
    if point.liger_kernel and setting.capabilities.device != "cuda":
        return "liger_kernel needs a GPU: set liger_kernel: [false]"
    if point.liger_kernel and not setting.capabilities.liger:
        return "liger-kernel is not installed or does not know the model: set liger_kernel: [false]"
    return None


def _method_is_wanted(point: Point, setting: Setting) -> str | None:
    wanted = "lora" if setting.method == "auto" else setting.method
    if wanted not in ("any", point.method):
        return f"{_TITLES[point.method]} is not the method asked for ({_TITLES[wanted]}): {_REMEDIES[wanted]}"
    if 0 < point.lora_rank < setting.min_rank:
        return f"the LoRA rank is below --min-rank {setting.min_rank}"
    return None


_TITLES = {"full": "full fine-tuning", "lora": "LoRA", "qlora": "QLoRA"}
_REMEDIES = {
    "full": "set lora_rank: [0], or give another --method",
    "lora": "set lora_rank: [16] and quantization: [none], or give another --method",
    "qlora": "set lora_rank: [16] and quantization: [nf4], or give another --method",
}


def _batch_matches(point: Point, setting: Setting) -> str | None:
    if setting.global_batch is None:
        return None
    steps = accumulation_steps(setting.global_batch, point.micro_batch_size, setting.gpus)
    sequences = point.micro_batch_size * steps * setting.gpus
    if misses_global_batch(setting.global_batch, sequences, exact=setting.exact_global_batch):
        off = "is not exactly" if setting.exact_global_batch else "is more than 10 % off"
        return (
            f"micro batch x accumulation x GPUs {off} the global batch of {setting.global_batch}: "
            "list other micro batches, or change --global-batch"
        )
    if point.gradient_accumulation_steps != steps:
        return f"gradient_accumulation_steps misses the global batch of {setting.global_batch}: leave it out"
    return None


def _trainer_can_express_engine(point: Point, setting: Setting) -> str | None:
    return why_beyond(setting.trainer, point, _ENGINE_KNOBS) if setting.trainer else None


def _trainer_can_express_shape(point: Point, setting: Setting) -> str | None:
    return why_beyond(setting.trainer, point, _SHAPE_KNOBS) if setting.trainer else None


_SHAPE_KNOBS = frozenset(SHAPE_FIELDS)
_ENGINE_KNOBS = frozenset(LIMITS) - _SHAPE_KNOBS

ENGINE_RULES: tuple[Rule, ...] = (
    _offload_needs_stage,
    _nvme_needs_path,
    _quantization_needs_lora,
    _eight_bit_optimizer,
    _precision_is_supported,
    _attention_is_possible,
    _liger_is_possible,
    _method_is_wanted,
    _trainer_can_express_engine,
)
SHAPE_RULES: tuple[Rule, ...] = (_batch_matches, _trainer_can_express_shape)
