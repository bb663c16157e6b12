"""What an exception means: real refusals where this machine can make them, elsewhere the libraries' words."""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np
import pytest
import torch

from trials.failures import Failure, NotANumber, classify
from trials.model_build import InvalidPoint
from trials.wire import Outcome

# As torch 2.11's CUDACachingAllocator writes them: under a cap, and on a card that is itself full.
CAPPED = (
    "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 139.80 GiB of which "
    "117.00 GiB is free. 22.00 GiB allowed; Of the allocated memory 21.25 GiB is allocated by PyTorch, and "
    "256.00 MiB is reserved by PyTorch but unallocated."
)
FULL_CARD = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which "
    "12.69 MiB is free. Including non-PyTorch memory, this process has 23.62 GiB memory in use. Of the "
    "allocated memory 22.90 GiB is allocated by PyTorch, and 210.13 MiB is reserved by PyTorch but "
    "unallocated."
)


def on_gpu(error: BaseException) -> Failure:
    return classify(error, on_cpu=False, limited=True)


def on_limited_cpu(error: BaseException) -> Failure:
    return classify(error, on_cpu=True, limited=True)


def test_a_capped_cuda_refusal_tells_what_was_asked_and_what_was_short() -> None:
    failure = on_gpu(torch.OutOfMemoryError(CAPPED))
    assert failure.outcome is Outcome.OOM
    assert failure.requested_bytes == 1.5 * 2**30
    # 21.25 allocated + 0.25 reserved beside it + 1.5 asked - 22 allowed
    assert failure.short_bytes == 1.0 * 2**30


def test_what_is_reserved_in_pieces_does_not_serve_the_request_and_counts_as_taken() -> None:
    # Measured on an H200: 187 + 22 would fit 209.01, but for 15 in pieces of expandable segments.
    text = (
        "CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which "
        "139.09 GiB is free. Including non-PyTorch memory, this process has 722.00 MiB memory in use. "
        "209.01 MiB allowed; Of the allocated memory 187.00 MiB is allocated by PyTorch, and 15.00 MiB is "
        "reserved by PyTorch but unallocated."
    )
    short = on_gpu(torch.OutOfMemoryError(text)).short_bytes
    assert short is not None and abs(short - 14.99 * 2**20) < 2**10


def test_a_full_card_tells_only_what_was_asked() -> None:
    failure = on_gpu(torch.OutOfMemoryError(FULL_CARD))
    assert (failure.outcome, failure.requested_bytes, failure.short_bytes) == (Outcome.OOM, 20 * 2**20, None)


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other call",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, unhandled cuda error\n"
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
        "Triton Error [CUDA]: out of memory",
    ],
)
def test_libraries_that_find_the_gpu_full_are_out_of_its_memory(text: str) -> None:
    assert on_gpu(RuntimeError(text)).outcome is Outcome.OOM


def test_torchs_refusal_on_the_cpu_is_the_devices_under_a_limit_and_the_machines_without_one() -> None:
    with pytest.raises(RuntimeError) as refused:
        torch.empty(1 << 60, dtype=torch.uint8)
    failure = on_limited_cpu(refused.value)
    assert failure.outcome is Outcome.OOM
    assert failure.requested_bytes == 1 << 60
    assert classify(refused.value, on_cpu=True, limited=False).outcome is Outcome.HOST_OOM
    # On a GPU run it is the host that is full.
    assert on_gpu(refused.value).outcome is Outcome.HOST_OOM


def test_numpys_and_pythons_refusals_are_out_of_memory() -> None:
    with pytest.raises(MemoryError) as numpys:
        np.empty(1 << 60, dtype=np.uint8)
    with pytest.raises(MemoryError) as pythons:
        bytearray(1 << 60)
    for error in (numpys.value, pythons.value):
        assert on_limited_cpu(error).outcome is Outcome.OOM
        assert on_gpu(error).outcome is Outcome.HOST_OOM


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("std::bad_alloc"),
        RuntimeError("Resource temporarily unavailable"),
        RuntimeError("can't start new thread"),
        OSError(12, "Cannot allocate memory"),
        BlockingIOError(11, "Resource temporarily unavailable"),
        RuntimeError("could not create a primitive"),
    ],
    ids=str,
)
def test_an_exhausted_limit_shows_itself_in_many_words(error: BaseException) -> None:
    assert on_limited_cpu(error).outcome is Outcome.OOM


def test_a_thread_that_finds_no_room_for_its_stack_is_out_of_memory() -> None:
    program = (
        "import resource, threading, traceback\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (1 << 24, resource.RLIM_INFINITY))\n"
        "threading.stack_size(1 << 26)\n"
        "threading.Thread(target=print).start()\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.returncode
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] != 1 << 24
    assert on_limited_cpu(RuntimeError(run.stderr.strip().splitlines()[-1])).outcome is Outcome.OOM


def refuse() -> None:
    raise RuntimeError("CUDA error: out of memory")


def test_memory_that_cannot_be_pinned_is_the_hosts_though_cuda_says_out_of_memory() -> None:
    # DeepSpeed's accelerator pins through a method of this name; CUDA's words are those for device memory.
    def pin_memory() -> None:
        refuse()

    with pytest.raises(RuntimeError) as pinning:
        pin_memory()
    with pytest.raises(RuntimeError) as computing:
        refuse()
    assert on_gpu(pinning.value).outcome is Outcome.HOST_OOM
    assert on_gpu(computing.value).outcome is Outcome.OOM
    assert on_gpu(RuntimeError("cudaHostAlloc failed")).outcome is Outcome.HOST_OOM


def test_the_cause_of_an_exception_counts() -> None:
    try:
        try:
            raise torch.OutOfMemoryError(CAPPED)
        except torch.OutOfMemoryError as cause:
            raise ValueError("engine could not start") from cause
    except ValueError as error:
        assert on_gpu(error).outcome is Outcome.OOM
    try:
        try:
            raise MemoryError
        except MemoryError:
            raise KeyError("while handling")  # noqa: B904 - the implicit context is what is tested
    except KeyError as error:
        assert on_limited_cpu(error).outcome is Outcome.OOM


def test_nan_and_invalid_points_are_told_in_their_own_words() -> None:
    assert on_gpu(NotANumber("the loss became nan")) == Failure(Outcome.NAN, "the loss became nan")
    assert on_gpu(InvalidPoint("no such module")) == Failure(Outcome.INVALID, "no such module")


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (4x8 and 9x2)"),
        RuntimeError("cannot pin 'torch.FloatTensor' only dense CPU tensors can be pinned"),
        ValueError("pin_memory must be a bool"),
        KeyError("weight"),
        FileNotFoundError(2, "No such file or directory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_anything_else_is_a_crash_with_its_type_and_words(error: BaseException) -> None:
    failure = on_gpu(error)
    assert failure.outcome is Outcome.CRASH
    assert failure.message == f"{type(error).__name__}: {error}"


def test_a_message_is_one_line_of_bearable_length() -> None:
    message = on_gpu(RuntimeError("first\n  second\t" + 2000 * "x")).message
    assert message.startswith("RuntimeError: first second x")
    assert len(message) <= 400
