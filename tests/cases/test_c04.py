"""C04: broken files are all named with reasons before anything is loaded; "skip" uses exactly the good ones."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.pictures import draw
from trainers.core.errors import UserError
from trainers.data.config import Concept, DataConfig
from trainers.data.decode import PictureError, decode
from trainers.data.scan import scan

BROKEN = ("cut.jpg", "empty.jpg", "note.jpg")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(8):
        draw(number)[0].save(tmp_path / f"good{number}.jpg")
    whole = (tmp_path / "good0.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) * 6 // 10])
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "note.jpg").write_text("remember to buy film", encoding="utf-8")
    return tmp_path


def config(bad_files: str) -> DataConfig:
    return DataConfig(concepts=[Concept(folder=".", captions="filename")], bad_files=bad_files)


def test_c04_stop_names_all_three_with_reasons(folder: Path) -> None:
    found = scan(config("stop"), folder)
    assert len(found.items) == 8
    with pytest.raises(UserError) as caught:
        found.raise_errors()
    reasons = {Path(problem.where).name: problem.what for problem in caught.value.problems}
    assert sorted(reasons) == sorted(BROKEN)
    assert "cut short" in reasons["cut.jpg"]
    assert "0 bytes" in reasons["empty.jpg"]
    assert "text file" in reasons["note.jpg"]
    assert all(problem.remedy for problem in caught.value.problems)


def test_c04_skip_uses_exactly_the_good_ones_and_lists_the_rest(folder: Path) -> None:
    found = scan(config("skip"), folder)
    found.raise_errors()
    assert [item.name for item in found.items] == [f"good{number}.jpg" for number in range(8)]
    assert sorted(one.path.name for one in found.left_out) == sorted(BROKEN)
    assert all(one.bad for one in found.left_out)
    assert len([problem for problem in found.warnings if Path(problem.where).name in BROKEN]) == 3


def test_nothing_but_broken_files_is_an_error_even_with_skip(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    errors = scan(config("skip"), tmp_path).errors
    assert [problem.what for problem in errors] == ["holds no picture that can be read"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "PPM", "TGA", "JPEG2000", "AVIF", "QOI"])
def test_damage_of_any_kind_is_a_reason_and_never_a_crash(kind: str) -> None:
    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[274] = 6
    draw(3)[0].save(buffer, kind, **({"exif": exif.tobytes()} if kind in ("JPEG", "PNG", "WEBP") else {}))
    whole = np.frombuffer(buffer.getvalue(), np.uint8)
    numbers = np.random.default_rng(1)
    for _ in range(60):
        damaged = whole.copy()
        places = numbers.integers(len(whole), size=8)
        damaged[places] = numbers.integers(256, size=8)
        end = len(whole) if numbers.random() < 0.5 else int(numbers.integers(len(whole)))
        with contextlib.suppress(PictureError):
            picture = decode(damaged[:end].tobytes())
            assert picture.pixels.dtype == np.uint8
            assert picture.pixels.shape[2] == 3


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_file_cut_anywhere_is_noticed(kind: str, share: float) -> None:
    noise = np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, kind)
    with pytest.raises(PictureError):
        decode(buffer.getvalue()[: int(buffer.tell() * share)])
