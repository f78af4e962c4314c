"""Densities of the training time t, each as a quantile function u -> t.

Only u in (0, 1) is random. A density is the inverse of its distribution function, so stratified draws, fixed validation
points and reproducibility come for free. All functions rise from 0 to 1 and keep shape, dtype and device of u.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

Quantile = Callable[[Tensor], Tensor]

LARGEST_MODE_SCALE = 2.0 / (math.pi - 2.0)
_BETA_GRID = 4096


def uniform(u: Tensor) -> Tensor:
    """Every time alike."""
    return u


def logit_normal(u: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Sigmoid of a normal number: the middle more often. Esser et al. 2024, arXiv 2403.03206, section 3.1."""
    return torch.sigmoid(mean + std * torch.special.ndtri(u))


def mode(u: Tensor, scale: float = 1.29) -> Tensor:
    """Density with its mode in the middle (scale > 0) or at both ends (scale < 0). Esser et al. 2024, section 3.1.

    The paper's function falls with u; this one is its mirror image. It rises for -1 <= scale <= LARGEST_MODE_SCALE.
    """
    return u - scale * (torch.sin(math.pi / 2 * u) ** 2 - u)


def cosmap(u: Tensor) -> Tensor:
    """Density 2 / (pi * (1 - 2t + 2t^2)), the cosine schedule seen from the rectified path. Esser et al. 2024."""
    sine, cosine = torch.sin(math.pi / 2 * u), torch.cos(math.pi / 2 * u)
    return sine / (sine + cosine)


def beta(u: Tensor, a: float, b: float) -> Tensor:
    """Beta density t^(a-1) * (1-t)^(b-1), a and b at least 0.5, by linear interpolation in a table of 4096 cells."""
    share, angle = _beta_table(a, b)
    share, angle = share.to(u.device), angle.to(u.device)
    wanted = u.double()
    cell = torch.searchsorted(share, wanted.contiguous(), right=True).clamp(1, _BETA_GRID) - 1
    part = (wanted - share[cell]) / (share[cell + 1] - share[cell]).clamp(min=1e-300)
    return (torch.sin(torch.lerp(angle[cell], angle[cell + 1], part.clamp(0.0, 1.0))) ** 2).to(u.dtype)


@lru_cache(maxsize=16)
def _beta_table(a: float, b: float) -> tuple[Tensor, Tensor]:
    """Return the distribution function on a grid of angles, t = sin^2(angle); in angles the density has no pole."""
    angle = torch.linspace(0.0, math.pi / 2, _BETA_GRID + 1, dtype=torch.float64)
    middle = (angle[1:] + angle[:-1]) / 2
    mass = torch.sin(middle) ** (2 * a - 1) * torch.cos(middle) ** (2 * b - 1)
    share = torch.cat([torch.zeros(1, dtype=torch.float64), mass.cumsum(0)])
    return share / share[-1], angle


def shift(t: Tensor, s: float) -> Tensor:
    """Move times towards noise (s > 1) or data (s < 1): s * t / (1 + (s - 1) * t); 1 / s undoes it."""
    moved = s * t
    return moved / (moved + (1.0 - t))  # in this form no rounding can lead out of [0, 1]


def shift_of_tokens(tokens: int, points: Sequence[tuple[int, float]]) -> float:
    """Return the time shift for latents of `tokens` tokens; `points` are (tokens, shift) in rising order.

    Between and beyond the points log(shift) is linear in the tokens, as published for FLUX: its points (256, e^0.5) and
    (4096, e^1.15) give 1.65 at 256x256, 1.88 at 512x512 and 3.16 at 1024x1024 pixels. One point is a constant shift,
    no point is none (1).
    """
    if not points:
        return 1.0
    if len(points) == 1:
        return points[0][1]
    upper = next((i for i, (count, _) in enumerate(points) if i > 0 and tokens <= count), len(points) - 1)
    (left, low), (right, high) = points[upper - 1], points[upper]
    part = (tokens - left) / (right - left)
    return math.exp(math.log(low) + part * (math.log(high) - math.log(low)))


def shifted(quantile: Quantile, s: float) -> Quantile:
    """Return the quantile function of `quantile` followed by `shift`."""
    return quantile if s == 1.0 else lambda u: shift(quantile(u), s)


def clip_range(quantile: Quantile, low: float, high: float) -> Quantile:
    """Keep a density within low <= t <= high without changing its shape there: u is scaled into the matching range."""
    if not 0.0 <= low < high <= 1.0:
        raise ValueError(f"a range of times needs 0 <= low < high <= 1, not {low} and {high}")
    if (low, high) == (0.0, 1.0):
        return quantile
    first, last = share_below(quantile, low), share_below(quantile, high)
    return lambda u: quantile(first + (last - first) * u).clamp(low, high)


def share_below(quantile: Quantile, t: float) -> float:
    """Return the share of draws below t, the inverse of a quantile function, by bisection to double precision."""
    low, high = 0.0, 1.0
    for _ in range(54):
        middle = (low + high) / 2
        below = float(quantile(torch.tensor([middle], dtype=torch.float64))) < t
        low, high = (middle, high) if below else (low, middle)
    return (low + high) / 2
