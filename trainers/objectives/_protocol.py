"""What the step asks of an objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from trainers.core.batch import Draw, Terms
from trainers.diffusion.noise import Normal

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.diffusion.paths import Path

Predict = Callable[["Tensor", "Tensor"], "Tensor"]
"""(x_t [B, C, F, H, W], t [B]) -> pred [B, C, F, H, W] in units of the objective's prediction kind."""


class Objective(Protocol):
    """Turns drawn numbers and a prediction into one loss for each sample. Holds no state and draws nothing itself."""

    @property
    def path(self) -> Path:
        """The path from data to noise; with its `schedule` previews must sample alike."""

    @property
    def prediction(self) -> str:
        """The kind that the network is trained to predict."""

    def times(self, u: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Turn u [B] in (0, 1) into t [B] for latents of `shape` (..., F, H, W); validation passes fixed quantiles."""

    def extra_noise(self, normal: Normal, shape: tuple[int, ...]) -> dict[str, NDArray[np.float32]]:
        """Draw what `loss` looks for in `Draw.extra`, for one sample of `shape` (C, F, H, W); empty where unused."""

    def loss(self, predict: Predict, x0: Tensor, draw: Draw, mask: Tensor | None) -> Terms:
        """Loss [B] of x0 [B, C, F, H, W] with mask [B, 1, F, H, W] in [0, 1], and the metric "t" [B]."""
