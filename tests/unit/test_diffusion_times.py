"""Quantile functions: they rise, they integrate to their density, ranges keep the shape, shifts are FLUX's."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.diffusion import times

GRID = torch.linspace(0, 1, 4001, dtype=torch.float64)


def logit_normal_density(t, mean, std):
    logit = torch.log(t / (1 - t))
    return torch.exp(-0.5 * ((logit - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi) * t * (1 - t))


def beta_density(t, a, b):
    norm = math.exp(math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b))
    return t ** (a - 1) * (1 - t) ** (b - 1) / norm


CASES = {
    "uniform": (times.uniform, torch.ones_like),
    "cosmap": (times.cosmap, lambda t: 2 / (math.pi * (1 - 2 * t + 2 * t**2))),
    "logit_normal": (partial(times.logit_normal, mean=0.0, std=1.0), partial(logit_normal_density, mean=0.0, std=1.0)),
    "logit_normal_moved": (
        partial(times.logit_normal, mean=-0.6, std=1.3),
        partial(logit_normal_density, mean=-0.6, std=1.3),
    ),
    "beta": (partial(times.beta, a=2.0, b=3.0), partial(beta_density, a=2.0, b=3.0)),
    "beta_arcsine": (partial(times.beta, a=0.5, b=0.5), partial(beta_density, a=0.5, b=0.5)),
    "beta_pi0": (partial(times.beta, a=1.5, b=1.0), partial(beta_density, a=1.5, b=1.0)),
}
MODES = {f"mode{scale}": partial(times.mode, scale=scale) for scale in (-1.0, 0.0, 1.29, times.LARGEST_MODE_SCALE)}
ALL = {**{name: case[0] for name, case in CASES.items()}, **MODES}


@pytest.mark.parametrize("name", ALL)
def test_quantiles_rise_from_0_to_1(name):
    t = ALL[name](GRID)
    assert t[0].item() == pytest.approx(0, abs=1e-6)
    assert t[-1].item() == pytest.approx(1, abs=1e-6)
    assert (t.diff() >= -1e-12).all()
    assert ALL[name](GRID.float()).dtype == torch.float32
    assert ALL[name](torch.tensor([0.0, 0.5, 1.0])).isfinite().all()


@pytest.mark.parametrize("name", CASES)
def test_the_slope_of_a_quantile_is_one_over_the_density(name):
    quantile, density = CASES[name]
    u, h = torch.linspace(0.02, 0.98, 97, dtype=torch.float64), 2e-3
    slope = (quantile(u + h) - quantile(u - h)) / (2 * h)
    torch.testing.assert_close(slope * density(quantile(u)), torch.ones_like(u), rtol=5e-3, atol=0)


def test_mode_is_the_mirror_image_of_the_published_function():
    published = 1 - GRID - 1.29 * (torch.cos(math.pi * GRID / 2) ** 2 - 1 + GRID)
    torch.testing.assert_close(times.mode(1 - GRID, 1.29), published)


def test_beta_of_one_and_one_is_uniform():
    torch.testing.assert_close(times.beta(GRID, 1.0, 1.0), GRID, atol=1e-6, rtol=0)


@given(t=st.floats(0, 1), s=st.floats(0.05, 20))
def test_a_shift_is_undone_by_its_inverse_and_keeps_the_ends(t, s):
    tensor = torch.tensor([0.0, t, 1.0], dtype=torch.float64)
    there = times.shift(tensor, s)
    assert (there[0], there[2]) == (0.0, 1.0)
    torch.testing.assert_close(times.shift(there, 1 / s), tensor)


@pytest.mark.parametrize(("tokens", "shift"), [(256, 1.65), (1024, 1.88), (4096, 3.16)])
def test_the_shift_of_flux(tokens, shift):
    points = ((256, math.exp(0.5)), (4096, math.exp(1.15)))
    assert times.shift_of_tokens(tokens, points) == pytest.approx(shift, abs=0.005)


def test_shifts_of_tokens():
    assert times.shift_of_tokens(777, ()) == 1.0
    assert times.shift_of_tokens(777, ((1, 3.0),)) == 3.0
    points = ((100, 1.0), (200, 2.0), (400, 2.0))
    assert times.shift_of_tokens(150, points) == pytest.approx(math.sqrt(2))
    assert times.shift_of_tokens(300, points) == 2.0
    assert times.shift_of_tokens(0, points) == pytest.approx(0.5)
    assert times.shift_of_tokens(800, points) == pytest.approx(2.0)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("low", "high"), [(0.2, 0.7), (0.0, 0.5), (0.9, 1.0)])
def test_a_range_keeps_the_shape(name, low, high):
    """Inside the range, draws are spread as those of the whole density that happen to fall there."""
    quantile = ALL[name]
    cut = times.clip_range(quantile, low, high)
    u = torch.linspace(0.01, 0.99, 33, dtype=torch.float64)
    t = cut(u)
    assert (t >= low).all()
    assert (t <= high).all()
    below, above = times.share_below(quantile, low), times.share_below(quantile, high)
    for share, time in zip(u.tolist(), t.tolist(), strict=True):
        assert (times.share_below(quantile, time) - below) / (above - below) == pytest.approx(share, abs=1e-5)


def test_a_range_holds_after_the_shift():
    t = times.clip_range(times.shifted(times.uniform, 3.0), 0.2, 0.4)(GRID)
    assert (t.min().item(), t.max().item()) == (pytest.approx(0.2), pytest.approx(0.4))


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.5), (0.7, 0.2), (-0.1, 1.0), (0.0, 1.1)])
def test_impossible_ranges_are_refused(low, high):
    with pytest.raises(ValueError, match="range"):
        times.clip_range(times.uniform, low, high)
