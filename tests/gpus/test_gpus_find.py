from __future__ import annotations

import pytest

from autotune.errors import UsageError
from autotune.gpus import find_gpu, list_gpus


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("GeForceRTX4090", "NVIDIA GeForce RTX 4090"),
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("RTX 4090 24GB", "NVIDIA GeForce RTX 4090"),
        ("RTX 4090D", "NVIDIA GeForce RTX 4090 D"),
        ("rtx3090ti", "NVIDIA GeForce RTX 3090 Ti"),
        ("RTX-4070-Ti-SUPER", "NVIDIA GeForce RTX 4070 Ti SUPER"),
        ("4070tisuper", "NVIDIA GeForce RTX 4070 Ti SUPER"),
        ("RTX 4070 Ti", "NVIDIA GeForce RTX 4070 Ti"),
        ("RTX 3080", "NVIDIA GeForce RTX 3080"),
        ("RTX 3080 12 GB", "NVIDIA GeForce RTX 3080 12GB"),
        ("4060 ti 16g", "NVIDIA GeForce RTX 4060 Ti 16GB"),
        ("A100 80GB", "NVIDIA A100-SXM4-80GB"),
        ("A100-80G", "NVIDIA A100-SXM4-80GB"),
        ("A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("A100 40GB", "NVIDIA A100-SXM4-40GB"),
        ("a100 pcie 40gb", "NVIDIA A100-PCIE-40GB"),
        ("H100 SXM5", "NVIDIA H100 80GB HBM3"),
        ("h100pcie", "NVIDIA H100 PCIe"),
        ("H200", "NVIDIA H200"),
        ("H200 NVL", "NVIDIA H200 NVL"),
        ("T4", "Tesla T4"),
        ("V100 32GB", "Tesla V100-SXM2-32GB"),
        ("A10", "NVIDIA A10"),
        ("A10G", "NVIDIA A10G"),
        ("L40", "NVIDIA L40"),
        ("l40s", "NVIDIA L40S"),
        ("RTX A6000", "NVIDIA RTX A6000"),
        ("RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation"),
        ("Quadro RTX 6000", "Quadro RTX 6000"),
        ("RTX PRO 6000 Max-Q", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"),
        ("B300", "NVIDIA B300 SXM6 AC"),
    ],
)
def test_people_may_write_a_gpu_as_they_like(said: str, name: str) -> None:
    assert find_gpu(said).name == name


def test_every_gpu_answers_to_what_nvidia_smi_calls_it_and_to_its_aliases() -> None:
    for gpu in list_gpus():
        for name in (gpu.name, gpu.name.lower(), gpu.name.replace(" ", "-"), *gpu.aliases):
            assert find_gpu(name) is gpu, name


@pytest.mark.parametrize(
    ("said", "choices"),
    [
        ("A100", ["NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe"]),
        ("H100", ["NVIDIA H100 PCIe", "NVIDIA H100 NVL"]),
        ("V100", ["Tesla V100-SXM2-16GB", "Tesla V100-PCIE-32GB"]),
        ("RTX 4060 Ti", ["NVIDIA GeForce RTX 4060 Ti 8GB", "NVIDIA GeForce RTX 4060 Ti 16GB"]),
        ("RTX 6000", ["Quadro RTX 6000", "NVIDIA RTX 6000 Ada Generation"]),
        ("RTX PRO 6000", ["NVIDIA RTX PRO 6000 Blackwell Server Edition"]),
    ],
)
def test_a_name_that_fits_several_is_asked_back_with_the_choices(said: str, choices: list[str]) -> None:
    with pytest.raises(UsageError, match="several") as caught:
        find_gpu(said)
    assert all(choice in caught.value.hint for choice in choices)


@pytest.mark.parametrize(
    ("said", "close"),
    [
        ("RTX 4090 Laptop", "NVIDIA GeForce RTX 4090"),  # another chip with 16 GB
        ("RTX 4090 12GB", "NVIDIA GeForce RTX 4090"),
        ("RTX 4095", "NVIDIA GeForce RTX 4090"),
    ],
)
def test_a_gpu_that_is_not_there_is_never_taken_for_its_neighbour(said: str, close: str) -> None:
    with pytest.raises(UsageError, match="not in the table") as caught:
        find_gpu(said)
    assert close in caught.value.hint and "--gpu-budget" in caught.value.hint


@pytest.mark.parametrize("said", ["MI300X", "Apple M2", "a toaster"])
def test_what_is_like_none_gets_no_silly_suggestion(said: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_gpu(said)
    assert "did you mean" not in caught.value.hint


@pytest.mark.parametrize("said", ["", "  ", "NVIDIA", "GeForce RTX", "!!"])
def test_a_name_without_a_model_is_refused(said: str) -> None:
    with pytest.raises(UsageError, match="names no GPU"):
        find_gpu(said)
