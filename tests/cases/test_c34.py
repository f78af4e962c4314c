"""C34: v prediction, zero terminal SNR and min-SNR together: closed-form weights, and nothing infinite at SNR 0."""

from __future__ import annotations

import pytest
import torch

from trainers.core.batch import Draw
from trainers.core.facts import Facts, NoiseSchedule
from trainers.diffusion.weights import min_snr
from trainers.objectives import denoising

FACTS = Facts("tiny", "Tiny", "v", "ddpm", 4, 8, 8, 64 * 64, schedule=NoiseSchedule())


def test_c34_weights():
    weights = min_snr(torch.tensor([0.0, 1.0, 5.0, 50.0]), 5.0, "v")
    assert weights.tolist() == pytest.approx([0.0, 0.5, 0.8333, 0.0980], abs=5e-5)


@pytest.mark.parametrize("weighting", ["none", "min_snr", "soft_min_snr", "debiased", "snr_power"])
@pytest.mark.parametrize("loss", ["l2", "huber"])
@pytest.mark.parametrize("prediction", ["v", "x0"])
def test_c34_loss_and_gradients_are_finite_at_the_terminal_step(weighting, loss, prediction):
    config = denoising.Config(prediction=prediction, zero_terminal_snr=True, weighting=weighting, loss=loss)
    objective = denoising.build(config, FACTS)
    x0, eps = torch.randn(2, 3, 4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    scale = torch.nn.Parameter(torch.tensor(0.5))
    u = torch.tensor([0.99999, 0.9999, 0.5])
    terms = objective.loss(lambda x_t, t: scale * x_t, x0, Draw(eps, u, {}), None)
    assert objective.path.snr(terms.metrics["t"])[0] == 0.0
    assert torch.isfinite(terms.loss).all()
    terms.loss.sum().backward()
    assert scale.grad is not None
    assert torch.isfinite(scale.grad)
    assert terms.loss[2] > 0
    assert (terms.loss[0] == 0) == (weighting != "none")
