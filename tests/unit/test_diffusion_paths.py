"""Paths agree with diffusers' schedulers, which paint the previews and are what users sample with."""

from __future__ import annotations

import pytest
import torch
from diffusers import DDPMScheduler
from diffusers.schedulers.scheduling_ddim import rescale_zero_terminal_snr
from hypothesis import given
from hypothesis import strategies as st

from trainers.core.facts import NoiseSchedule
from trainers.diffusion.convert import target
from trainers.diffusion.paths import betas, make_path, mix

KINDS = ("scaled_linear", "linear", "squaredcos_cap_v2")
TIMES = torch.tensor([0, 1, 250, 500, 998, 999])


def scheduler(kind: str) -> DDPMScheduler:
    return DDPMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule=kind)


def middle(index: torch.Tensor) -> torch.Tensor:
    return (index + 0.5) / 1000


@pytest.mark.parametrize("kind", KINDS)
def test_noisy_samples_and_v_targets_equal_diffusers(kind):
    path = make_path("ddpm", NoiseSchedule(kind=kind))
    x0, eps = torch.randn(2, 6, 4, 1, 5, 3, generator=torch.Generator().manual_seed(1))
    theirs, t = scheduler(kind), middle(TIMES)
    torch.testing.assert_close(mix(path, x0, eps, t), theirs.add_noise(x0, eps, TIMES), atol=2e-5, rtol=0)
    ours = target("v", x0, eps, path.alpha(t), path.sigma(t))
    torch.testing.assert_close(ours, theirs.get_velocity(x0, eps, TIMES), atol=2e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_terminal_snr_equals_diffusers_and_ends_in_pure_noise(kind):
    plain = NoiseSchedule(kind=kind)
    rescaled = torch.cumprod(1 - rescale_zero_terminal_snr(betas(plain)), dim=0)
    path = make_path("ddpm", NoiseSchedule(kind=kind, zero_terminal_snr=True))
    t = middle(torch.arange(1000))
    torch.testing.assert_close(path.alpha(t).double(), rescaled.sqrt(), atol=1e-6, rtol=0)
    assert path.alpha(t)[-1] == 0.0
    assert path.sigma(t)[-1] == 1.0
    assert path.snr(t)[-1] == 0.0
    assert path.alpha(t)[0] == make_path("ddpm", plain).alpha(t)[0]


@pytest.mark.parametrize("path", [make_path("rectified", None), make_path("ddpm", NoiseSchedule())])
def test_signal_falls_and_noise_grows(path):
    t = middle(torch.arange(1000))
    assert (path.alpha(t).diff() < 0).all()
    assert (path.sigma(t).diff() > 0).all()
    snr = path.snr(torch.linspace(0, 1, 2001))
    assert torch.isfinite(snr).all()
    assert (snr.diff() <= 0).all()


@given(st.floats(0, 1, width=32))
def test_snapping_keeps_the_bin_and_is_stable(t):
    path = make_path("ddpm", NoiseSchedule())
    once = path.snap(torch.tensor([t]))
    assert torch.equal(path.snap(once), once)
    assert torch.equal(path.alpha(once), path.alpha(torch.tensor([t])))
    # What a family computes from t to get its integer timestep.
    assert int(once.item() * 1000) == min(999, int((torch.tensor(t) * 1000).floor()))


def test_the_rectified_path_is_a_straight_line():
    path, t = make_path("rectified", None), torch.tensor([0.0, 0.25, 1.0])
    x0, eps = torch.randn(2, 3, 4, 1, 2, 2)
    assert torch.equal(path.snap(t), t)
    x_t = mix(path, x0, eps, t)
    assert torch.equal(x_t[0], x0[0])
    assert torch.equal(x_t[2], eps[2])
    torch.testing.assert_close(x_t[1], 0.75 * x0[1] + 0.25 * eps[1])


def test_unknown_paths_and_missing_schedules_are_refused():
    with pytest.raises(ValueError, match="no path"):
        make_path("cosine", None)
    with pytest.raises(ValueError, match="schedule"):
        make_path("ddpm", None)
