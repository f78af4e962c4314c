"""The one loss of all objectives on a path: draw -> t -> x_t -> pred -> distance to the target -> [B]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainers.core.batch import Draw, Terms
from trainers.diffusion import distances, times
from trainers.diffusion.convert import require_defined, target
from trainers.diffusion.noise import Normal, add_offset, add_pyramid, draw_pyramid
from trainers.diffusion.paths import Path, over

from ._options import LossConfig, TimeConfig
from ._protocol import Predict

Weight = Callable[[Tensor], Tensor]
"""t [B] -> weight [B]."""


@dataclass(frozen=True)
class TimeDensity:
    """How u becomes t: a density, shifted by the number of tokens, cut to [low, high] in the end.

    `points` are (tokens, shift) as in Facts.time_shift; one token covers `patch` x `patch` points of the latent grid.
    """

    quantile: times.Quantile
    low: float = 0.0
    high: float = 1.0
    points: tuple[tuple[int, float], ...] = ()
    patch: int = 1
    _ready: dict[int, times.Quantile] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, config: TimeConfig, points: tuple[tuple[int, float], ...] = (), patch: int = 1) -> TimeDensity:
        """Read the settings."""
        quantile = partial(getattr(times, config.kind), **config.parameters())
        return cls(quantile, config.min, config.max, points, patch)

    def __call__(self, u: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Map u [B] to t [B] for latents of `shape` (..., F, H, W)."""
        frames, height, width = shape[-3:]
        tokens = frames * -(-height // self.patch) * -(-width // self.patch)
        if tokens not in self._ready:  # a range costs a bisection, once for each picture size
            whole = times.shifted(self.quantile, times.shift_of_tokens(tokens, self.points))
            self._ready[tokens] = times.clip_range(whole, self.low, self.high)
        return self._ready[tokens](u.float())


@dataclass(frozen=True)
class Distance:
    """How an error becomes one number for each sample."""

    kind: str = "l2"
    c: float = 0.1
    schedule: str = "snr"
    normalize_area: bool = False

    @classmethod
    def of(cls, config: LossConfig) -> Distance:
        """Read the settings."""
        c = 0.1 if config.huber_c is None else config.huber_c
        return cls(config.loss, c, config.huber_schedule or "snr", config.normalize_mask_area)

    def __call__(self, error: Tensor, mask: Tensor | None, t: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        """Reduce error [B, C, F, H, W] to [B]."""
        if self.kind in ("huber", "smooth_l1"):
            bent = distances.huber if self.kind == "huber" else distances.smooth_l1
            loss = bent(error, distances.scheduled_c(self.schedule, self.c, t, alpha, sigma))
        else:
            loss = distances.l1(error) if self.kind == "l1" else distances.l2(error)
        return distances.per_sample(loss, mask, self.normalize_area)


@dataclass(frozen=True)
class Noise:
    """What is added to white noise; 0 is off. See `trainers.diffusion.noise`."""

    offset: float = 0.0
    discount: float = 0.0
    perturbation: float = 0.0

    def draw(self, normal: Normal, shape: tuple[int, ...]) -> dict[str, NDArray[np.float32]]:
        """Draw for one sample of `shape` (C, F, H, W) what `mix` and `perturb` need."""
        channels, frames, height, width = shape
        extra: dict[str, NDArray[np.float32]] = {}
        if self.offset:
            extra["offset"] = normal("offset", (channels, 1, 1, 1))
        if self.discount:
            extra["pyramid"] = draw_pyramid(normal, (channels, frames, height, width), self.discount)
        if self.perturbation:
            extra["perturb"] = normal("perturb", (channels, frames, height, width))
        return extra

    def mix(self, draw: Draw) -> Tensor:
        """Return the noise [B, C, F, H, W] that is mixed in and must be predicted."""
        eps = draw.eps.float()
        if self.discount:
            eps = add_pyramid(eps, draw.extra["pyramid"], self.discount, (eps.shape[-2], eps.shape[-1]))
        return add_offset(eps, draw.extra["offset"], self.offset) if self.offset else eps

    def perturb(self, eps: Tensor, draw: Draw) -> Tensor:
        """Return the noise that the network sees in the place of eps."""
        return eps + self.perturbation * draw.extra["perturb"] if self.perturbation else eps


@dataclass(frozen=True)
class PathObjective:
    """Predict `prediction` on `path`. See `_protocol.Objective` for the methods."""

    path: Path
    prediction: str
    density: TimeDensity
    weight: Weight | None = None
    distance: Distance = Distance()
    noise: Noise = Noise()

    def __post_init__(self) -> None:
        require_defined(self.prediction, self.path.kind)

    def times(self, u: Tensor, shape: tuple[int, ...]) -> Tensor:
        return self.path.snap(self.density(u, shape))

    def extra_noise(self, normal: Normal, shape: tuple[int, ...]) -> dict[str, NDArray[np.float32]]:
        return self.noise.draw(normal, shape)

    def loss(self, predict: Predict, x0: Tensor, draw: Draw, mask: Tensor | None) -> Terms:
        x0, eps = x0.float(), self.noise.mix(draw)
        t = self.times(draw.u, tuple(x0.shape))
        alpha, sigma = self.path.alpha(t), self.path.sigma(t)
        x_t = over(alpha, x0) * x0 + over(sigma, x0) * self.noise.perturb(eps, draw)
        # x0 and eps are float32, so the error is too, also of a prediction in half precision: small ones survive.
        error = predict(x_t, t).float() - target(self.prediction, x0, eps, alpha, sigma)
        loss = self.distance(error, mask, t, alpha, sigma)
        if self.weight is not None:
            loss = loss * self.weight(t)
        return Terms(loss, {"t": t})
