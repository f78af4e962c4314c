"""Draws one picture: a sprite on a plain ground, with keyed small variation.

Pixels are RGB, 8 bits, ``PICTURE_SIZE`` a side. The same key always gives the same picture.
"""

from __future__ import annotations

import hashlib
import random

from PIL import Image

PICTURE_SIZE = 128

GROUNDS: dict[str, tuple[int, int, int]] = {
    "white": (250, 250, 250),
    "black": (18, 18, 20),
    "gray": (140, 142, 146),
    "red": (205, 40, 45),
    "orange": (245, 135, 30),
    "yellow": (252, 215, 60),
    "green": (55, 150, 70),
    "blue": (45, 95, 205),
    "purple": (115, 55, 160),
    "pink": (250, 165, 195),
}
"""The ground colours, in the order in which the scorer numbers them."""


def keyed_random(*key: object) -> random.Random:
    """Return a generator that depends on the key alone, not on the platform or the call order."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


def place(
    sprite: Image.Image,
    ground: tuple[int, int, int],
    rng: random.Random,
    *,
    size: int = PICTURE_SIZE,
    scale: tuple[float, float] = (0.80, 0.86),
    shift: float = 0.02,
    tint: int = 4,
) -> Image.Image:
    """Composite a sprite near the middle of a plain ground.

    ``scale`` is the range of the sprite's longer side, ``shift`` the largest offset from the middle
    (both as shares of the picture's side), ``tint`` the largest change of a ground channel (0..255).
    """
    longest = rng.uniform(*scale) * size
    factor = longest / max(sprite.size)
    width, height = (max(1, round(side * factor)) for side in sprite.size)
    left, top = (
        round((size - side) / 2 + rng.uniform(-shift, shift) * size) for side in (width, height)
    )
    colour = tuple(min(255, max(0, channel + rng.randint(-tint, tint))) for channel in ground)
    picture = Image.new("RGB", (size, size), colour)
    small = sprite.convert("RGBa").resize((width, height), Image.Resampling.LANCZOS).convert("RGBA")
    picture.paste(small, (left, top), small)
    return picture
