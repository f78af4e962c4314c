"""What a network may predict, and how one prediction becomes another.

Every kind is a linear mix of clean latents and noise, pred = a * x0 + b * eps:

  kind       a        b
  x0         1        0
  eps        0        1
  v         -sigma    alpha     Salimans & Ho 2022, arXiv 2202.00512
  velocity  -1        1         d x_t / dt of the rectified path only

Together with x_t = alpha * x0 + sigma * eps this is a system of two equations, solved here once for all kinds. Its
determinant alpha * b - sigma * a is 1 for "v" on the ddpm path and for "velocity" on the rectified path. For "eps" it
is alpha, so x0 can't be told at pure noise; for "x0" it is -sigma, so eps can't be told at clean data.

Shapes: x0, eps, x_t, pred [B, C, F, H, W]; alpha, sigma [B].
"""

from __future__ import annotations

import torch
from torch import Tensor

from .paths import over

KINDS = ("eps", "v", "velocity", "x0")


def require_defined(kind: str, path: str) -> None:
    """Raise ValueError where `kind` is unknown or means nothing on `path`."""
    if kind not in KINDS:
        raise ValueError(f'there is no prediction kind "{kind}"; known: {", ".join(KINDS)}')
    if kind == "velocity" and path != "rectified":
        raise ValueError(f'"velocity" = eps - x0 is the derivative of x_t on the rectified path only, not on "{path}"')


def target(kind: str, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
    """Return what a perfect network would predict."""
    if kind == "x0":
        return x0
    if kind == "eps":
        return eps
    if kind == "velocity":
        return eps - x0
    of_x0, of_eps = _mix_of(kind, alpha, sigma)
    return over(of_x0, x0) * x0 + over(of_eps, eps) * eps


def to_x0(pred: Tensor, kind: str, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
    """Return the clean latents that `pred` stands for."""
    if kind == "x0":
        return pred
    of_x0, of_eps = _mix_of(kind, alpha, sigma)
    determinant = alpha * of_eps - sigma * of_x0
    return over(of_eps / determinant, x_t) * x_t - over(sigma / determinant, pred) * pred


def to_eps(pred: Tensor, kind: str, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
    """Return the noise that `pred` stands for."""
    if kind == "eps":
        return pred
    of_x0, of_eps = _mix_of(kind, alpha, sigma)
    determinant = alpha * of_eps - sigma * of_x0
    return over(alpha / determinant, pred) * pred - over(of_x0 / determinant, x_t) * x_t


def convert(pred: Tensor, source: str, wanted: str, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
    """Turn a prediction of kind `source` into one of kind `wanted`."""
    if source == wanted:
        return pred
    x0 = to_x0(pred, source, x_t, alpha, sigma)
    return target(wanted, x0, to_eps(pred, source, x_t, alpha, sigma), alpha, sigma)


def _mix_of(kind: str, alpha: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Return a [B] and b [B] of pred = a * x0 + b * eps."""
    zero, one = torch.zeros_like(alpha), torch.ones_like(alpha)
    known = {"x0": (one, zero), "eps": (zero, one), "v": (-sigma, alpha), "velocity": (-one, one)}
    if kind not in known:
        raise ValueError(f'there is no prediction kind "{kind}"; known: {", ".join(KINDS)}')
    return known[kind]
