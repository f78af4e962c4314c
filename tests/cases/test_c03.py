"""C03: sixteen bits, alpha, palettes, CMYK, foreign colour profiles and animations look as they do to a person."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from tests.pictures import draw, gamma_profile, ramp
from trainers.data.config import Concept, DataConfig
from trainers.data.decode import open_picture
from trainers.data.scan import scan

GAMMA = 1.8


def srgb_to_gamma(levels: np.ndarray) -> np.ndarray:
    """Write sRGB levels in a profile of a plain power curve."""
    share = levels / 255.0
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return np.rint(linear ** (1 / GAMMA) * 255).astype(np.uint8)


def sixteen_bit(path: Path) -> None:
    Image.fromarray(ramp().astype(np.uint16) * 257).save(path.with_suffix(".png"))


def sixteen_bit_tiff(path: Path) -> None:
    Image.fromarray(ramp().astype(">u2") * 257).save(path.with_suffix(".tif"))


def grey_alpha(path: Path) -> None:
    Image.merge("LA", (Image.fromarray(ramp()), Image.new("L", (64, 32), 255))).save(path.with_suffix(".png"))


def palette_with_clear_index(path: Path) -> None:
    indices = ramp()
    indices[indices == 255] = 7  # what is white in the ramp is transparent here, and hides a loud colour
    palette = [value for level in range(256) for value in (level, level, level)]
    palette[21:24] = [255, 0, 255]
    image = Image.fromarray(indices)
    image.putpalette(palette)
    image.save(path.with_suffix(".png"), transparency=7)


def cmyk(path: Path) -> None:
    Image.fromarray(ramp()).convert("RGB").convert("CMYK").save(path.with_suffix(".jpg"), quality=100)


def foreign_profile(path: Path) -> None:
    image = Image.fromarray(srgb_to_gamma(ramp())).convert("RGB")
    image.save(path.with_suffix(".png"), icc_profile=gamma_profile(GAMMA))


def foreign_grey_profile(path: Path) -> None:
    Image.fromarray(srgb_to_gamma(ramp())).save(path.with_suffix(".png"), icc_profile=gamma_profile(GAMMA, b"GRAY"))


def grey_with_colour_profile(path: Path) -> None:
    Image.fromarray(srgb_to_gamma(ramp())).save(path.with_suffix(".png"), icc_profile=gamma_profile(GAMMA))


def alpha_and_profile(path: Path) -> None:
    image = Image.fromarray(srgb_to_gamma(ramp())).convert("RGBA")
    image.save(path.with_suffix(".png"), icc_profile=gamma_profile(GAMMA))


def srgb_profile(path: Path) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    Image.fromarray(ramp()).convert("RGB").save(path.with_suffix(".png"), icc_profile=profile)


def lossless_webp(path: Path) -> None:
    Image.fromarray(ramp()).convert("RGB").save(path.with_suffix(".webp"), lossless=True)


def bitmap(path: Path) -> None:
    Image.fromarray(ramp()).save(path.with_suffix(".bmp"))


KINDS: list[Callable[[Path], None]] = [
    sixteen_bit,
    sixteen_bit_tiff,
    grey_alpha,
    palette_with_clear_index,
    cmyk,
    foreign_profile,
    foreign_grey_profile,
    grey_with_colour_profile,
    alpha_and_profile,
    srgb_profile,
    lossless_webp,
    bitmap,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_c03_every_kind_shows_the_same_ramp(kind: Callable[[Path], None], tmp_path: Path) -> None:
    kind(tmp_path / "ramp")
    found = scan(DataConfig(concepts=[Concept(folder=".", missing_caption="empty")]), tmp_path)
    assert not found.errors
    assert not [problem for problem in found.warnings if "profile" in problem.what or "frames" in problem.what]
    pixels = open_picture(found.items[0].path).pixels
    assert pixels.shape == (32, 64, 3)
    assert abs(pixels.astype(int) - ramp()[..., None]).max() <= 2


@pytest.mark.parametrize("ending", [".gif", ".webp", ".png", ".tif"])
def test_c03_an_animation_is_its_first_frame_and_says_so(ending: str, tmp_path: Path) -> None:
    frames = [Image.new("RGB", (32, 32), colour) for colour in ((255, 0, 0), (0, 0, 255))]
    options = {"lossless": True} if ending == ".webp" else {}
    frames[0].save(tmp_path / f"moving{ending}", save_all=True, append_images=frames[1:], **options)
    found = scan(DataConfig(concepts=[Concept(folder=".", missing_caption="empty")]), tmp_path)
    assert len(found.items) == 1
    said = [problem for problem in found.warnings if "only the first is used" in problem.what]
    assert len(said) == 1
    assert f"moving{ending}" in said[0].where
    assert abs(open_picture(found.items[0].path).pixels[0, 0].astype(int) - [255, 0, 0]).max() <= 2


def test_a_phone_picture_with_a_second_one_inside_is_no_animation(tmp_path: Path) -> None:
    draw(0)[0].save(tmp_path / "phone.jpg", format="MPO", save_all=True, append_images=[draw(1)[0]])
    with Image.open(tmp_path / "phone.jpg") as image:
        assert image.format == "MPO"
    found = scan(DataConfig(concepts=[Concept(folder=".", missing_caption="empty")]), tmp_path)
    assert not [problem for problem in found.warnings if "frames" in problem.what]


def test_a_broken_profile_is_named_and_the_picture_kept(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    draw(0)[0].save(buffer, "PNG", icc_profile=b"this is no profile" * 10)
    (tmp_path / "odd.png").write_bytes(buffer.getvalue())
    found = scan(DataConfig(concepts=[Concept(folder=".", missing_caption="empty")]), tmp_path)
    assert len(found.items) == 1
    assert any("odd.png" in problem.where and "profile" in problem.what for problem in found.warnings)
