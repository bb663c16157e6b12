"""The price list: the best throughput for each value of the knobs that change what is learned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from autotune.winner.choice import OPTIMIZER_COST, PRECISION_COST, QUANTIZATION_COST
from autotune.winner.ranking import Measured, ranking, tokens_per_second
from trials.wire import Point

METHOD_COST = {"full": 0, "lora": 1, "qlora": 2}


@dataclass(frozen=True)
class Price:
    """The best that was measured with one value of one quality knob.

    Attributes:
        knob: `method`, `lora_rank`, `quantization`, `precision`, `optimizer` or `tokens_per_step`.
        value: the knob's value.
        tokens_per_second: of the fastest configuration with that value.
        share: of the throughput of the fastest configuration of all, at most 1.
        required_device_bytes: what that configuration needs; None where it is not known.
        point: that configuration.
    """

    knob: str
    value: str | int
    tokens_per_second: float
    share: float
    required_device_bytes: int | None
    point: Point


def price_list(
    records: Iterable[Measured],
    exclude: Collection[Point] = (),
    *,
    seq_len: int | None = None,
    gpus: int = 1,
    budget_bytes: int | None = None,
) -> tuple[Price, ...]:
    """The best throughput per value of each quality knob, side by side.

    Args:
        records: a study's records.
        exclude: points whose confirmation failed.
        seq_len: tokens per sequence, given where accumulation is searched (`--global-batch any`): tokens per
            optimizer step are then a quality knob too.
        gpus: data-parallel processes; with `seq_len`, for the tokens of a step.
        budget_bytes: device memory of one process; None: whatever ran well fits.

    Returns:
        Knob by knob, each knob's values from the one that gives up least; only knobs of which at least two
        values were measured and fit. Ranks are compared among LoRA configurations: full fine-tuning has none.
    """
    ranked = ranking(records, exclude, budget_bytes=budget_bytes)
    prices: list[Price] = []
    for knob, value_of in _knobs(seq_len, gpus).items():
        best: dict[str | int, Measured] = {}
        for record in ranked:
            value = value_of(record.point)
            if value is not None:
                best.setdefault(value, record)
        if len(best) >= 2:
            values = sorted(best, key=lambda value: _cost(knob, value))
            prices += [_price(knob, value, best[value], ranked[0]) for value in values]
    return tuple(prices)


def _knobs(seq_len: int | None, gpus: int) -> Mapping[str, Callable[[Point], str | int | None]]:
    knobs: dict[str, Callable[[Point], str | int | None]] = {
        "method": lambda point: point.method,
        "lora_rank": lambda point: point.lora_rank or None,
        "quantization": lambda point: point.quantization,
        "precision": lambda point: point.precision,
        "optimizer": lambda point: point.optimizer,
    }
    if seq_len is not None:
        tokens = seq_len * gpus
        knobs["tokens_per_step"] = lambda point: (
            point.micro_batch_size * point.gradient_accumulation_steps * tokens
        )
    return knobs


def _cost(knob: str, value: str | int) -> tuple[int, str]:
    if isinstance(value, int):
        # A higher rank gives up less; of batch sizes neither end is better, so they stand in counting order.
        return (-value if knob == "lora_rank" else value, "")
    orders: dict[str, Mapping[str, int]] = {
        "method": METHOD_COST,
        "quantization": QUANTIZATION_COST,
        "precision": PRECISION_COST,
        "optimizer": OPTIMIZER_COST,
    }
    return (orders[knob][value], value)


def _price(knob: str, value: str | int, record: Measured, fastest: Measured) -> Price:
    assert record.result is not None
    speed = tokens_per_second(record)
    return Price(
        knob=knob,
        value=value,
        tokens_per_second=speed,
        share=speed / tokens_per_second(fastest),
        required_device_bytes=record.result.required_device_bytes,
        point=record.point,
    )
