"""Loss weights: published closed forms, finite everywhere, and the same meaning for every prediction kind."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.core.facts import NoiseSchedule
from trainers.diffusion import weights
from trainers.diffusion.convert import convert, target
from trainers.diffusion.paths import make_path, mix, over

WEIGHTS = {
    "min_snr": partial(weights.min_snr, gamma=5.0),
    "soft_min_snr": partial(weights.soft_min_snr, gamma=5.0),
    "debiased": weights.debiased,
    "snr_power": partial(weights.snr_power, gamma=1.5),
}
SNR = torch.tensor([0.0, 1e-3, 1.0, 5.0, 50.0, 1e12])
positive = st.floats(1e-3, 1e6)


@given(snr=positive, gamma=st.floats(0.1, 20))
def test_min_snr_for_each_kind(snr, gamma):
    least, tensor = min(snr, gamma), torch.tensor([snr], dtype=torch.float64)
    for kind, wanted in (("eps", least / snr), ("v", least / (snr + 1)), ("x0", least)):
        assert weights.min_snr(tensor, gamma, kind).item() == pytest.approx(wanted)


@given(snr=positive, gamma=st.floats(0.1, 20))
def test_the_other_closed_forms(snr, gamma):
    tensor = torch.tensor([snr], dtype=torch.float64)
    assert weights.soft_min_snr(tensor, gamma, "x0").item() == pytest.approx(snr * gamma / (snr + gamma))
    assert weights.snr_power(tensor, gamma, "eps").item() == pytest.approx((1 + snr) ** -gamma)
    assert weights.debiased(tensor, "eps").item() == pytest.approx(snr**-0.5)
    assert weights.debiased(tensor, "v").item() == pytest.approx(snr**0.5 / (snr + 1))


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("kind", ["eps", "v", "x0", "velocity"])
def test_weights_are_finite_from_pure_noise_to_clean_data(name, kind):
    weight = WEIGHTS[name](SNR, kind=kind)
    assert torch.isfinite(weight).all()
    assert (weight >= 0).all()
    if kind != "eps":
        assert weight[0] == 0.0


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize(("path", "kinds"), [("ddpm", ("eps", "v", "x0")), ("rectified", ("velocity", "eps", "x0"))])
def test_the_weighted_error_does_not_depend_on_the_kind(name, path, kinds):
    """One guess, told as any kind, costs the same: so the weights of the kinds belong together."""
    line = make_path(path, NoiseSchedule() if path == "ddpm" else None)
    t = torch.tensor([0.1005, 0.4005, 0.8005])
    alpha, sigma = line.alpha(t).double(), line.sigma(t).double()
    x0, eps, guess = torch.randn(3, 3, 2, 1, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x_t, costs = over(alpha, x0) * x0 + over(sigma, x0) * eps, []
    for kind in kinds:
        told = convert(guess, kinds[0], kind, x_t, alpha, sigma)
        error = (told - target(kind, x0, eps, alpha, sigma)).square().flatten(1).mean(1)
        costs.append(error * WEIGHTS[name]((alpha / sigma) ** 2, kind=kind))
    for cost in costs[1:]:
        torch.testing.assert_close(cost, costs[0], rtol=1e-4, atol=0)
    assert mix(line, x0.float(), eps.float(), t).shape == x0.shape


def test_cosmap_is_its_density():
    t = torch.linspace(0, 1, 100_001, dtype=torch.float64)
    assert torch.trapezoid(weights.cosmap(t), t).item() == pytest.approx(1.0, abs=1e-6)


def test_unknown_kinds_are_refused():
    with pytest.raises(ValueError, match="prediction kind"):
        weights.min_snr(SNR, 5.0, "noise")
