"""C05: what systems, notebooks and people leave in folders is not taken for pictures; nothing else is missed."""

from __future__ import annotations

from pathlib import Path

from tests.pictures import draw
from trainers.data.config import Concept, DataConfig
from trainers.data.scan import scan


def names_of(folder: Path, **options: object) -> list[str]:
    found = scan(DataConfig(concepts=[Concept(folder=".", captions="filename", **options)]), folder)
    found.raise_errors()
    return [item.name for item in found.items]


def test_c05_three_pictures_among_junk(tmp_path: Path) -> None:
    for number, name in enumerate(("A.JPG", "b.webp", "c.png")):
        draw(number)[0].save(tmp_path / name)
    checkpoints = tmp_path / ".ipynb_checkpoints"
    checkpoints.mkdir()
    draw(3)[0].save(checkpoints / "A-checkpoint.JPG")
    (tmp_path / "._A.JPG").write_bytes(b"\x00\x05\x16\x07")
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", "notes.md"):
        (tmp_path / name).write_bytes(b"junk")
    assert names_of(tmp_path) == ["A.JPG", "b.webp", "c.png"]


def test_system_folders_are_passed_over_and_ordinary_ones_are_not(tmp_path: Path) -> None:
    for place in ("__MACOSX", "@eaDir", "$RECYCLE.BIN", ".thumbnails", "more", "more/deep"):
        (tmp_path / place).mkdir(parents=True)
        draw(0)[0].save(tmp_path / place / "x.png")
    assert names_of(tmp_path) == ["more/deep/x.png", "more/x.png"]


def test_only_the_folder_itself_when_asked(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    draw(0)[0].save(tmp_path / "a.png")
    draw(1)[0].save(tmp_path / "more" / "b.png")
    assert names_of(tmp_path, recursive=False) == ["a.png"]


def test_endings_in_any_case_and_of_any_kind(tmp_path: Path) -> None:
    endings = ("jpg", "JPEG", "Png", "WEBP", "bmp", "TIF", "tiff", "gif", "jfif")
    for number, ending in enumerate(endings):
        kind = "JPEG" if ending == "jfif" else None
        draw(number)[0].save(tmp_path / f"{number}.{ending}", format=kind)
    assert names_of(tmp_path) == [f"{number}.{ending}" for number, ending in enumerate(endings)]


def test_a_picture_under_another_kinds_name_is_read_by_its_content(tmp_path: Path) -> None:
    draw(0)[0].save(tmp_path / "really-a-png.jpg", format="PNG")
    assert names_of(tmp_path) == ["really-a-png.jpg"]


def test_names_sort_as_people_count(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        draw(number)[0].save(tmp_path / f"shot {number}.png")
    assert names_of(tmp_path) == ["shot 1.png", "shot 2.png", "shot 10.png"]


def test_phone_pictures_that_cannot_be_read_are_not_lost_in_silence(tmp_path: Path) -> None:
    draw(0)[0].save(tmp_path / "a.png")
    (tmp_path / "IMG_1.HEIC").write_bytes(b"\x00\x00\x00\x18ftypheic")
    (tmp_path / "clip.mp4").write_bytes(b"\x00")
    found = scan(DataConfig(concepts=[Concept(folder=".", captions="filename")]), tmp_path)
    assert [problem.what for problem in found.errors] == ["HEIC pictures cannot be read"]
    assert sorted(one.path.name for one in found.left_out) == ["IMG_1.HEIC", "clip.mp4"]


def test_linked_folders_are_entered_once(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    draw(0)[0].save(tmp_path / "real" / "a.png")
    (tmp_path / "real" / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert names_of(tmp_path) == ["real/a.png"]
