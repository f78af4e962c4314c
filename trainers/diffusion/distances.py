"""How far a prediction is from its target: per element first, then one number for each sample.

Elementwise functions take error = pred - target [B, C, F, H, W]; `c` [B] is where the pseudo-Huber pair turns from
square to straight. Both come from d^2 / (sqrt(d^2 + c^2) + c), which equals sqrt(d^2 + c^2) - c without its loss of
digits. Charbonnier et al. 1994; scheduled by Khrapov et al. 2024, arXiv 2403.16728.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .paths import over


def l2(error: Tensor) -> Tensor:
    """Squared error."""
    return error**2


def l1(error: Tensor) -> Tensor:
    """Absolute error."""
    return error.abs()


def huber(error: Tensor, c: Tensor) -> Tensor:
    """Squared error near 0, 2c * |error| far away."""
    return 2.0 * over(c, error) * _bent(error, c)


def smooth_l1(error: Tensor, c: Tensor) -> Tensor:
    """error^2 / c near 0, 2 * |error| far away."""
    return 2.0 * _bent(error, c)


def _bent(error: Tensor, c: Tensor) -> Tensor:
    """Return sqrt(error^2 + c^2) - c."""
    wide = over(c, error)
    return error**2 / ((error**2 + wide**2).sqrt() + wide)


def scheduled_c(schedule: str, c: float, t: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
    """Return c [B] for times t [B]: "constant", or falling from 1 at data to c at noise, as c^t or by the SNR."""
    if schedule == "constant":
        return torch.full_like(t, c)
    if schedule == "exponential":
        return c**t
    if schedule == "snr":
        # (alpha / (alpha + sigma))^2 is 1 / (1 + 1/sqrt(snr))^2, written so that it holds at snr 0 too.
        return c + (1.0 - c) * (alpha / (alpha + sigma)) ** 2
    raise ValueError(f'there is no huber schedule "{schedule}"')


def per_sample(loss: Tensor, mask: Tensor | None = None, normalize_area: bool = False) -> Tensor:
    """Reduce loss [B, C, F, H, W] with mask [B, 1, F, H, W] in [0, 1] to [B].

    Default: the mean over all elements of loss * mask, so a sample counts by the area of its mask, and the result is
    the same however a batch is split. `normalize_area`: the mean over the masked area, so every sample counts alike,
    however small its mask; a sample whose mask is empty then counts nothing.
    """
    if mask is None:
        return loss.flatten(1).mean(1)
    masked = (loss * mask).flatten(1)
    if not normalize_area:
        return masked.mean(1)
    area = mask.expand_as(loss).flatten(1).sum(1)
    return masked.sum(1) / torch.where(area > 0, area, torch.ones_like(area))
