"""A model family with its tiny instance, for the contract tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainers.core import discover
from trainers.core.batch import Condition, Geometry

FAMILIES = discover.names("models")
CAPTIONS = ("a photo of a cat", "a painting of a small blue house in the snow")
GEOMETRY = (Geometry((70, 96), (3, 4), (64, 64)), Geometry((64, 64), (0, 0), (64, 64)))


@dataclass
class Case:
    """A family with its tiny instance; parts are loaded when they are first used."""

    family: Any
    folder: Path

    @cached_property
    def weights(self) -> Any:
        return self.family.resolve(str(self.folder))

    def load(self, part: str) -> Any:
        return self.family.load(part, self.weights, dtype=torch.float32, device="cpu")

    @cached_property
    def vae(self) -> Any:
        return self.load("vae")

    @cached_property
    def text(self) -> Any:
        return self.load("text")

    @cached_property
    def denoiser(self) -> Any:
        return self.load("denoiser")

    @property
    def latent_shape(self) -> tuple[int, ...]:
        return (2, self.family.facts.latent_channels, 1, 8, 8)

    def condition(self) -> Condition:
        with torch.no_grad():
            return self.family.collate(self.family.encode_text(self.text, CAPTIONS), (1, 8, 8), GEOMETRY)

    def parts(self) -> dict[str, Any]:
        return {part: self.load(part) for part in ("denoiser", "vae", "text")}


def noise(shape: tuple[int, ...], seed: int = 3) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
