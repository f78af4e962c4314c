"""The learning rate as a share of its peak, a pure function of the step. Plain numbers, no torch.

Update number n (1 for the first) uses factor(n): warm-up reaches the peak with its own last update, and the curve ends
at its floor with the last one. Only optimizer updates count, never micro-batches or ranks.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

RateKind = Literal["constant", "linear", "cosine", "polynomial"]


def factor(
    step: int,
    total: int,
    warmup: int = 0,
    kind: str = "constant",
    *,
    cycles: int = 1,
    power: float = 1.0,
    floor: float = 0.0,
) -> float:
    """Return the share of the peak rate for update `step` of `total`.

    `warmup` updates rise in a straight line from 0. Then the rate stays ("constant") or falls to `floor`, a share of
    the peak: "linear"; "cosine", with `cycles` > 1 starting again at the peak (Loshchilov & Hutter 2017, arXiv
    1608.03983); "polynomial", (1 - progress)^power.
    """
    if kind not in get_args(RateKind):
        raise ValueError(f'there is no schedule "{kind}"; known: {", ".join(get_args(RateKind))}')
    if step < warmup:
        return step / warmup
    if kind == "constant":
        return 1.0
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return floor + (1.0 - floor) * _fall(kind, progress, cycles, power)


def _fall(kind: str, progress: float, cycles: int, power: float) -> float:
    """Fall from 1 at progress 0 to 0 at progress 1."""
    if progress >= 1.0:
        return 0.0
    if kind == "linear":
        return 1.0 - progress
    if kind == "polynomial":
        return float((1.0 - progress) ** power)
    return 0.5 * (1.0 + math.cos(math.pi * (progress * cycles % 1.0)))
