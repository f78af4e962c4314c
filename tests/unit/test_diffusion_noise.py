"""Shaped noise keeps unit variance, is keyed, and has the structure it promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trainers.core import random
from trainers.diffusion import noise


def keyed(item: int):
    return lambda stream, shape: random.normal(1, stream, item, 0, shape)


@pytest.mark.parametrize("size", [(16, 16), (9, 24), (5, 3), (1, 8)])
def test_pyramid_noise_has_unit_variance_in_every_point(size):
    count, discount = 3000, 0.6
    shape = (1, 1, *size)
    coarse = torch.from_numpy(np.stack([noise.draw_pyramid(keyed(item), shape, discount) for item in range(count)]))
    eps = torch.from_numpy(np.stack([random.normal(1, "eps", item, 0, shape) for item in range(count)]))
    mixed = noise.add_pyramid(eps, coarse, discount, size)
    variance = mixed.var(0)
    assert (variance - 1).abs().max().item() < 6 * (2 / count) ** 0.5
    assert mixed.mean(0).abs().max().item() < 6 / count**0.5


def test_pyramid_noise_is_coarse():
    shape = (1, 1, 16, 16)
    coarse = np.stack([noise.draw_pyramid(keyed(item), shape, 0.6) for item in range(400)])
    beside = (coarse[..., 1:] * coarse[..., :-1]).mean() / (coarse**2).mean()
    assert beside > 0.5
    assert noise.level_sizes((16, 16)) == [(8, 8), (4, 4), (2, 2), (1, 1)]
    assert noise.level_sizes((5, 3)) == [(3, 2), (2, 1)]
    assert noise.level_sizes((1, 8)) == []


def test_draws_depend_on_the_sample_alone():
    first = noise.draw_pyramid(keyed(7), (4, 1, 8, 8), 0.3)
    assert np.array_equal(first, noise.draw_pyramid(keyed(7), (4, 1, 8, 8), 0.3))
    assert not np.array_equal(first, noise.draw_pyramid(keyed(8), (4, 1, 8, 8), 0.3))


def test_offset_noise_moves_whole_channels():
    eps, offset = torch.zeros(2, 4, 1, 3, 3), torch.randn(2, 4, 1, 1, 1)
    assert torch.equal(noise.add_offset(eps, offset, 0.5), (0.5 * offset).expand_as(eps))
