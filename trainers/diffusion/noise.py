"""Noise that is not white: whole-channel offsets and coarse structure, so that a model learns brightness and layout.

Offset noise: Guttenberg 2023, "Diffusion with offset noise". Pyramid noise: Whitaker 2023, "Multi-resolution noise".
Input perturbation is no noise of its own: it adds to what the network sees, not to what it must say. Ning et al. 2023,
arXiv 2301.11706.

Nothing here is scaled by a statistic of the batch, so the split of a batch changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Normal = Callable[[str, tuple[int, ...]], NDArray[np.float32]]
"""(stream, shape) -> standard normal numbers, always the same for the same stream of the same sample."""


def add_offset(eps: Tensor, offset: Tensor, strength: float) -> Tensor:
    """Return eps [B, C, F, H, W] plus one number for each channel, offset [B, C, 1, 1, 1]."""
    shifted: Tensor = eps + strength * offset
    return shifted


def add_pyramid(eps: Tensor, pyramid: Tensor, discount: float, size: tuple[int, int]) -> Tensor:
    """Mix white eps with the coarse levels of `draw_pyramid`, both [B, C, F, H, W], to unit variance again."""
    levels = len(level_sizes(size))
    variance = 1.0 + sum(discount ** (2 * level) for level in range(1, levels + 1))
    mixed: Tensor = (eps + pyramid) / variance**0.5
    return mixed


def draw_pyramid(normal: Normal, shape: tuple[int, int, int, int], discount: float) -> NDArray[np.float32]:
    """Sum the coarse levels of one sample, shape (C, F, H, W): level i has variance discount^(2i) in every point."""
    channels, frames, height, width = shape
    total = np.zeros(shape, dtype=np.float32)
    for level, (coarse_height, coarse_width) in enumerate(level_sizes((height, width)), start=1):
        coarse = normal(f"pyramid{level}", (channels, frames, coarse_height, coarse_width))
        total += np.float32(discount**level) * (
            _stretch(height, coarse_height) @ coarse @ _stretch(width, coarse_width).T
        )
    return total


def level_sizes(size: tuple[int, int]) -> list[tuple[int, int]]:
    """List the grids (h, w) of the coarse levels: halved, rounded up, until one side is a single point."""
    height, width = size
    sizes = []
    while height > 1 and width > 1:
        height, width = (height + 1) // 2, (width + 1) // 2
        sizes.append((height, width))
    return sizes


def _stretch(fine: int, coarse: int) -> NDArray[np.float32]:
    """Return linear interpolation [fine, coarse] with rows of norm 1, so white noise keeps variance 1 in each point."""
    place = np.clip((np.arange(fine) + 0.5) * coarse / fine - 0.5, 0, coarse - 1)
    left = np.minimum(place.astype(int), max(coarse - 2, 0))
    part = place - left
    matrix = np.zeros((fine, coarse))
    matrix[np.arange(fine), left] += 1.0 - part
    matrix[np.arange(fine), np.minimum(left + 1, coarse - 1)] += part
    return np.asarray(matrix / np.linalg.norm(matrix, axis=1, keepdims=True), dtype=np.float32)
