"""Paints prompts with a model folder through diffusers' own pipeline, and lays pictures out on a sheet."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import diffusers
import torch
import transformers
from diffusers import AutoencoderKL, StableDiffusionPipeline
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

BATCH = 20
LABEL_LINES, LINE_HEIGHT, LETTERS = 3, 12, 24
"""Room for the prompt under a picture: lines, pixels a line, letters a line."""


@dataclass(frozen=True)
class Sampling:
    """How pictures are painted; these are the model's recommended settings."""

    guidance: float = 4.0
    steps: int = 24
    rescale: float = 0.0


@torch.no_grad()
def paint(model: Path, texts: Sequence[str], sampling: Sampling, tell: Callable[[int], None]) -> Tensor:
    """Paint one picture a prompt, seed = its number: ``[N, 3, 128, 128]`` in [0, 1]. ``tell`` hears the count."""
    for library in (diffusers, transformers):
        library.utils.logging.disable_progress_bar()
    pipeline = StableDiffusionPipeline.from_pretrained(model, dtype=torch.float32, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    chunks: list[Tensor] = []
    for start in range(0, len(texts), BATCH):
        part = list(texts[start : start + BATCH])
        painted = pipeline(
            part,
            guidance_scale=sampling.guidance,
            guidance_rescale=sampling.rescale,
            num_inference_steps=sampling.steps,
            generator=[torch.Generator().manual_seed(start + offset) for offset in range(len(part))],
            output_type="pt",
        )
        chunks.append(painted.images)
        tell(start + len(part))
    return torch.cat(chunks)


@torch.no_grad()
def decode_again(model: Path, pictures: Tensor) -> Tensor:
    """Encode and decode ``[N, 3, 128, 128]`` pictures in [0, 1] with the model's autoencoder."""
    vae = AutoencoderKL.from_pretrained(model / "vae", dtype=torch.float32, local_files_only=True)
    chunks = [vae.decode(vae.encode(c * 2 - 1).latent_dist.mean).sample for c in pictures.split(16)]
    return (torch.cat(chunks) / 2 + 0.5).clamp(0, 1)


def draw_sheet(pictures: Tensor, labels: Sequence[str], columns: int = 8) -> Image.Image:
    """Lay ``[N, 3, Y, X]`` pictures in [0, 1] out in rows, each with its label below."""
    count, _, height, width = pictures.shape
    cell = height + LABEL_LINES * LINE_HEIGHT
    sheet = Image.new("RGB", (min(count, columns) * width, -(-count // columns) * cell), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(10)
    pixels = (pictures * 255).round().byte().permute(0, 2, 3, 1).numpy()
    for number, (picture, label) in enumerate(zip(pixels, labels, strict=True)):
        left, top = number % columns * width, number // columns * cell
        sheet.paste(Image.fromarray(picture), (left, top))
        lines = textwrap.wrap(label, LETTERS)[:LABEL_LINES]
        for row, line in enumerate(lines):
            pen.text((left + 2, top + height + row * LINE_HEIGHT), line, fill="black", font=font)
    return sheet


def save_sheet(sheet: Image.Image, path: Path, limit: int = 400_000) -> None:
    """Save as PNG with a palette as large as ``limit`` bytes allow."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for colours in (256, 128, 64, 32):
        sheet.quantize(colours, dither=Image.Dither.NONE).save(path, optimize=True)
        if path.stat().st_size <= limit:
            return
