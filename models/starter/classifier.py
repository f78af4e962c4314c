"""A small picture classifier that names subject, look and ground colour, to score generated pictures.

It is trained on renderings made on the fly from the sprites: scales, offsets, ground tints, blur and
noise all differ from the training pictures of the model it scores.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from models.starter.heap import keep_heap_pages
from models.starter.pictures import GROUNDS, keyed_random, place
from models.starter.sprites import LOOKS, iterate_sprites, load_subjects
from trainers.core.digest import of_json

INPUT_SIZE = 64
SPRITE_SIZE = 96
HEADS = ("subject", "look", "ground")
STEPS, BATCH, SEED, RATE = 1500, 64, 5, 2e-3
RECIPE = "1"
"""Raise it when training changes in another way than by the numbers above, so that kept classifiers are not used."""


class Classifier(nn.Module):
    """``[B, 3, Y, X]`` pictures in [0, 1] -> logits of subject, look and ground."""

    def __init__(self, subjects: int) -> None:
        """Build the network for a number of subjects."""
        super().__init__()
        widths = ((3, 32, 2), (32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 192, 2))
        layers: list[nn.Module] = []
        for inputs, outputs, stride in widths:
            layers += [
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
            ]
        self.body = nn.Sequential(*layers)
        features = 192 * (INPUT_SIZE // 16) ** 2
        self.mix = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(features, 256), nn.ReLU())
        sizes = dict(zip(HEADS, (subjects, len(LOOKS), len(GROUNDS)), strict=True))
        self.heads = nn.ModuleDict({name: nn.Linear(256, size) for name, size in sizes.items()})

    def forward(self, pictures: Tensor) -> dict[str, Tensor]:
        """Return head name -> logits ``[B, classes]``."""
        small = F.interpolate(pictures, INPUT_SIZE, mode="area")
        features = self.mix(self.body(small * 2 - 1))
        return {name: head(features) for name, head in self.heads.items()}


def load_sprite_tensors(packages: Path) -> tuple[Tensor, Tensor]:
    """Return premultiplied sprites ``[N, 4, 96, 96]`` in [0, 1] and labels ``[N, 2]`` (subject, look)."""
    pictures: list[np.ndarray] = []
    labels: list[tuple[int, int]] = []
    for subject, look, sprite in iterate_sprites(packages):
        square = Image.new("RGBA", (max(sprite.size),) * 2)
        square.paste(sprite, tuple((square.width - side) // 2 for side in sprite.size))
        small = square.convert("RGBa").resize((SPRITE_SIZE,) * 2, Image.Resampling.LANCZOS)
        pictures.append(np.frombuffer(small.tobytes(), np.uint8).reshape(SPRITE_SIZE, SPRITE_SIZE, 4))
        labels.append((subject, look))
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255, torch.tensor(labels)


def compose(sprites: Tensor, grounds: Tensor, generator: torch.Generator) -> Tensor:
    """Place ``[B, 4, S, S]`` sprites on ground colours ``[B, 3]`` with random scale, offset and blur."""
    count = len(sprites)
    scale = torch.empty(count).uniform_(0.70, 0.95, generator=generator)
    offset = torch.empty(count, 2).uniform_(-0.10, 0.10, generator=generator)
    theta = torch.zeros(count, 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = 1 / scale
    theta[:, :, 2] = offset / scale[:, None]
    grid = F.affine_grid(theta, [count, 4, INPUT_SIZE, INPUT_SIZE], align_corners=False)
    placed = F.grid_sample(sprites, grid, align_corners=False)
    tint = torch.empty(count, 3).uniform_(-0.06, 0.06, generator=generator)
    ground = (grounds + tint).clamp(0, 1)[:, :, None, None]
    pictures = placed[:, :3] + ground * (1 - placed[:, 3:])
    blurred = F.avg_pool2d(F.pad(pictures, (1, 1, 1, 1), mode="replicate"), 3, 1)
    share = torch.rand(count, 1, 1, 1, generator=generator)
    noise = torch.randn(pictures.shape, generator=generator) * 0.04
    strength = torch.rand(count, 1, 1, 1, generator=generator)
    return (torch.lerp(pictures, blurred, share) + noise * strength).clamp(0, 1)


def batches(
    sprites: Tensor, labels: Tensor, steps: int, size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Yield (pictures, targets) drawn uniformly over sprites and grounds."""
    colours = torch.tensor(list(GROUNDS.values())).float() / 255
    for _ in range(steps):
        chosen = torch.randint(len(sprites), (size,), generator=generator)
        ground = torch.randint(len(colours), (size,), generator=generator)
        pictures = compose(sprites[chosen], colours[ground], generator)
        subject, look = labels[chosen].unbind(1)
        yield pictures, dict(zip(HEADS, (subject, look, ground), strict=True))


def train_classifier(packages: Path, say: Callable[[str], None], steps: int) -> Classifier:
    """Train the classifier (some three minutes on one core) and return it ready for use."""
    keep_heap_pages()
    sprites, labels = load_sprite_tensors(packages)
    torch.manual_seed(SEED)
    network = Classifier(int(labels[:, 0].max()) + 1).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
    generator = torch.Generator().manual_seed(SEED)
    for step, (pictures, targets) in enumerate(batches(sprites, labels, steps, BATCH, generator)):
        factor = min(1.0, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimizer.param_groups[0]["lr"] = RATE * factor
        logits = network(pictures)
        loss = sum(F.cross_entropy(logits[name], targets[name]) for name in HEADS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 100 == 0:
            say(f"training the classifier: {step + 1}/{steps}")
    return network.to(memory_format=torch.contiguous_format).eval()


def obtain_classifier(packages: Path, file: Path, say: Callable[[str], None]) -> Classifier:
    """Load the classifier that ``file`` keeps, or train it and keep it there."""
    subjects = load_subjects(packages)
    recipe = of_json([RECIPE, STEPS, BATCH, SEED, RATE, list(GROUNDS.items()), [s.code for s in subjects]])
    network = Classifier(len(subjects))
    state = _read_kept(file, recipe)
    if state is not None:
        network.load_state_dict(state)
        return network.eval()
    network = train_classifier(packages, say, STEPS)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    save_file(network.state_dict(), partial, metadata={"recipe": recipe})
    os.replace(partial, file)
    return network


def _read_kept(file: Path, recipe: str) -> dict[str, Tensor] | None:
    """Return the weights of a kept classifier; None if there is none, or it was trained in another way."""
    if not file.is_file():
        return None
    try:
        with safe_open(file, "pt") as kept:
            if (kept.metadata() or {}).get("recipe") != recipe:
                return None
            return {name: kept.get_tensor(name) for name in kept.keys()}  # noqa: SIM118 - not a dictionary
    except SafetensorError:
        return None


@torch.no_grad()
def classify(network: Classifier, pictures: Tensor) -> dict[str, Tensor]:
    """Return head name -> class numbers ``[B]`` for pictures ``[B, 3, Y, X]`` in [0, 1]."""
    chunks = [network(chunk) for chunk in pictures.split(64)]
    return {name: torch.cat([chunk[name] for chunk in chunks]).argmax(1) for name in HEADS}


def held_out_renderings(packages: Path) -> tuple[Tensor, dict[str, Tensor]]:
    """Draw every subject once, looks and grounds in turn, with other keys than the training set's; and the labels."""
    names = list(GROUNDS)
    pictures: list[np.ndarray] = []
    labels: list[tuple[int, int, int]] = []
    for subject, look, sprite in iterate_sprites(packages):
        if look != subject % len(LOOKS):
            continue
        ground = (7 * subject + 3 * look + 1) % len(names)
        rng = keyed_random("held-out", subject, look)
        picture = place(sprite, GROUNDS[names[ground]], rng, scale=(0.74, 0.90), shift=0.04, tint=10)
        pictures.append(np.asarray(picture))
        labels.append((subject, look, ground))
    targets = dict(zip(HEADS, torch.tensor(labels).unbind(1), strict=True))
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255, targets


def accuracy(guesses: dict[str, Tensor], targets: dict[str, Tensor]) -> dict[str, float]:
    """Return head name -> share of right answers."""
    return {name: (guesses[name] == targets[name]).float().mean().item() for name in HEADS}
