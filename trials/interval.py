"""The median of a few timings and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, and the distribution-free 95 % interval of it from order statistics.

    With fewer than six values no such interval exists; the extremes stand in for it.

    Source: the binomial interval of a quantile (Conover, Practical Nonparametric Statistics, 3.2).
    """
    ordered = sorted(values)
    n = len(ordered)
    rank = 0
    # The largest rank whose symmetric pair of order statistics still covers the median with 95 %.
    while 2 * sum(math.comb(n, k) for k in range(rank + 2)) / 2**n <= 0.05 and rank + 1 < n // 2:
        rank += 1
    if 2 / 2**n > 0.05:
        rank = 0
    return median(ordered), ordered[rank], ordered[n - 1 - rank]


def relative_half_width(values: Sequence[float]) -> float:
    """Half of the median's interval over the median: how imprecise it is; infinite for a single value."""
    if len(values) < 2:
        return math.inf
    middle, low, high = median_interval(values)
    return (high - low) / 2 / middle
