from __future__ import annotations

import pytest

from autotune.gpus import find_gpu, list_gpus

GIB = 2**30
# memory.total as nvidia-smi lists it, in MiB.
LISTED_MIB = {
    "NVIDIA H200": 143771,
    "NVIDIA H100 80GB HBM3": 81559,
    "NVIDIA H100 NVL": 95830,
    "NVIDIA B200": 183359,
    "NVIDIA GeForce RTX 5090": 32607,
    "NVIDIA GeForce RTX 4090": 24564,
    "NVIDIA GeForce RTX 3090": 24576,
    "NVIDIA GeForce RTX 5080": 16303,
    "NVIDIA RTX A6000": 49140,
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": 97887,
    "NVIDIA L40S": 46068,
    "NVIDIA L4": 23034,
    "NVIDIA A10G": 23028,
    "NVIDIA A100-SXM4-80GB": 81920,
    "Tesla T4": 15360,
}
# From the CUDA C++ programming guide, and the PCI Express generation of each generation's boards.
CAPABILITIES = {
    "Pascal": {"6.0"},
    "Volta": {"7.0"},
    "Turing": {"7.5"},
    "Ampere": {"8.0", "8.6"},
    "Ada": {"8.9"},
    "Hopper": {"9.0"},
    "Blackwell": {"10.0", "10.3", "12.0"},
}
PCIE = {"Pascal": 3, "Volta": 3, "Turing": 3, "Ampere": 4, "Ada": 4, "Hopper": 5, "Blackwell": 5}


def test_the_table_reaches_from_8_to_192_gb_and_over_every_market() -> None:
    gpus = list_gpus()
    assert len(gpus) >= 45
    sizes = {gpu.marketed_memory_bytes // GIB for gpu in gpus}
    assert {8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 80, 94, 96, 141, 180} <= sizes
    assert sum("GeForce" in gpu.name for gpu in gpus) >= 20
    assert len({gpu.name for gpu in gpus}) == len(gpus)


@pytest.mark.parametrize(("name", "mib"), LISTED_MIB.items())
def test_memory_is_what_the_driver_lists(name: str, mib: int) -> None:
    assert find_gpu(name).memory_bytes == mib * 2**20


def test_no_gpu_has_more_than_its_box_says_nor_much_less() -> None:
    for gpu in list_gpus():
        # ECC inside GDDR6 takes a sixteenth; firmware and the driver's own up to a hundredth more.
        assert 0.925 <= gpu.memory_bytes / gpu.marketed_memory_bytes <= 1, gpu.name


def test_capability_generation_and_bf16_agree() -> None:
    for gpu in list_gpus():
        assert gpu.compute_capability in CAPABILITIES[gpu.architecture], gpu.name
        assert gpu.pcie_generation == PCIE[gpu.architecture], gpu.name
        assert gpu.bf16 == (gpu.architecture not in ("Pascal", "Volta", "Turing")), gpu.name


def test_tensor_rates_stand_in_the_generations_ratio_to_fp32() -> None:
    # Multiply-adds a clock, tensor over fp32, by the whitepapers; GeForce boards halve fp32 accumulation. The
    # A10G is left out: its datasheet quotes the two rates at different clocks.
    for gpu in list_gpus():
        if gpu.name == "NVIDIA A10G":
            continue
        ratio = gpu.bf16_flops / gpu.fp32_flops
        if gpu.architecture == "Turing":
            expected = 4 if "RTX 20" in gpu.name else 8
        elif "GeForce" in gpu.name:
            expected = 2
        elif gpu.compute_capability in ("8.6", "8.9", "12.0"):
            expected = 2 if gpu.name == "NVIDIA L40" else 4
        else:
            continue
        assert ratio == pytest.approx(expected, rel=0.04), gpu.name


@pytest.mark.parametrize(
    ("name", "bus_bits", "gigabits_per_second"),
    [
        ("RTX 4090", 384, 21),
        ("RTX 5090", 512, 28),
        ("RTX 3090", 384, 19.5),
        ("RTX 3060", 192, 15),
        ("L4", 192, 12.5),
        ("T4", 256, 10),
        ("A100-SXM4-80GB", 5120, 3.186),
        ("H200", 6144, 6.25),
    ],
)
def test_bandwidth_is_bus_width_times_data_rate(name: str, bus_bits: int, gigabits_per_second: float) -> None:
    expected = bus_bits * gigabits_per_second / 8 * 1e9
    assert find_gpu(name).memory_bandwidth_bytes_per_second == pytest.approx(expected, rel=0.005)


def test_every_figure_has_a_source_in_words() -> None:
    for gpu in list_gpus():
        assert gpu.sources and all(" " in source for source in gpu.sources), gpu.name
        assert any("nvidia-smi" in source for source in gpu.sources) == (gpu.memory_source == "driver"), (
            gpu.name
        )
