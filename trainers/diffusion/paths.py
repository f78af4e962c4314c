"""From data to noise: x_t = alpha(t) * x0 + sigma(t) * eps.

Convention of the whole suite: t in [0, 1] float32, 0 = data, 1 = noise; x0 [B, C, F, H, W], eps alike, t [B].
A path gives alpha and sigma as functions of t. On both paths alpha falls and sigma grows with t, so the signal-to-noise
ratio snr = (alpha / sigma)^2 falls.

  ddpm       alpha^2 + sigma^2 = 1, a table of N integer times i = floor(t * N). Ho et al. 2020, arXiv 2006.11239.
             With zero terminal SNR the table is rescaled to end in pure noise. Lin et al. 2023, arXiv 2305.08891.
  rectified  alpha = 1 - t, sigma = t, continuous. Liu et al. 2022, arXiv 2209.03003.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from trainers.core.facts import NoiseSchedule, PathKind

_SMALLEST_SIGMA = 1e-6  # keeps the SNR of clean data finite (at most 1e12), so that no weight becomes inf * 0


class Path(ABC):
    """A way from data to noise. Every method maps t [B] to [B], float32, on the device of t."""

    kind: ClassVar[PathKind]
    schedule: NoiseSchedule | None = None

    @abstractmethod
    def alpha(self, t: Tensor) -> Tensor:
        """Share of the clean latents at t."""

    @abstractmethod
    def sigma(self, t: Tensor) -> Tensor:
        """Share of the noise at t."""

    @abstractmethod
    def snap(self, t: Tensor) -> Tensor:
        """Move t to the nearest time that the path knows."""

    def snr(self, t: Tensor) -> Tensor:
        """Signal-to-noise ratio (alpha / sigma)^2, finite everywhere; 0 where there is only noise."""
        return (self.alpha(t) / self.sigma(t).clamp(min=_SMALLEST_SIGMA)) ** 2


@dataclass(frozen=True)
class RectifiedPath(Path):
    """The straight line: alpha = 1 - t, sigma = t. Its velocity d x_t / dt is eps - x0."""

    kind: ClassVar[PathKind] = "rectified"

    def alpha(self, t: Tensor) -> Tensor:
        """1 - t."""
        return 1.0 - t.float()

    def sigma(self, t: Tensor) -> Tensor:
        """t itself."""
        return t.float()

    def snap(self, t: Tensor) -> Tensor:
        """Leave t as it is: every time is known."""
        return t


@dataclass(frozen=True)
class DdpmPath(Path):
    """The variance-preserving table of a DDPM schedule: alpha = sqrt(alphas_cumprod[i]), i = floor(t * N)."""

    schedule: NoiseSchedule
    kind: ClassVar[PathKind] = "ddpm"

    def alpha(self, t: Tensor) -> Tensor:
        """Entry i of the table sqrt(alphas_cumprod)."""
        return _tables(self.schedule, t.device)[0][self._index(t)]

    def sigma(self, t: Tensor) -> Tensor:
        """Entry i of the table sqrt(1 - alphas_cumprod)."""
        return _tables(self.schedule, t.device)[1][self._index(t)]

    def snap(self, t: Tensor) -> Tensor:
        """Move t to the middle of its bin, (i + 0.5) / N, where no rounding can reach the neighbour."""
        return (self._index(t).float() + 0.5) / self.schedule.steps

    def _index(self, t: Tensor) -> Tensor:
        return (t.float() * self.schedule.steps).floor().long().clamp(0, self.schedule.steps - 1)


def make_path(kind: str, schedule: NoiseSchedule | None) -> Path:
    """Make the path "ddpm" (needs a schedule) or "rectified" (has none)."""
    if kind == "rectified":
        return RectifiedPath()
    if kind != "ddpm":
        raise ValueError(f'there is no path "{kind}"; known: ddpm, rectified')
    if schedule is None:
        raise ValueError("the ddpm path needs a noise schedule")
    return DdpmPath(schedule)


def mix(path: Path, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
    """Make x_t [B, C, F, H, W] of x0, eps [B, C, F, H, W] and t [B]."""
    return over(path.alpha(t), x0) * x0 + over(path.sigma(t), x0) * eps


def over(values: Tensor, like: Tensor) -> Tensor:
    """Reshape per-sample values [B] to [B, 1, 1, ...], to be broadcast over `like` [B, ...]."""
    return values.reshape(-1, *(1,) * (like.ndim - 1))


@cache
def _tables(schedule: NoiseSchedule, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return alpha [N] and sigma [N] on `device`: computed in float64, rounded once, and kept for all steps."""
    alpha = torch.cumprod(1.0 - betas(schedule), dim=0).sqrt()
    if schedule.zero_terminal_snr:
        first, last = alpha[0].clone(), alpha[-1].clone()
        alpha = (alpha - last) * (first / (first - last))
    sigma = (1.0 - alpha**2).sqrt()
    return alpha.float().to(device), sigma.float().to(device)


def betas(schedule: NoiseSchedule) -> Tensor:
    """Return the variances [N] float64 of the forward steps, before any rescaling to zero terminal SNR."""
    start, end, count = schedule.beta_start, schedule.beta_end, schedule.steps
    if schedule.kind == "linear":
        return torch.linspace(start, end, count, dtype=torch.float64)
    if schedule.kind == "scaled_linear":
        return torch.linspace(start**0.5, end**0.5, count, dtype=torch.float64) ** 2
    # Nichol & Dhariwal 2021, arXiv 2102.09672: offset 0.008, betas cut at 0.999.
    edges = torch.arange(count + 1, dtype=torch.float64) / count
    kept = torch.cos((edges + 0.008) / 1.008 * torch.pi / 2) ** 2
    return (1.0 - kept[1:] / kept[:-1]).clamp(max=0.999)
