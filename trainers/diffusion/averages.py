"""The decay of an average of weights, average = decay * average + (1 - decay) * weights. Plain numbers, no torch."""

from __future__ import annotations


def ema_decay(step: int, decay: float, warmup: bool = True) -> float:
    """Return the decay after `step` updates: (1 + step) / (10 + step) until it meets `decay`.

    Without this warm-up a short run's average would still hold mostly the weights it began with.
    """
    return min(decay, (1 + step) / (10 + step)) if warmup else decay
