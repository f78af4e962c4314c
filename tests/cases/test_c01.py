"""C01: a picture stored sideways is the picture a person sees: all eight orientations, in each format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trainers.data.buckets import fit, make_buckets
from trainers.data.config import Concept, DataConfig
from trainers.data.decode import open_picture
from trainers.data.items import Scan
from trainers.data.scan import scan

# How the stored array is made from the upright one [Y, X, ...], by EXIF orientation.
STORED = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.transpose(1, 0, 2),
    6: lambda upright: np.rot90(upright, 1),
    7: lambda upright: upright[::-1, ::-1].transpose(1, 0, 2),
    8: lambda upright: np.rot90(upright, -1),
}


def upright() -> np.ndarray:
    """A 32x64 picture (width x height), four corners of different colours."""
    pixels = np.zeros((64, 32, 3), np.uint8)
    pixels[:32, :16], pixels[:32, 16:] = (220, 30, 30), (30, 220, 30)
    pixels[32:, :16], pixels[32:, 16:] = (30, 30, 220), (220, 220, 30)
    return pixels


def write(path: Path, stored: np.ndarray, orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    options = {".jpg": {"quality": 100, "subsampling": 0}, ".webp": {"lossless": True}}.get(path.suffix, {})
    Image.fromarray(np.ascontiguousarray(stored)).save(path, exif=exif.tobytes(), **options)


def scan_one(folder: Path) -> Scan:
    return scan(DataConfig(concepts=[Concept(folder=str(folder), missing_caption="empty")]), folder)


@pytest.mark.parametrize("ending", [".jpg", ".png", ".webp", ".tif"])
@pytest.mark.parametrize("orientation", STORED)
def test_every_orientation_is_seen_upright(orientation: int, ending: str, tmp_path: Path) -> None:
    write(tmp_path / f"a{ending}", STORED[orientation](upright()), orientation)
    item = scan_one(tmp_path).items[0]
    assert item.size == (64, 32)
    pixels = open_picture(item.path).pixels
    assert abs(pixels.astype(int) - upright()).max() <= 3


def test_c01_tag_six_is_portrait_with_red_on_top(tmp_path: Path) -> None:
    stored = np.full((32, 64, 3), 255, np.uint8)
    stored[:, :32] = (255, 0, 0)
    write(tmp_path / "a.jpg", stored, 6)
    real = tmp_path / "real"
    real.mkdir()
    write(real / "a.jpg", np.rot90(stored, -1), 1)
    item = scan_one(tmp_path).items[0]
    found = fit(item.size, make_buckets(64 * 64, 8))
    assert found is not None
    assert found.bucket[0] > found.bucket[1]
    pixels = open_picture(item.path).pixels
    assert pixels.shape == (64, 32, 3)
    assert pixels[:28, :, 1].max() < 40
    assert pixels[36:, :, 1].min() > 215
    assert abs(pixels.astype(int) - open_picture(real / "a.jpg").pixels).max() <= 3


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_broken_exif_is_no_reason_to_stop(tmp_path: Path) -> None:
    Image.fromarray(upright()).save(tmp_path / "a.jpg", exif=b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\xff\xff\x01\x12")
    found = scan_one(tmp_path)
    assert not found.errors
    assert found.items[0].size == (64, 32)
