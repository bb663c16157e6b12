"""The probe's arithmetic, on this machine's own processor."""

from __future__ import annotations

import pytest

from trials import probe


def test_two_sizes_of_matrices_give_the_rate_and_the_size_at_half_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine of 100 Gflop/s that is at half of that for matrices of 200."""
    small, large = probe.MATRIX_SIZES["cpu"]
    seconds = {size: 2.0 * size**3 / 1e11 * (1 + 200 / size) for size in (small, large)}
    monkeypatch.setattr(probe, "_product_seconds", lambda device, size, dtype: seconds[size])
    rates = probe._matmul("cpu")
    assert rates["matmul_flops"] == pytest.approx(1e11)
    assert rates["matmul_half_size"] == pytest.approx(200)
    assert rates["fp32_matmul_flops"] == pytest.approx(1e11)


def test_what_there_is_no_memory_for_is_left_out_and_the_rest_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(probe.STREAM_BYTES, "cpu", 1 << 60)
    monkeypatch.setattr(probe, "_launch", lambda device: {"launch_seconds": 1e-5})
    monkeypatch.setattr(probe, "_cpu_adam", lambda device: {})
    rates = probe.probe_machine("cpu")
    assert "memory_bytes" not in rates
    assert rates["host_bytes"] > 0 and rates["launch_seconds"] == 1e-5
