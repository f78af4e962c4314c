"""The way of one group of pictures into latents: file -> cut-outs -> VAE -> latents and masks, checked to be finite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainers.core import digest, random
from trainers.core.errors import Problem
from trainers.core.family import Family

from .buckets import Fit
from .decode import PictureError, decode, prepare, read_file, read_mask
from .items import Item
from .keys import Variant


@dataclass(frozen=True)
class Picture:
    """One cut-out, ready for the VAE: `pixels` [Y, X, 3], `mask` [Y, X] or None, both uint8; `key` names the entry."""

    item: Item
    key: str
    pixels: NDArray[np.uint8]
    mask: NDArray[np.uint8] | None


def prepare_pictures(
    item: Item, fit: Fit, wanted: Iterable[tuple[str, Variant]], background: str
) -> list[Picture] | Problem:
    """Read a picture once and make its cut-outs. One that changed since the scan would be cached under a false name."""
    try:
        data = read_file(item.path)
        if digest.of_bytes(data) != item.digest:
            return Problem(str(item.path), "was changed while the run was starting", "start again")
        pixels, alpha, _ = decode(data, background)
        mask = alpha if item.mask == "alpha" else None if item.mask is None else read_mask(item.mask)
    except PictureError as error:
        return Problem(str(item.path), str(error), "mend or remove the file and start again")
    return [
        Picture(
            item,
            key,
            prepare(pixels, fit, variant.crop, variant.flip),
            None if mask is None else prepare(mask, fit, variant.crop, variant.flip),
        )
        for key, variant in wanted
    ]


def encode_pictures(family: Family, vae: nn.Module, group: Sequence[Picture]) -> list[dict[str, Tensor] | Problem]:
    """Encode pictures of one shape: for each its cache entry, or what is wrong with it."""
    latents = _encode(family, vae, group)
    broken = [place for place, x0 in enumerate(latents) if not bool(torch.isfinite(x0).all())]
    if broken:  # half precision overflows in some VAEs: these pictures get another try
        for place, x0 in zip(broken, _encode_precisely(family, vae, [group[place] for place in broken]), strict=True):
            latents[place] = x0
    return [_entry(family, picture, x0) for picture, x0 in zip(group, latents, strict=True)]


def _entry(family: Family, picture: Picture, x0: Tensor) -> dict[str, Tensor] | Problem:
    if not bool(torch.isfinite(x0).all()):
        remedy = "look at the picture; with a good one, the VAE is broken or too coarse for its precision"
        return Problem(str(picture.item.path), "the VAE gives numbers that are not finite for this picture", remedy)
    if picture.mask is None:
        return {"x0": x0}
    return {"x0": x0, "mask": shrink_mask(picture.mask, family.facts.stride_xy)}


def shrink_mask(mask: NDArray[np.uint8], stride: int) -> Tensor:
    """Average a mask [Y, X] over the area of each latent: [1, 1, H, W] in [0, 1]."""
    whole = torch.from_numpy(mask.astype(np.float32))[None, None] / 255.0
    return torch.nn.functional.avg_pool2d(whole, stride)


def _encode(family: Family, vae: nn.Module, group: Sequence[Picture]) -> list[Tensor]:
    """Latents [C, F, H, W], float32 on the CPU, of pictures of one shape. A group too big for the memory is halved."""
    try:
        return _forward(family, vae, group)
    except torch.OutOfMemoryError:
        if len(group) == 1:
            raise
    middle = len(group) // 2
    return _encode(family, vae, group[:middle]) + _encode(family, vae, group[middle:])


def _forward(family: Family, vae: nn.Module, group: Sequence[Picture]) -> list[Tensor]:
    weight = next(vae.parameters())
    stacked = torch.from_numpy(np.stack([picture.pixels for picture in group])).to(weight.device)
    pixels = stacked.permute(0, 3, 1, 2).unsqueeze(2).to(torch.float32) / 127.5 - 1.0
    stride = family.facts.stride_xy
    shape = (family.facts.latent_channels, 1, pixels.shape[3] // stride, pixels.shape[4] // stride)
    # The VAE's own sampling noise belongs to the picture: equal in every run, so that runs can share a cache.
    noise = np.stack([random.normal(0, "vae", picture.item.digest, 0, shape) for picture in group])
    with torch.no_grad():
        latents = family.encode_pixels(vae, pixels.to(weight.dtype), torch.from_numpy(noise).to(weight.device))
    return list(latents.to("cpu", torch.float32).unbind(0))


def _encode_precisely(family: Family, vae: nn.Module, group: Sequence[Picture]) -> list[Tensor]:
    """Encode in float32 and leave the VAE as it was; widening half-precision weights and back is exact."""
    dtype = next(vae.parameters()).dtype
    try:
        return _encode(family, vae.to(torch.float32), group)
    finally:
        vae.to(dtype)
