"""A model family of arithmetic only: latents are averaged pixels, conditions are digests of captions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainers.core.batch import Geometry
from trainers.core.facts import Facts
from trainers.data.buckets import Fit, plan_buckets
from trainers.data.config import DataConfig
from trainers.data.items import Item
from trainers.data.scan import scan

FACTS = Facts("fake", "Fake", "eps", "ddpm", latent_channels=4, stride_xy=8, size_multiple=8, native_area=64 * 64)


class FakeVae(nn.Module):
    """Counts the pictures it encodes; in half precision it overflows on pictures brighter than `limit`."""

    def __init__(self, limit: float = 9.0, *, always: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.limit = limit
        self.always = always
        self.seen = 0


class FakeText(nn.Module):
    """Lists the captions it encodes; the null condition is None in the list."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.seen: list[str | None] = []


class FakeFamily:
    """What the data layer asks of a family."""

    facts = FACTS

    def encode_pixels(self, vae: FakeVae, pixels: Tensor, eps: Tensor | None) -> Tensor:
        vae.seen += len(pixels)
        small = nn.functional.avg_pool2d(pixels[:, :, 0].float(), 8)
        latents = torch.cat([small, small.mean(1, keepdim=True)], dim=1).unsqueeze(2)
        bright = pixels.float().mean((1, 2, 3, 4)) > vae.limit
        overflow = bright & torch.tensor(vae.always or vae.weight.dtype != torch.float32)
        latents = latents if eps is None else latents + 0.1 * eps
        return torch.where(overflow[:, None, None, None, None], torch.inf, latents)

    def encode_text(self, text: FakeText, captions: Sequence[str]) -> list[Mapping[str, Tensor]]:
        text.seen.extend(captions)
        return [{"text": _numbers(caption)} for caption in captions]

    def null_condition(self, text: FakeText) -> Mapping[str, Tensor]:
        text.seen.append(None)
        return {"text": torch.full((4, 2), -1.0)}

    def collate(
        self, conditions: Sequence[Mapping[str, Tensor]], grid: tuple[int, int, int], geometry: Sequence[Geometry]
    ) -> Mapping[str, Tensor]:
        sizes = torch.tensor([[*place.original, *place.crop, *place.target] for place in geometry])
        return {"text": torch.stack([condition["text"] for condition in conditions]), "sizes": sizes}


def _numbers(caption: str) -> Tensor:
    return torch.tensor(list(hashlib.sha256(caption.encode()).digest()[:8]), dtype=torch.float32).view(4, 2) / 255


def scanned(folder: Path, **settings: Any) -> tuple[DataConfig, list[Item], dict[str, Fit]]:
    """Scan one folder (or `concepts`) of pictures and fit them to 64 x 64 pixels: (config, items, fits)."""
    settings.setdefault("concepts", [{"folder": "."}])
    config = DataConfig(**{"area": "64px", **settings})
    found = scan(config, folder)
    found.raise_errors()
    fits, _ = plan_buckets(config, native_area=FACTS.native_area, size_multiple=FACTS.size_multiple).fit_items(
        found.items
    )
    return config, [item for item in found.items if item.id in fits], fits
