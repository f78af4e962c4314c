"""Loss weights as functions of the signal-to-noise ratio, one closed form for each prediction kind.

The squared errors of the kinds differ only by a factor that depends on the SNR:

  |eps error|^2 = snr * |x0 error|^2        |v error|^2 = (snr + 1) * |x0 error|^2
  |velocity error|^2 = (1 + sqrt(snr))^2 * |x0 error|^2        (rectified path, where sigma = 1 / (1 + sqrt(snr)))

So a weighting is written once, as the weight of the eps error, and `_for_kind` gives the weight that means the same for
another kind. Nothing is divided by the SNR, which is 0 at a zero-terminal step. Shapes: snr [B] -> [B].
"""

from __future__ import annotations

import torch
from torch import Tensor

_SNR_FLOOR = 1e-4  # bounds the debiased eps weight, which has a pole at 0, to 100


def min_snr(snr: Tensor, gamma: float, kind: str) -> Tensor:
    """Weigh the x0 error by min(snr, gamma); so eps by min(1, gamma/snr), v by min(snr, gamma)/(snr + 1).

    Hang et al. 2023, arXiv 2303.09556.
    """
    return _for_kind(gamma / snr.clamp(min=gamma), snr, kind)


def soft_min_snr(snr: Tensor, gamma: float, kind: str) -> Tensor:
    """Weigh the x0 error by snr * gamma / (snr + gamma): min-SNR without its corner.

    Crowson et al. 2024, arXiv 2401.11605.
    """
    return _for_kind(gamma / (snr + gamma), snr, kind)


def debiased(snr: Tensor, kind: str) -> Tensor:
    """Weigh the eps error by 1 / sqrt(snr): more for noisy times. Yu et al. 2023, arXiv 2310.08442."""
    return _for_kind(snr.clamp(min=_SNR_FLOOR).rsqrt(), snr, kind)


def snr_power(snr: Tensor, gamma: float, kind: str) -> Tensor:
    """Weigh the eps error by (1 + snr)^-gamma: less for nearly clean times. Choi et al. 2022 (P2), arXiv 2204.00227."""
    return _for_kind((1.0 + snr) ** -gamma, snr, kind)


def cosmap(t: Tensor) -> Tensor:
    """Weigh the velocity error by 2 / (pi * (1 - 2t + 2t^2)). Esser et al. 2024, arXiv 2403.03206."""
    return 2.0 / (torch.pi * (1.0 - 2.0 * t + 2.0 * t**2))


def _for_kind(eps_weight: Tensor, snr: Tensor, kind: str) -> Tensor:
    """Turn the weight of the eps error into the equal weight of another kind's error."""
    if kind == "eps":
        return eps_weight
    if kind == "x0":
        return eps_weight * snr
    if kind == "v":
        return eps_weight * (snr / (snr + 1.0))
    if kind == "velocity":
        return eps_weight * (snr / (1.0 + snr.sqrt()) ** 2)
    raise ValueError(f'there is no weight for prediction kind "{kind}"')
