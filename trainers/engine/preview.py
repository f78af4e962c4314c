"""Previews: pictures of the same prompts from the same noise, made by diffusers' own pipeline around the live parts.

They leave no trace in the run: weights, module modes, optimizer mode and the global random state come back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from trainers.core.batch import Condition, Geometry
from trainers.core.family import Family, SampleSteps, Weights
from trainers.core.random import normal
from trainers.engine.samplers import use_sampler
from trainers.engine.sheet import save_picture
from trainers.engine.step import move_condition
from trainers.memory.device import Device, evaluating
from trainers.memory.shortage import free_memory, is_out_of_memory


@dataclass(frozen=True)
class PreviewSettings:
    """What to paint: `size` (height, width) in pixels, `steps` denoising steps, `guidance` scale (1 = none).

    The noise of a prompt is keyed by (seed, its number): its place in the list, or `numbers` where given.
    """

    prompts: tuple[str, ...]
    negative: str
    size: tuple[int, int]
    steps: int
    guidance: float
    seed: int
    batch: int = 8
    numbers: tuple[int, ...] | None = None
    sampler: str = "auto"


class Painter:
    """Paints prompts with the parts of a model; prompts are encoded beforehand, with `encode`.

    `on_step` is called after every denoising step; raising Interrupted there ends the painting.
    """

    def __init__(self, family: Family, weights: Weights, denoiser: nn.Module, vae: nn.Module, device: Device) -> None:
        self.family, self.weights, self.denoiser, self.vae, self.device = family, weights, denoiser, vae, device
        self.on_step: Callable[[], None] = _go_on
        self._encoded: dict[str, Condition] = {}

    def encode(self, text: nn.Module, prompts: Sequence[str]) -> None:
        """Encode prompts once, so that the text encoders need not stay in memory."""
        with evaluating(text):
            for prompt, condition in zip(prompts, self.family.encode_text(text, list(prompts)), strict=True):
                self._encoded[prompt] = {name: value.detach().cpu() for name, value in condition.items()}

    def remember(self, encoded: Mapping[str, Condition]) -> None:
        """Take prompts that are encoded already."""
        self._encoded.update(encoded)

    def forget(self) -> None:
        """Drop the encoded prompts, because the text encoder has moved on."""
        self._encoded.clear()

    def paint(self, settings: PreviewSettings) -> list[Image.Image]:
        """Paint every prompt, each from its own keyed noise."""
        pictures: list[Image.Image] = []
        with _RandomStateKept(self.device.device), evaluating(self.denoiser, self.vae):
            pipeline = self.family.pipeline(self.weights, {"denoiser": self.denoiser, "vae": self.vae})
            pipeline.set_progress_bar_config(disable=True)
            use_sampler(pipeline, settings.sampler)
            for start in range(0, len(settings.prompts), settings.batch):
                indices = range(start, min(start + settings.batch, len(settings.prompts)))
                latents = self._latents(pipeline, settings, indices)
                pictures += [to_picture(pixels) for pixels in self.family.decode_latents(self.vae, latents)]
        return pictures

    def _latents(self, pipeline: object, settings: PreviewSettings, indices: range) -> Tensor:
        """Denoise one batch of prompts -> [B, C, F, H, W]."""
        facts = self.weights.facts
        grid = (1, settings.size[0] // facts.stride_xy, settings.size[1] // facts.stride_xy)
        shape = (facts.latent_channels, *grid)
        numbers = settings.numbers or range(len(settings.prompts))
        eps = np.stack([normal(settings.seed, "preview", numbers[index], 0, shape) for index in indices])
        geometry = [Geometry(settings.size, (0, 0), settings.size)] * len(indices)
        wanted = self.family.collate([self._encoded[settings.prompts[index]] for index in indices], grid, geometry)
        unwanted = self.family.collate([self._encoded[settings.negative]] * len(indices), grid, geometry)
        place = self.device.device
        with self.device.autocast():
            return self.family.sample(
                pipeline, move_condition(wanted, place), move_condition(unwanted, place),
                torch.from_numpy(eps).to(place), SampleSteps(settings.steps, settings.guidance, self.on_step),
            ).float()  # fmt: skip


def _go_on() -> None:
    """Nobody asks to stop."""


def to_picture(pixels: Tensor) -> Image.Image:
    """pixels [3, T, Y, X] in [-1, 1] -> the first frame as 8-bit RGB."""
    values = ((pixels[:, 0].float().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return Image.fromarray(values.permute(1, 2, 0).cpu().numpy())


def save_pictures(pictures: Sequence[Image.Image], folder: Path) -> list[Path]:
    """Write pictures as 00.png, 01.png, ... and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{index:02d}.png" for index in range(len(pictures))]
    for picture, path in zip(pictures, paths, strict=True):
        save_picture(picture, path)
    return paths


class _RandomStateKept:
    """Pipelines may touch the global generators; whatever they do is undone."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __enter__(self) -> None:
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else None

    def __exit__(self, *error: object) -> None:
        torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda, self._device)


def paint_or_explain(painter: Painter, settings: PreviewSettings) -> tuple[list[Image.Image], str]:
    """Paint; when memory runs out, free it, try one prompt at a time, then give up with a sentence."""
    from dataclasses import replace

    for attempt in (settings, replace(settings, batch=1)):
        try:
            return painter.paint(attempt), ""
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            free_memory()
    return [], "this preview was left out: there was not enough memory for it; training goes on"
