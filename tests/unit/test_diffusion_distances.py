"""Distances: their limits, their schedules of c, and masks that count by area."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.diffusion import distances

C = torch.tensor([0.1])


def one(value: float) -> torch.Tensor:
    return torch.full((1, 1, 1, 1, 1), value)


@given(st.floats(-1e4, 1e4))
def test_the_pseudo_huber_pair_in_double_precision(error):
    d, c = torch.tensor(error, dtype=torch.float64).reshape(1, 1, 1, 1, 1), C.double()
    exact = (d**2 + c**2).sqrt() - c
    torch.testing.assert_close(distances.smooth_l1(d, c), 2 * exact, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(distances.huber(d, c), 2 * c * exact, rtol=1e-6, atol=1e-12)


def test_limits():
    small, large = one(1e-4), one(1e3)
    assert distances.huber(small, C).item() == pytest.approx(
        1e-8, rel=1e-3
    )  # sqrt(d^2 + c^2) - c would lose it in float32
    assert distances.huber(large, C).item() == pytest.approx(2 * 0.1 * 1e3, rel=1e-3)
    assert distances.smooth_l1(large, C).item() == pytest.approx(2e3, rel=1e-3)
    assert distances.l1(one(-3.0)).item() == 3.0
    assert distances.l2(one(-3.0)).item() == 9.0
    for distance in (distances.huber, distances.smooth_l1):
        zero = one(0.0).requires_grad_()
        distance(zero, C).sum().backward()
        assert zero.grad is not None
        assert zero.grad.item() == 0.0


def test_schedules_of_c():
    t = torch.tensor([0.0, 0.5, 1.0])
    alpha, sigma = 1 - t, t
    assert distances.scheduled_c("constant", 0.1, t, alpha, sigma).tolist() == pytest.approx([0.1] * 3)
    assert distances.scheduled_c("exponential", 0.1, t, alpha, sigma).tolist() == pytest.approx([1.0, 0.1**0.5, 0.1])
    assert distances.scheduled_c("snr", 0.1, t, alpha, sigma).tolist() == pytest.approx([1.0, 0.1 + 0.9 / 4, 0.1])
    with pytest.raises(ValueError, match="huber schedule"):
        distances.scheduled_c("linear", 0.1, t, alpha, sigma)


def test_a_mask_counts_by_its_area_unless_told_otherwise():
    loss = torch.ones(3, 4, 1, 4, 4)
    mask = torch.zeros(3, 1, 1, 4, 4)
    mask[0] = 1.0
    mask[1, ..., :1] = 1.0  # a quarter; the third is empty
    assert distances.per_sample(loss, mask).tolist() == [1.0, 0.25, 0.0]
    assert distances.per_sample(loss, mask, normalize_area=True).tolist() == [1.0, 1.0, 0.0]
    assert distances.per_sample(loss).tolist() == [1.0, 1.0, 1.0]
    loss[1, ..., 1:] = 1e6  # outside the mask nothing matters
    assert distances.per_sample(loss, mask).tolist() == [1.0, 0.25, 0.0]
