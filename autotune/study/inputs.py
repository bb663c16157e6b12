"""What a study is about: the inputs that make two runs the same study."""

from __future__ import annotations

import hashlib
import json
import re

from pydantic import Field

from trials.wire import Device, Strict

DIGEST_DIGITS = 6
# What a study's name is made of since the first version. A field that came later counts only where it is not
# at its default, so that the same command finds the study that an older autotune began.
FIRST_FIELDS = frozenset(
    {
        "model",
        "model_digest",
        "method",
        "seq_len",
        "global_batch",
        "exact_global_batch",
        "budget_bytes",
        "host_budget_bytes",
        "device",
        "gpu_name",
        "gpus",
        "space_name",
        "space_digest",
        "min_rank",
        "lora_targets",
        "trainer",
        "load_weights",
        "nvme_path",
    }
)


class StudyInputs(Strict):
    """The inputs of a tuning run that decide what its trials measure. Sizes in bytes.

    Two runs with equal inputs are one study: the second resumes the first. What changes from call to call
    without changing a measurement (number of trials, time-outs, sampler, seed) is not among them.
    """

    model: str = Field(description="what the user calls it")
    model_digest: str = Field(description="of its configuration")
    method: str = Field(description="auto, full, lora, qlora or any")
    seq_len: int = Field(ge=1, description="tokens per sequence")
    global_batch: int | None = Field(description="sequences per optimizer step; None: searched")
    exact_global_batch: bool = Field(False, description="whether points may miss it by up to 10 %")
    budget_bytes: int = Field(ge=1, description="device memory per GPU")
    host_budget_bytes: int | None = Field(
        None, description="None: what the machine has free, whatever that is"
    )
    device: Device
    gpu_name: str | None = Field(None, description="None on the CPU")
    gpus: int = Field(1, ge=1)
    space_name: str
    space_digest: str
    min_rank: int = Field(16, ge=0, description="smallest LoRA rank")
    lora_targets: tuple[str, ...] | None = Field(None, description="None: all linear layers except the head")
    trainer: str | None = None
    load_weights: bool = False
    nvme_path: str | None = None

    def digest(self) -> str:
        """64 hexadecimal digits that are equal exactly if the inputs are."""
        fields, values = type(self).model_fields, self.model_dump(mode="json")
        defaults = {name: getattr(self, name) == fields[name].default for name in values}
        counted = {name: values[name] for name in values if name in FIRST_FIELDS or not defaults[name]}
        text = json.dumps(counted, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def study_name(self) -> str:
        """A name that a person can read and the inputs decide, such as `tiny-llama-lora-1GiB-3f9a2c`."""
        parts = [
            part for part in re.split(r"[/\\]", self.model) if part not in ("", ".", "..", "config.json")
        ]
        model = re.sub(r"[^a-z0-9.]+", "-", "".join(parts[-1:]).lower())[-40:].strip("-.") or "model"
        return f"{model}-{self.method}-{_compact_size(self.budget_bytes)}-{self.digest()[:DIGEST_DIGITS]}"

    def differences(self, other: StudyInputs) -> tuple[str, ...]:
        """The names of the fields in which two sets of inputs differ."""
        names = type(self).model_fields
        return tuple(name for name in names if getattr(self, name) != getattr(other, name))


def _compact_size(size_bytes: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20)):
        if size_bytes % scale == 0:
            return f"{size_bytes // scale}{unit}"
    unit, scale = ("GiB", 2**30) if size_bytes >= 2**30 else ("MiB", 2**20)
    return f"{size_bytes / scale:.1f}{unit}"
