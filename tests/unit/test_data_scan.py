"""The scan: ids that do not depend on the place, duplicates, validation, masks, class pictures, a fast second time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.pictures import draw, make_pictures
from trainers.core.errors import Interrupted
from trainers.data import decode_index
from trainers.data.config import Concept, DataConfig
from trainers.data.items import Scan
from trainers.data.scan import scan


def scan_of(base: Path, *concepts: Concept, **options: object) -> Scan:
    return scan(DataConfig(concepts=list(concepts) or [Concept(folder="a")], **options), base)


def test_moving_the_data_keeps_every_id_in_its_order(tmp_path: Path, awkward: Path) -> None:
    make_pictures(tmp_path / "plain" / "a", 12)
    shutil.copytree(tmp_path / "plain" / "a", awkward / "a")
    plain, odd = scan_of(tmp_path / "plain"), scan_of(awkward)
    odd.raise_errors()
    assert [item.id for item in plain.items] == [item.id for item in odd.items]
    assert [item.captions for item in plain.items] == [item.captions for item in odd.items]
    assert len({item.id for item in plain.items}) == 12


def test_equal_pictures_are_kept_told_apart_and_reported(tmp_path: Path) -> None:
    (one,) = make_pictures(tmp_path / "a", 1)
    shutil.copy(one, tmp_path / "a" / "copy.png")
    (tmp_path / "a" / "copy.txt").write_text("the same again", encoding="utf-8")
    make_pictures(tmp_path / "b", 1)
    found = scan_of(tmp_path, Concept(folder="a"), Concept(folder="b"))
    digest = found.items[0].digest
    assert [item.id for item in found.items] == [f"{digest}-0", f"{digest}-0~2", f"{digest}-1"]
    assert found.items[0].name == "copy.png"
    assert found.items[0].captions == ("the same again",)
    assert ["same content" in problem.what for problem in found.warnings] == [True]
    assert not found.errors


def test_a_changed_picture_of_equal_name_size_and_time_is_seen(tmp_path: Path) -> None:
    (path,) = make_pictures(tmp_path / "a", 1)
    old, before = scan(DataConfig(concepts=[Concept(folder="a")]), tmp_path, cache=tmp_path / "cache"), path.stat()
    data = bytearray(path.read_bytes())
    other = draw(5)[0]
    other.save(path)
    padding = len(data) - path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\x00" * max(0, padding))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    new = scan(DataConfig(concepts=[Concept(folder="a")]), tmp_path, cache=tmp_path / "cache")
    assert new.items[0].id != old.items[0].id


def test_the_second_scan_decodes_nothing_and_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_pictures(tmp_path / "a", 5)
    (tmp_path / "a" / "bad.png").write_bytes(b"no picture")
    data = DataConfig(concepts=[Concept(folder="a")], bad_files="skip")
    first = scan(data, tmp_path, cache=tmp_path / "cache")
    decoded = []
    real = decode_index.decode
    monkeypatch.setattr(decode_index, "decode", lambda data: decoded.append(data) or real(data))
    assert scan(data, tmp_path, cache=tmp_path / "cache") == first
    assert decoded == [b"no picture"]


@pytest.mark.parametrize("text", ["", "{", '{"version": "0", "pictures": {}}', "[]", '{"version": null}'])
def test_a_damaged_index_is_as_good_as_none(text: str, tmp_path: Path) -> None:
    make_pictures(tmp_path / "a", 2)
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "pictures.json").write_text(text, encoding="utf-8")
    assert len(scan(DataConfig(concepts=[Concept(folder="a")]), tmp_path, cache=cache).items) == 2


def test_a_share_is_held_out_by_content_the_same_everywhere(tmp_path: Path, awkward: Path) -> None:
    paths = make_pictures(tmp_path / "a", 20)
    shutil.copy(paths[3], tmp_path / "a" / "copy.png")
    shutil.copytree(tmp_path / "a", awkward / "a")
    found = scan_of(tmp_path, validation_share=0.25, trigger="zkw")
    held = {item.digest for item in found.validation}
    assert len(held) == 5
    assert held.isdisjoint(item.digest for item in found.training)
    assert held == {item.digest for item in scan_of(awkward, validation_share=0.25, trigger="zkw").validation}


def test_holding_out_leaves_something_on_each_side(tmp_path: Path) -> None:
    make_pictures(tmp_path / "a", 2)
    found = scan_of(tmp_path, validation_share=0.01)
    assert (len(found.training), len(found.validation)) == (1, 1)


def test_a_validation_folder_and_its_overlap(tmp_path: Path) -> None:
    make_pictures(tmp_path / "a", 3)
    make_pictures(tmp_path / "v", 2, first=2)
    found = scan_of(tmp_path, Concept(folder="a"), Concept(folder="v", role="validation"))
    assert [item.validation for item in found.items] == [False] * 3 + [True] * 2
    assert any("also used for validation" in problem.what for problem in found.warnings)


def test_class_pictures(tmp_path: Path) -> None:
    make_pictures(tmp_path / "a", 2)
    make_pictures(tmp_path / "dogs", 3, captions=False)
    concept = Concept(folder="dogs", role="class", prompt="a photo of a dog", generate=10)
    found = scan_of(tmp_path, Concept(folder="a", repeats=3, weight=0.5), concept, trigger="zkw")
    found.raise_errors()
    mine, others = found.items[:2], found.items[2:]
    assert {(item.role, item.repeats, item.weight, item.trigger) for item in mine} == {("train", 3, 0.5, "zkw")}
    assert {(item.role, item.captions, item.trigger) for item in others} == {("class", ("a photo of a dog",), None)}


def test_class_pictures_yet_to_be_made_are_no_error(tmp_path: Path) -> None:
    make_pictures(tmp_path / "a", 2)
    concept = Concept(folder="not there yet", role="class", prompt="a dog", generate=10)
    assert not scan_of(tmp_path, Concept(folder="a"), concept).errors


def test_folders_that_are_missing_wrong_or_empty_are_all_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "my dogs").mkdir()
    (tmp_path / "file.txt").write_text("x", encoding="utf-8")
    errors = scan_of(tmp_path, *(Concept(folder=name) for name in ("my dog", "file.txt", "my dogs"))).errors
    assert ["does not exist" in errors[0].what, "is a file" in errors[1].what] == [True, True]
    assert '"my dogs"' in errors[0].remedy
    assert "holds no picture" in errors[2].what


def test_windows_paths_in_a_preset(tmp_path: Path) -> None:
    make_pictures(tmp_path / "data" / "cats", 1)
    assert len(scan_of(tmp_path, Concept(folder="data\\cats")).items) == 1


def write_mask(path: Path, size: tuple[int, int] = (64, 64)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, 255).save(path)


@pytest.mark.parametrize("name", ["picture00-mask.png", "picture00-masklabel.png", "PICTURE00-MASK.PNG"])
def test_masks_beside_pictures(name: str, tmp_path: Path) -> None:
    make_pictures(tmp_path / "a", 2)
    write_mask(tmp_path / "a" / name)
    found = scan_of(tmp_path, Concept(folder="a", mask="files"))
    found.raise_errors()
    assert [item.name for item in found.items] == ["picture00.png", "picture01.png"]
    assert found.items[0].mask == tmp_path / "a" / name
    assert found.items[0].mask_digest
    assert found.items[1].mask is None
    assert any("1 of 2 pictures have no mask file" in problem.what for problem in found.warnings)


def test_masks_nobody_asked_for_are_not_trained_on_but_listed(tmp_path: Path) -> None:
    make_pictures(tmp_path / "a", 1)
    write_mask(tmp_path / "a" / "picture00-mask.png")
    found = scan_of(tmp_path)
    assert len(found.items) == 1
    assert [(one.path.name, one.bad) for one in found.left_out] == [("picture00-mask.png", False)]


@pytest.mark.parametrize("folder", ["masks", "a/masks"])
@pytest.mark.parametrize("name", ["picture00.png", "picture00-mask.png"])
def test_masks_in_a_folder(folder: str, name: str, tmp_path: Path) -> None:
    make_pictures(tmp_path / "a", 1)
    write_mask(tmp_path / folder / name, (128, 128))
    found = scan_of(tmp_path, Concept(folder="a", mask="files", mask_folder=folder))
    found.raise_errors()
    assert [item.mask for item in found.items] == [tmp_path / folder / name]


def test_broken_and_misshapen_masks_and_a_missing_folder_are_errors(tmp_path: Path) -> None:
    make_pictures(tmp_path / "a", 2)
    (tmp_path / "a" / "picture00-mask.png").write_bytes(b"")
    write_mask(tmp_path / "a" / "picture01-mask.png", (64, 32))
    make_pictures(tmp_path / "b", 1)
    concepts = (Concept(folder="a", mask="files"), Concept(folder="b", mask="files", mask_folder="none"))
    said = [problem.what for problem in scan_of(tmp_path, *concepts).errors]
    assert said[0].startswith("mask: the file is empty")
    assert said[1] == "the mask has another shape (64x32) than its picture (64x64)"
    assert "cannot be read" in said[2]


def test_masks_from_alpha(tmp_path: Path) -> None:
    make_pictures(tmp_path / "a", 1)
    pixels = np.full((64, 64, 4), 255, np.uint8)
    pixels[:32, :, 3] = 0
    Image.fromarray(pixels).save(tmp_path / "a" / "cut.png")
    found = scan_of(tmp_path, Concept(folder="a", mask="alpha"), trigger="zkw")
    assert [(item.name, item.mask, item.has_alpha) for item in found.items] == [
        ("cut.png", "alpha", True),
        ("picture00.png", None, False),
    ]
    assert any("no transparent part" in problem.what for problem in found.warnings)


def test_progress_and_stopping(tmp_path: Path) -> None:
    make_pictures(tmp_path / "a", 3)
    data, seen = DataConfig(concepts=[Concept(folder="a")]), []
    scan(data, tmp_path, on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (3, 3)
    with pytest.raises(Interrupted):
        scan(data, tmp_path, should_stop=lambda: True)
