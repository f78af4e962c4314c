"""Makes small sets of drawn pictures with captions, and files with every oddity a picture can have."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

COLOURS = {
    "red": (205, 40, 45),
    "green": (40, 160, 70),
    "blue": (45, 80, 200),
    "yellow": (235, 200, 50),
    "violet": (140, 60, 170),
    "orange": (235, 130, 40),
}
SHAPES = ("circle", "square", "triangle")
GROUNDS = {"white": (245, 245, 245), "grey": (150, 150, 150), "black": (20, 20, 20)}


def draw(number: int, size: tuple[int, int] = (64, 64)) -> tuple[Image.Image, str]:
    """Draw picture `number` of (width, height) and say what it shows; every number looks different."""
    width, height = size
    colour = list(COLOURS)[number % len(COLOURS)]
    shape = SHAPES[number // len(COLOURS) % len(SHAPES)]
    ground = list(GROUNDS)[number // (len(COLOURS) * len(SHAPES)) % len(GROUNDS)]
    image = Image.new("RGB", size, GROUNDS[ground])
    pen = ImageDraw.Draw(image)
    shift = number // (len(COLOURS) * len(SHAPES) * len(GROUNDS)) % 7
    box = (width // 4 - shift, height // 4, width * 3 // 4 - shift, height * 3 // 4)
    if shape == "circle":
        pen.ellipse(box, fill=COLOURS[colour])
    elif shape == "square":
        pen.rectangle(box, fill=COLOURS[colour])
    else:
        pen.polygon([(box[0], box[3]), (box[2], box[3]), ((box[0] + box[2]) // 2, box[1])], fill=COLOURS[colour])
    return image, f"a {colour} {shape} on {ground} ground"


def make_pictures(
    folder: Path, count: int, size: tuple[int, int] = (64, 64), captions: bool = True, *, first: int = 0
) -> list[Path]:
    """Write `count` different PNG pictures of (width, height) to `folder`, with .txt captions unless told otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(first, first + count):
        image, caption = draw(number, size)
        path = folder / f"picture{number:02d}.png"
        image.save(path)
        if captions:
            path.with_suffix(".txt").write_text(caption, encoding="utf-8")
        paths.append(path)
    return paths


def ramp(width: int = 64, height: int = 32) -> np.ndarray:
    """Make a grey ramp [Y, X], uint8, dark on the left."""
    return np.tile(np.linspace(0, 255, width).round().astype(np.uint8), (height, 1))


def gamma_profile(gamma: float, space: bytes = b"RGB ") -> bytes:
    """Make an ICC profile with sRGB's primaries (or for grey) but a plain power curve."""
    curve = b"curv\x00\x00\x00\x00\x00\x00\x00\x01" + struct.pack(">H", round(gamma * 256)) + b"\x00\x00"
    text = b"plain power\x00"
    description = b"desc\x00\x00\x00\x00" + struct.pack(">I", len(text)) + text + b"\x00" * 78
    tags = {b"desc": description, b"cprt": b"text\x00\x00\x00\x00none\x00", b"wtpt": _xyz(0.9642, 1.0, 0.8249)}
    if space == b"GRAY":
        tags[b"kTRC"] = curve
    else:
        tags |= {b"rXYZ": _xyz(0.43607, 0.22249, 0.01392), b"gXYZ": _xyz(0.38515, 0.71687, 0.09708)}
        tags |= {b"bXYZ": _xyz(0.14307, 0.06061, 0.71410), b"rTRC": curve, b"gTRC": curve, b"bTRC": curve}
    table, data = struct.pack(">I", len(tags)), b""
    start = 128 + 4 + 12 * len(tags)
    for name, value in tags.items():
        padded = value + b"\x00" * (-len(value) % 4)
        table += name + struct.pack(">II", start + len(data), len(value))
        data += padded
    head = struct.pack(">I4sI4s4s4s", start + len(data), b"lcms", 0x02100000, b"mntr", space, b"XYZ ")
    head += struct.pack(">6H4s", 2026, 1, 1, 0, 0, 0, b"acsp") + b"\x00" * 28
    head += struct.pack(">3I", 0xF6D6, 0x10000, 0xD32D)
    return head.ljust(128, b"\x00") + table + data


def _xyz(x: float, y: float, z: float) -> bytes:
    return b"XYZ \x00\x00\x00\x00" + struct.pack(">3i", *(round(value * 65536) for value in (x, y, z)))
