"""Decoding beyond the cases: masks, cutting, and every way a file can disappoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.pictures import draw, ramp
from trainers.data.buckets import fit, make_buckets
from trainers.data.decode import PictureError, decode, open_picture, prepare, read_mask


def test_alpha_is_laid_over_the_background_and_returned(tmp_path: Path) -> None:
    pixels = np.zeros((16, 16, 4), np.uint8)
    pixels[:, :, 0] = 200
    pixels[:, 8:, 3] = 255
    pixels[:, 4:8, 3] = 128
    Image.fromarray(pixels).save(tmp_path / "a.png")
    picture = open_picture(tmp_path / "a.png", "#0000ff")
    assert picture.alpha is not None
    np.testing.assert_array_equal(picture.alpha[0], [0] * 4 + [128] * 4 + [255] * 8)
    assert picture.pixels[0, 0].tolist() == [0, 0, 255]
    assert picture.pixels[0, 5].tolist() == [100, 0, 127]
    assert picture.pixels[0, 15].tolist() == [200, 0, 0]


def test_opaque_alpha_counts_as_none(tmp_path: Path) -> None:
    draw(1)[0].convert("RGBA").save(tmp_path / "a.png")
    assert open_picture(tmp_path / "a.png").alpha is None


def test_a_colour_named_transparent_is_not_shown(tmp_path: Path) -> None:
    image = Image.new("RGB", (16, 16), (255, 0, 255))
    image.paste((10, 20, 30), (8, 0, 16, 16))
    image.save(tmp_path / "a.png", transparency=(255, 0, 255))
    picture = open_picture(tmp_path / "a.png")
    assert picture.pixels[0, 0].tolist() == [255, 255, 255]
    assert picture.pixels[0, 15].tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"hello there, this is a note", "text file"),
        (b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", "HEIC"),
        (bytes(range(200, 256)) * 10, "no picture"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00" * 100, "beginning is damaged"),
    ],
)
def test_a_file_that_is_no_picture_says_what_it_seems_to_be(data: bytes, reason: str) -> None:
    with pytest.raises(PictureError, match=reason):
        decode(data)


def test_bombs_and_slivers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("L", (2000, 3)).save(tmp_path / "sliver.png")
    Image.new("L", (400, 400)).save(tmp_path / "bomb.png")
    with pytest.raises(PictureError, match="2000x3 pixels is too small"):
        open_picture(tmp_path / "sliver.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50_000)
    with pytest.raises(PictureError, match="megapixels"):
        open_picture(tmp_path / "bomb.png")


def test_a_missing_file_is_named_by_the_system(tmp_path: Path) -> None:
    with pytest.raises(PictureError, match="No such file"):
        open_picture(tmp_path / "a.png")


@pytest.mark.parametrize(
    "values", [np.float32([0.0, 0.5, 1.0]), np.float32([0, 127.5, 255]), np.int32([0, 32768, 65535])]
)
def test_float_and_wide_integers_are_scaled(values: np.ndarray, tmp_path: Path) -> None:
    Image.fromarray(np.tile(np.repeat(values, 4), (16, 1))).save(tmp_path / "a.tif")
    pixels = open_picture(tmp_path / "a.tif").pixels
    assert abs(pixels[0, [0, 5, 11], 1].astype(int) - [0, 128, 255]).max() <= 1


def test_prepare_gives_the_bucket_and_keeps_the_middle() -> None:
    buckets = make_buckets(64 * 64, 8)
    pixels = np.asarray(draw(0, (200, 90))[0])
    found = fit((90, 200), buckets)
    assert found is not None
    assert found.bucket == (40, 80) or found.bucket == (40, 88) or found.bucket[0] < found.bucket[1]
    cut = prepare(pixels, found)
    assert cut.shape == (*found.bucket, 3)
    np.testing.assert_array_equal(prepare(pixels, found, flip=True), cut[:, ::-1])


def test_a_cut_is_the_same_as_scaling_first() -> None:
    pixels = np.repeat(ramp(200, 100)[..., None], 3, axis=2)
    found = fit((100, 200), [(64, 64)])
    assert found is not None
    assert (found.resized, found.slack) == ((64, 128), (0, 64))
    whole = np.asarray(Image.fromarray(pixels).resize((128, 64), Image.Resampling.LANCZOS))
    for left in (0, 17, 64):
        cut = prepare(pixels, found, (0, left))
        assert abs(cut.astype(int) - whole[:, left : left + 64]).max() <= 1


def test_a_mask_is_cut_like_its_picture_and_stays_within_its_values(tmp_path: Path) -> None:
    mask = np.zeros((50, 100), np.uint8)
    mask[:, 50:] = 255
    Image.fromarray(mask).save(tmp_path / "m.png")
    found = fit((100, 200), [(64, 64)])
    assert found is not None
    cut = prepare(read_mask(tmp_path / "m.png"), found)
    assert cut.shape == (64, 64)
    assert (cut[:, :31] == 0).all()
    assert (cut[:, 33:] == 255).all()


def test_a_mask_may_be_given_as_alpha(tmp_path: Path) -> None:
    pixels = np.full((16, 16, 4), 255, np.uint8)
    pixels[:8, :, 3] = 0
    Image.fromarray(pixels).save(tmp_path / "m.png")
    mask = read_mask(tmp_path / "m.png")
    assert (mask[:8] == 0).all()
    assert (mask[8:] == 255).all()
