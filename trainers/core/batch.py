"""What travels from the loader to the step: conditions, draws and micro-batches. torch appears in annotations only.

Letters: B samples, C channels, F latent frames, H x W latent grid, S text tokens, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Condition = Mapping[str, "Tensor"]
"""Named tensors that tell the denoiser what to paint, of one sample ([S, D], [D], as cached) or collated ([B, ...])."""


@dataclass(frozen=True)
class Geometry:
    """How a picture became a sample; all (height, width) in pixels, `crop` is (top, left) in the resized picture."""

    original: tuple[int, int]
    crop: tuple[int, int]
    target: tuple[int, int]


@dataclass(frozen=True)
class Draw:
    """The random numbers of one micro-batch: `eps` [B, C, F, H, W] standard normal, `u` [B] uniform in (0, 1).

    `extra` holds further keyed noise by name, e.g. "offset" [B, C, 1, 1, 1], "perturb" like eps, "pyramid" like eps.
    """

    eps: Tensor
    u: Tensor
    extra: Mapping[str, Tensor]


@dataclass(frozen=True)
class MicroBatch:
    """Samples of one shape for one forward and backward.

    x0 [B, C, F, H, W]; condition collated to B, or None where `captions` must be encoded in the step; dropped [B] bool:
    the caption is replaced by the null condition; mask [B, 1, F, H, W] in [0, 1] or None; weight [B] of each loss.
    """

    ids: tuple[str, ...]
    x0: Tensor
    condition: Condition | None
    captions: tuple[str, ...]
    geometry: tuple[Geometry, ...]
    dropped: Tensor
    mask: Tensor | None
    weight: Tensor
    draw: Draw


@dataclass(frozen=True)
class Terms:
    """What an objective returns: `loss` [B], not reduced, and named metrics [B]."""

    loss: Tensor
    metrics: Mapping[str, Tensor]
