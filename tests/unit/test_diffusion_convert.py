"""Conversions between predictions: there and back, and the truth stays the truth."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.core.facts import NoiseSchedule
from trainers.diffusion.convert import convert, require_defined, target, to_eps, to_x0
from trainers.diffusion.paths import make_path, mix

PATHS = {"ddpm": make_path("ddpm", NoiseSchedule()), "rectified": make_path("rectified", None)}
DEFINED = [
    (name, kind) for name in PATHS for kind in ("eps", "x0", "v", "velocity") if (name, kind) != ("ddpm", "velocity")
]
PAIRS = [(name, a, b) for (name, a), (other, b) in itertools.product(DEFINED, DEFINED) if name == other]


def example(name: str, t: float, seed: int = 0):
    path = PATHS[name]
    generator = torch.Generator().manual_seed(seed)
    x0, eps = torch.randn(2, 3, 4, 1, 4, 6, generator=generator, dtype=torch.float64)
    time = torch.full((3,), t)
    alpha, sigma = path.alpha(time).double(), path.sigma(time).double()
    return x0, eps, mix(path, x0, eps, time), alpha, sigma


@pytest.mark.parametrize(("name", "source", "wanted"), PAIRS)
@given(t=st.floats(0.02, 0.97), seed=st.integers(0, 2**31))
def test_every_kind_turns_into_every_other(name, source, wanted, t, seed):
    x0, eps, x_t, alpha, sigma = example(name, t, seed)
    truth = target(source, x0, eps, alpha, sigma)
    close = {"atol": 2e-4, "rtol": 2e-4}  # alpha^2 + sigma^2 is 1 only to float32
    torch.testing.assert_close(
        convert(truth, source, wanted, x_t, alpha, sigma), target(wanted, x0, eps, alpha, sigma), **close
    )
    torch.testing.assert_close(to_x0(truth, source, x_t, alpha, sigma), x0, **close)
    torch.testing.assert_close(to_eps(truth, source, x_t, alpha, sigma), eps, **close)
    # A wrong prediction comes back as the same wrong prediction.
    guess = torch.randn_like(x0)
    there = convert(guess, source, wanted, x_t, alpha, sigma)
    torch.testing.assert_close(convert(there, wanted, source, x_t, alpha, sigma), guess, atol=1e-3, rtol=1e-3)


def test_signs():
    one = torch.ones(1)
    x0, eps = torch.full((1, 1, 1, 1, 1), 2.0), torch.full((1, 1, 1, 1, 1), 3.0)
    assert target("velocity", x0, eps, 0.5 * one, 0.5 * one).item() == 1.0
    assert target("v", x0, eps, 0.8 * one, 0.6 * one).item() == pytest.approx(0.8 * 3 - 0.6 * 2)
    assert target("eps", x0, eps, one, one) is eps
    assert target("x0", x0, eps, one, one) is x0


def test_velocity_is_the_derivative_of_the_path():
    x0, eps = torch.randn(2, 1, 4, 1, 3, 3, dtype=torch.float64)
    path, h = PATHS["rectified"], 2**-10
    step = mix(path, x0, eps, torch.tensor([0.5 + h])) - mix(path, x0, eps, torch.tensor([0.5 - h]))
    torch.testing.assert_close(step / (2 * h), target("velocity", x0, eps, torch.ones(1), torch.ones(1)))


def test_v_gives_x0_and_eps_at_the_zero_terminal_step():
    zero, one = torch.zeros(1), torch.ones(1)
    x0, eps = torch.randn(2, 1, 4, 1, 3, 3)
    v = target("v", x0, eps, zero, one)
    assert torch.equal(to_x0(v, "v", eps, zero, one), x0)
    assert torch.equal(to_eps(v, "v", eps, zero, one), eps)


def test_what_is_not_defined_is_refused():
    with pytest.raises(ValueError, match="rectified path only"):
        require_defined("velocity", "ddpm")
    with pytest.raises(ValueError, match="no prediction kind"):
        require_defined("noise", "ddpm")
    tensor = torch.ones(1, 1, 1, 1, 1)
    with pytest.raises(ValueError, match="no prediction kind"):
        to_x0(tensor, "noise", tensor, torch.ones(1), torch.ones(1))
    for name, kind in DEFINED:
        require_defined(kind, name)
