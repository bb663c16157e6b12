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


def test_launching_is_timed_as_it_usually_is_not_at_its_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is fast for a call in five: the others are its usual speed."""
    now, calls = 0.0, 0

    def clock() -> float:
        return now

    def work() -> None:
        nonlocal now, calls
        calls += 1
        now += 0.01 if calls % 5 == 0 else 0.02

    monkeypatch.setattr(probe.time, "perf_counter", clock)
    assert probe._usual_seconds(work, "cpu", 1.0) == pytest.approx(0.02)
    assert 50 < calls < 70
    calls, now = 0, 0.0
    assert probe._usual_seconds(work, "cpu", 0.0) == pytest.approx(0.02) and calls == 2


def test_what_there_is_no_memory_for_is_left_out_and_the_rest_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(probe.STREAM_BYTES, "cpu", 1 << 60)
    monkeypatch.setattr(probe, "_launch", lambda device: {"launch_seconds": 1e-5})
    monkeypatch.setattr(probe, "_cpu_adam", lambda device: {})
    rates = probe.probe_machine("cpu")
    assert "memory_bytes" not in rates
    assert rates["host_bytes"] > 0 and rates["launch_seconds"] == 1e-5
