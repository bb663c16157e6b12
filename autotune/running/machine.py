"""What this machine has and can do, found out without loading torch or touching the GPU's memory."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from autotune.errors import EnvironmentProblem
from autotune.space import Capabilities
from trials.nvml import open_nvml
from trials.versions import library_versions
from trials.wire import Device

BF16_COMPUTE_CAPABILITY = (8, 0)


@dataclass(frozen=True)
class Machine:
    """The machine as trials will find it. Sizes in bytes.

    Attributes:
        device: where trials run.
        gpu_name: as NVML names it; None on the CPU.
        gpus: how many GPUs a process can see; 0 on the CPU.
        total_bytes: memory of one GPU, or of the host when trials run on the CPU.
        used_bytes: device memory others hold at this moment.
        free_host_bytes: host memory that is available now.
        driver: the NVIDIA driver's version.
        compute_capability: of the GPU.
        cuda_compiler: whether DeepSpeed's CUDA operators can be compiled here.
        host_compiler: whether its CPU operators can.
        capabilities: what configurations may use.
        versions: of the libraries that matter.
        problems: what stands in the way, in the user's words; empty when ready.
    """

    device: Device
    gpu_name: str | None
    gpus: int
    total_bytes: int
    used_bytes: int
    free_host_bytes: int
    driver: str | None
    compute_capability: tuple[int, int] | None
    cuda_compiler: bool
    host_compiler: bool
    capabilities: Capabilities
    versions: dict[str, str]
    problems: tuple[str, ...] = field(default=())

    @property
    def torch_adam(self) -> bool:
        """Whether AdamW is torch's because DeepSpeed's cannot be compiled (or, on the CPU, need not be)."""
        return self.device == "cpu" or not self.cuda_compiler


def default_device() -> Device:
    """The GPU where there is one that torch can use, else the CPU."""
    nvml = open_nvml()
    return "cuda" if nvml is not None and torch_has_cuda() else "cpu"


def inspect_machine(device: Device, *, nvme: bool = False) -> Machine:
    """Look at the machine.

    Args:
        device: where trials will run.
        nvme: whether the user gave a folder on NVMe.

    Raises:
        EnvironmentProblem: the device is not there, or torch cannot use it.
    """
    problems = tuple(_missing_packages())
    host_compiler = _has_all("g++", "ninja") or (shutil.which("g++") is not None and _has_package("ninja"))
    liger, bitsandbytes = _has_package("liger_kernel"), _has_package("bitsandbytes")
    if device == "cpu":
        capabilities = Capabilities(
            device="cpu",
            bf16=True,
            fp16=False,
            flash_attention_2=False,
            liger=False,
            bitsandbytes=bitsandbytes,
            nvme=nvme,
            refused_attentions=(),
        )
        return Machine(
            device="cpu",
            gpu_name=None,
            gpus=0,
            total_bytes=_host_total_bytes(),
            used_bytes=0,
            free_host_bytes=free_host_bytes(),
            driver=None,
            compute_capability=None,
            cuda_compiler=False,
            host_compiler=host_compiler,
            capabilities=capabilities,
            versions=library_versions(),
            problems=problems,
        )
    nvml = open_nvml()
    if nvml is None:
        raise EnvironmentProblem("no NVIDIA GPU is visible here", "use --device cpu, or check nvidia-smi")
    if not torch_has_cuda():
        raise EnvironmentProblem(
            f"torch {version('torch')} is a build without CUDA",
            "install a CUDA build of torch, or use --device cpu",
        )
    capability = nvml.compute_capability
    capabilities = Capabilities(
        device="cuda",
        bf16=capability >= BF16_COMPUTE_CAPABILITY,
        fp16=True,
        flash_attention_2=_has_package("flash_attn") and capability >= BF16_COMPUTE_CAPABILITY,
        liger=liger,
        bitsandbytes=bitsandbytes,
        nvme=nvme,
        refused_attentions=(),
    )
    return Machine(
        device="cuda",
        gpu_name=nvml.name,
        gpus=nvml.visible_gpus,
        total_bytes=nvml.total_bytes,
        used_bytes=nvml.used_bytes,
        free_host_bytes=free_host_bytes(),
        driver=nvml.driver,
        compute_capability=capability,
        cuda_compiler=host_compiler and _has_cuda_compiler(),
        host_compiler=host_compiler,
        capabilities=capabilities,
        versions=library_versions(),
        problems=problems,
    )


def torch_has_cuda() -> bool:
    """Whether the installed torch is a CUDA build, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    return (Path(spec.origin).parent / "lib" / "libtorch_cuda.so").exists()


def free_host_bytes() -> int:
    """Host memory available to new processes now, as the kernel estimates it and a container allows it."""
    available = _meminfo("MemAvailable")
    limit, used = _cgroup("memory.max"), _cgroup("memory.current")
    if limit is not None and used is not None:
        available = min(available, max(0, limit - used))
    return available


def _host_total_bytes() -> int:
    total = _meminfo("MemTotal")
    limit = _cgroup("memory.max")
    return total if limit is None else min(total, limit)


def _meminfo(key: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _cgroup(name: str) -> int | None:
    try:
        text = (Path("/sys/fs/cgroup") / name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _missing_packages() -> list[str]:
    missing = []
    for package in ("torch", "transformers", "deepspeed", "peft", "accelerate", "optuna"):
        try:
            version(package)
        except PackageNotFoundError:
            missing.append(f"{package} is not installed")
    return missing


def _has_package(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _has_all(*programs: str) -> bool:
    return all(shutil.which(program) for program in programs)


def _has_cuda_compiler() -> bool:
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    return shutil.which("nvcc") is not None or any(
        home and (Path(home) / "bin/nvcc").exists() for home in homes
    )
