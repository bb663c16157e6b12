"""Runs and times full optimizer steps on a live engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from trials.batches import SyntheticBatches
from trials.device_memory import DeviceMemory
from trials.failures import NotANumber
from trials.interval import median_interval, relative_half_width
from trials.surroundings import (
    DRIFT_SHARE,
    OTHERS_CPU_SHARE,
    OthersLoad,
    Surroundings,
    change_words,
    disturbance,
    step_change,
)
from trials.wire import Phase, TrialSpec

# An engine that has stepped before has its kernels; a new shape of batch still needs some of its own.
REUSED_WARMUP_STEPS = 1
# A first timed step that is so much slower than the second was still a warm-up.
UNSETTLED_SHARE = 0.03
# Warming up needs accumulation to happen, not all of it: its memory is that of two micro batches.
WARMUP_ACCUMULATION = 2


@dataclass
class Measurement:
    """What the steps said."""

    step_seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    phase_peaks: dict[Phase, int] = field(default_factory=dict)
    stopped: bool = False
    seen: list[Surroundings] = field(default_factory=list)

    @property
    def disturbed(self) -> str | None:
        """What disturbed the timed steps, in words; only a GPU is watched for that."""
        return disturbance(self.seen, self.step_seconds) if self.seen else None

    def tokens_per_second(self, tokens_per_step: int) -> tuple[float, float, float]:
        """Median and its interval, low and high, over the timed steps."""
        middle, low, high = median_interval(self.step_seconds)
        return tokens_per_step / middle, tokens_per_step / high, tokens_per_step / low


class Stepper:
    """Optimizer steps of one engine, with the phase it is in at any moment."""

    def __init__(
        self,
        engine: Any,
        spec: TrialSpec,
        batches: SyntheticBatches,
        memory: DeviceMemory,
        report: Callable[[dict[str, Any]], None],
        *,
        reused: bool = False,
    ) -> None:
        self.phase = Phase.FORWARD
        self._engine = engine
        self._spec = spec
        self._batches = batches
        self._memory = memory
        self._report = report
        self._steps_done = 0
        self._reused = reused
        self._warmup_steps = min(spec.warmup_steps, REUSED_WARMUP_STEPS) if reused else spec.warmup_steps

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a full optimizer step, over all processes."""
        point = self._spec.point
        sequences = point.micro_batch_size * point.gradient_accumulation_steps * self._spec.processes
        return sequences * self._spec.seq_len

    def step(self, accumulation: int) -> float:
        """One optimizer step of this many micro batches; its last loss.

        Raises:
            NotANumber: the loss is not finite.
        """
        engine, spec = self._engine, self._spec
        micro_batch = spec.point.micro_batch_size
        engine.set_train_batch_size(micro_batch * accumulation * spec.processes)
        # DeepSpeed counts micro batches since its start; a changed accumulation must start at a boundary.
        engine.micro_steps = 0
        loss = None
        for _ in range(accumulation):
            self.phase = Phase.FORWARD
            batch = self._batches.next(micro_batch)
            # Only the loss is kept: holding the output would hold its logits through the backward pass.
            loss = engine(**batch).loss
            self.phase = Phase.BACKWARD
            engine.backward(loss)
            loss = loss.detach()
            self.phase = Phase.LATER_STEP if self._steps_done else Phase.FIRST_STEP
            engine.step()
        self._memory.synchronize()
        self._steps_done += 1
        assert loss is not None
        value = float(loss)
        if not math.isfinite(value):
            raise NotANumber(f"the loss became {value} in optimizer step {self._steps_done}")
        return value

    def measure(self) -> Measurement:
        """Warm up, then time full steps until they agree, the time is up, or the point is clearly slower."""
        spec, result = self._spec, Measurement()
        full = spec.point.gradient_accumulation_steps
        for index in range(self._warmup_steps):
            phase = self._begin_step()
            begun = time.perf_counter()
            result.losses.append(self.step(min(full, WARMUP_ACCUMULATION)))
            self._keep_peak(result, phase)
            self._tell(index, time.perf_counter() - begun, timed=False)
        self._look(result)
        others = OthersLoad()
        begun_timing = time.perf_counter()
        while not self._all_decided(result, time.perf_counter() - begun_timing):
            phase = self._begin_step()
            begun = time.perf_counter()
            result.losses.append(self.step(full))
            result.step_seconds.append(time.perf_counter() - begun)
            self._keep_peak(result, phase)
            self._tell(len(result.losses) - 1, result.step_seconds[-1], timed=True)
            self._look(result)
            self._settle(result)
        self._note_others(result, others)
        return result

    def _settle(self, result: Measurement) -> None:
        """On a reused engine one step has warmed up, which may have been one too few."""
        first_two = len(result.losses) == self._warmup_steps + 2 and self._reused
        if first_two and result.step_seconds[0] > (1 + UNSETTLED_SHARE) * result.step_seconds[1]:
            del result.step_seconds[0]

    def _look(self, result: Measurement) -> None:
        now = self._memory.surroundings()
        if now is not None:
            result.seen.append(now)

    def _note_others(self, result: Measurement, others: OthersLoad) -> None:
        """On the CPU other processes are always there: what they did is told, and no more."""
        if self._spec.device != "cpu":
            return
        share, change = others.share() / self._spec.processes, step_change(result.step_seconds)
        if share > OTHERS_CPU_SHARE:
            text = f"other processes used {share:.0%} of the processors while steps were timed"
            self._report({"event": "note", "text": text, "about": "others"})
        if abs(change) > DRIFT_SHARE:
            self._report({"event": "note", "text": change_words(change)})

    def _begin_step(self) -> Phase:
        """Restart the peak; the phase that the coming step is."""
        self._memory.restart_peak()
        if self._steps_done == 1:
            self._report({"event": "phase", "phase": str(Phase.LATER_STEP)})
        return Phase.LATER_STEP if self._steps_done else Phase.FIRST_STEP

    def _all_decided(self, result: Measurement, elapsed: float) -> bool:
        """The first process' decision, told to the others: a process that stops alone leaves them waiting."""
        decided = self._decided(result, elapsed)
        if self._spec.processes == 1:
            return decided
        told = [(decided, result.stopped)]
        torch.distributed.broadcast_object_list(told, src=0)
        decided, result.stopped = told[0]
        return decided

    def _decided(self, result: Measurement, elapsed: float) -> bool:
        spec, timed = self._spec, result.step_seconds
        if not timed:
            return False
        floor = spec.stop_below_tokens_per_second
        if floor is not None and self.tokens_per_step / min(timed) < floor:
            result.stopped = True
            return True
        if len(timed) < spec.min_timed_steps:
            return False
        decided, fastest = spec.decided_below_tokens_per_second, median_interval(timed)[1]
        if decided is not None and self.tokens_per_step / fastest < decided:
            return True
        if len(timed) >= spec.max_timed_steps or elapsed >= spec.measure_seconds:
            return True
        return elapsed >= spec.min_measure_seconds and relative_half_width(timed) <= spec.target_spread

    def _keep_peak(self, result: Measurement, phase: Phase) -> None:
        result.phase_peaks[phase] = max(result.phase_peaks.get(phase, 0), self._memory.peak_allocated_bytes())

    def _tell(self, index: int, seconds: float, timed: bool) -> None:
        self._report(
            {
                "event": "step",
                "index": index,
                "seconds": seconds,
                "tokens_per_second": self.tokens_per_step / seconds if timed else None,
                "timed": timed,
            }
        )
