"""Objectives: a perfect prediction costs nothing, splits change nothing, options without effect are refused."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from trainers.core import random
from trainers.core.batch import Draw
from trainers.core.errors import UserError
from trainers.core.facts import Facts, NoiseSchedule
from trainers.diffusion.convert import target
from trainers.diffusion.paths import mix
from trainers.objectives import denoising, flow_matching
from trainers.objectives._protocol import Objective

SD = Facts("sd", "SD", "eps", "ddpm", 4, 8, 64, 512 * 512, schedule=NoiseSchedule())
FLUX_SHIFT = ((256, math.exp(0.5)), (4096, math.exp(1.15)))
FLUX = Facts("flux", "Flux", "velocity", "rectified", 16, 8, 16, 1024 * 1024, time_shift=FLUX_SHIFT)
HUBER = {"loss": "huber", "huber_c": 0.3, "huber_schedule": "exponential"}
SHAPED = {"noise_offset": 0.1, "pyramid_noise": True, "pyramid_discount": 0.5}


def denoise(**settings) -> Objective:
    return denoising.build(denoising.Config(**settings), SD)


def flow(facts: Facts = FLUX, **settings) -> Objective:
    return flow_matching.build(flow_matching.Config(**settings), facts)


ALL = {
    "eps": denoise,
    "eps_min_snr": lambda: denoise(weighting="min_snr", gamma=3.0),
    "v_zero_terminal": lambda: denoise(prediction="v", zero_terminal_snr=True, weighting="soft_min_snr"),
    "x0_huber": lambda: denoise(prediction="x0", **HUBER),
    "shaped_noise": lambda: denoise(**SHAPED),
    "l1_beta": lambda: denoise(loss="l1", time={"kind": "beta", "a": 1.5, "min": 0.1}),
    "flow": flow,
    "flow_on_sd": lambda: flow(SD, shift=3.0, time={"kind": "mode"}, weighting="cosmap", loss="smooth_l1"),
}


def sample(objective: Objective, count: int = 4, shape=(4, 1, 8, 6)):
    """Draw like the loader does: everything keyed by the sample's id."""
    x0 = torch.from_numpy(np.stack([random.normal(3, "x0", i, 0, shape) for i in range(count)]))
    eps = torch.from_numpy(np.stack([random.normal(3, "eps", i, 0, shape) for i in range(count)]))
    u = torch.tensor([random.uniform(3, "u", i) for i in range(count)])
    extras = [
        objective.extra_noise(lambda stream, size, i=i: random.normal(3, stream, i, 0, size), shape)
        for i in range(count)
    ]
    extra = {name: torch.from_numpy(np.stack([one[name] for one in extras])) for name in extras[0]}
    mask = torch.from_numpy(
        np.stack([random.generator(3, "mask", i).random((1, *shape[1:]), dtype=np.float32) for i in range(count)])
    )
    return x0, Draw(eps, u, extra), mask


def part(draw: Draw, index: slice) -> Draw:
    return Draw(draw.eps[index], draw.u[index], {name: noise[index] for name, noise in draw.extra.items()})


@pytest.mark.parametrize("name", ALL)
def test_a_perfect_prediction_costs_nothing_and_any_other_something(name):
    objective = ALL[name]()
    x0, draw, mask = sample(objective)
    t = objective.times(draw.u, tuple(x0.shape))
    alpha, sigma = objective.path.alpha(t), objective.path.sigma(t)
    eps = objective.noise.mix(draw)  # type: ignore[attr-defined]
    truth = target(objective.prediction, x0, eps, alpha, sigma)
    terms = objective.loss(lambda x_t, time: truth, x0, draw, mask)
    assert terms.loss.tolist() == [0.0] * 4
    assert torch.equal(terms.metrics["t"], t)
    wrong = objective.loss(lambda x_t, time: truth + 0.1, x0, draw, mask).loss
    assert wrong.shape == (4,)
    assert (wrong > 0).all()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("masked", [True, False])
def test_the_split_of_a_batch_changes_nothing(name, masked):
    objective = ALL[name]()
    x0, draw, mask = sample(objective)

    def predict(x_t: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return x_t * torch.cos(t).reshape(-1, 1, 1, 1, 1)

    whole = objective.loss(predict, x0, draw, mask if masked else None).loss
    pieces = [slice(0, 1), slice(1, 4)]
    parts = [objective.loss(predict, x0[i], part(draw, i), mask[i] if masked else None).loss for i in pieces]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-6, atol=0)


def test_the_plain_eps_loss_is_the_textbook_one():
    objective = denoise()
    x0, draw, _ = sample(objective)
    seen = {}

    def predict(x_t, t):
        seen.update(x_t=x_t, t=t)
        return x_t

    loss = objective.loss(predict, x0, draw, None).loss
    assert torch.equal(seen["x_t"], mix(objective.path, x0, draw.eps, seen["t"]))
    torch.testing.assert_close(loss, ((seen["x_t"] - draw.eps) ** 2).mean((1, 2, 3, 4)))


def test_perturbation_is_seen_but_not_predicted():
    plain, perturbed = denoise(), denoise(input_perturbation=0.2)
    x0, draw, _ = sample(perturbed)
    seen = []
    losses = [o.loss(lambda x_t, t: (seen.append(x_t), draw.eps)[1], x0, draw, None).loss for o in (plain, perturbed)]
    assert losses[0].tolist() == losses[1].tolist() == [0.0] * 4
    sigma = plain.path.sigma(plain.times(draw.u, tuple(x0.shape))).reshape(-1, 1, 1, 1, 1)
    torch.testing.assert_close(seen[1] - seen[0], 0.2 * sigma * draw.extra["perturb"], atol=1e-5, rtol=0)


def test_extra_noise_is_drawn_only_where_it_is_used():
    normal = lambda stream, shape: random.normal(1, stream, 0, 0, shape)  # noqa: E731
    assert denoise().extra_noise(normal, (4, 1, 8, 8)) == {}
    assert flow().extra_noise(normal, (4, 1, 8, 8)) == {}
    drawn = denoise(**SHAPED, input_perturbation=0.1).extra_noise(normal, (4, 1, 8, 8))
    assert {name: noise.shape for name, noise in drawn.items()} == {
        "offset": (4, 1, 1, 1), "pyramid": (4, 1, 8, 8), "perturb": (4, 1, 8, 8),
    }  # fmt: skip


def test_half_precision_predictions_are_compared_in_float32():
    objective = denoise()
    x0, draw, _ = sample(objective)
    loss = objective.loss(lambda x_t, t: (draw.eps + 0.1).bfloat16(), x0, draw, None).loss
    assert loss.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(objective.loss(lambda x_t, t: (draw.eps + 0.1).bfloat16(), x0, draw, None).loss, loss)


def test_the_shift_follows_the_size_of_the_picture():
    """P20: FLUX shifts 256, 512 and 1024 pixel pictures by 1.65, 1.88 and 3.16."""
    objective, u = flow(), torch.tensor([0.5])
    for pixels, shift in ((256, 1.65), (512, 1.88), (1024, 3.16)):
        t = objective.times(u, (1, 16, 1, pixels // 8, pixels // 8)).item()
        assert t / (1 - t) == pytest.approx(shift, abs=0.005)
    assert flow(shift=2.0).times(u, (1, 16, 1, 32, 32)).item() == pytest.approx(2 / 3)
    assert flow(SD).times(u, (1, 4, 1, 64, 64)).item() == pytest.approx(0.5)


def test_ranges_hold_for_the_times_that_are_trained():
    u = torch.linspace(0.001, 0.999, 500)
    for objective in (denoise(time={"min": 0.2, "max": 0.6}), flow(shift=3.0, time={"min": 0.2, "max": 0.6})):
        t = objective.times(u, (500, 4, 1, 8, 8))
        assert t.min() >= 0.2
        assert t.max() <= 0.601  # times of the table stand in the middle of their bin
        assert t.max() - t.min() > 0.35


def test_prediction_and_schedule_come_from_the_weights_unless_set():
    assert (denoise().prediction, denoise(prediction="v").prediction) == ("eps", "v")
    weights = replace(SD, prediction="v", schedule=NoiseSchedule(zero_terminal_snr=True))
    objective = denoising.build(denoising.Config(), weights)
    assert objective.prediction == "v"
    assert objective.path.schedule == weights.schedule
    plain = denoising.build(denoising.Config(zero_terminal_snr=False), weights)
    assert plain.path.schedule == NoiseSchedule()


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"gamma": 5.0}, ("gamma",)),
        ({"weighting": "debiased", "gamma": 5.0}, ("gamma",)),
        ({"huber_c": 0.1}, ("huber_c",)),
        ({"loss": "l1", "huber_schedule": "snr"}, ("huber_schedule",)),
        ({"pyramid_discount": 0.3}, ("pyramid_discount",)),
        ({"prediction": "eps", "zero_terminal_snr": True}, ("zero_terminal_snr",)),
        ({"time": {"mean": 0.5}}, ("time", "mean")),
        ({"time": {"kind": "mode", "std": 0.5}}, ("time", "std")),
        ({"time": {"kind": "logit_normal", "a": 2.0}}, ("time", "a")),
        ({"time": {"min": 0.5, "max": 0.4}}, ("time", "max")),
        ({"prediction": "velocity"}, ("prediction",)),
        ({"noise_offest": 0.1}, ("noise_offest",)),
    ],
)
def test_options_without_effect_are_refused_at_their_own_key(settings, place):
    with pytest.raises(ValidationError) as caught:
        denoising.Config(**settings)
    assert [error["loc"] for error in caught.value.errors()] == [place]
    assert place[-1] in str(caught.value)


@pytest.mark.parametrize("settings", [{"shift": 0.0}, {"shift": math.inf}, {"shift": "big"}, {"noise_offset": 0.1}])
def test_flow_matching_refuses_what_it_does_not_do(settings):
    with pytest.raises(ValidationError):
        flow_matching.Config(**settings)


def test_weights_and_settings_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match="no DDPM schedule"):
        denoising.build(denoising.Config(), FLUX)
    with pytest.raises(UserError, match="velocity"):
        denoising.build(denoising.Config(), replace(SD, prediction="velocity"))
    with pytest.raises(UserError, match="zero terminal SNR"):
        denoise(zero_terminal_snr=True)


def test_settings_are_read_without_torch(root):
    code = "import sys; from trainers.objectives import denoising, flow_matching; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)
