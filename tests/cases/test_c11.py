"""C11: missing, empty and misnamed captions are counted and named; without a rule nothing starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pictures import draw
from trainers.core.errors import UserError
from trainers.data.captions import count_trigger
from trainers.data.config import Concept, DataConfig
from trainers.data.items import Scan
from trainers.data.report import data_report
from trainers.data.scan import scan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate("abcd"):
        draw(number)[0].save(tmp_path / f"{name}.png")
    (tmp_path / "a.txt").write_text("a dog on grass", encoding="utf-8")
    (tmp_path / "b.caption").write_text("a dog on sand", encoding="utf-8")
    (tmp_path / "c.txt").write_text(" \n", encoding="utf-8")
    return tmp_path


def scanned(folder: Path, **options: object) -> Scan:
    return scan(DataConfig(concepts=[Concept(folder=".", caption_extensions=["txt"], **options)]), folder)


def test_c11_stops_with_counts_names_and_a_hint(folder: Path) -> None:
    found = scanned(folder)
    with pytest.raises(UserError) as caught:
        found.raise_errors()
    (problem,) = caught.value.problems
    assert "1 found, 1 empty, 2 missing (c.png, b.png, d.png)" in problem.what
    assert "1 .caption file exists" in problem.remedy
    row = data_report(found, {}).captions[0]
    assert (row.found, row.empty, row.missing) == (1, 1, 2)


def test_c11_with_a_trigger_all_four_hold_it_exactly_once(folder: Path) -> None:
    found = scanned(folder, trigger="zkw")
    found.raise_errors()
    assert [item.captions for item in found.items] == [("zkw, a dog on grass",), ("zkw",), ("zkw",), ("zkw",)]
    assert all(count_trigger(item.captions[0], "zkw") == 1 for item in found.items)
    (warning,) = found.warnings
    assert "1 found, 1 empty, 2 missing" in warning.what
    assert '"zkw"' in warning.what
    assert ".caption" in warning.remedy


@pytest.mark.parametrize(
    ("options", "caption"),
    [
        ({"missing_caption": "empty"}, ""),
        ({"missing_caption": "filename"}, "d"),
        ({"missing_caption": "class", "class_word": "dog"}, "dog"),
        ({"missing_caption": "trigger", "trigger": "zkw", "class_word": "dog"}, "zkw dog"),
        ({"missing_caption": "template", "trigger": "zkw", "class_word": "dog"}, "a photo of zkw dog"),
        ({"missing_caption": "template", "template": "{filename} in {folder}"}, "d in my dogs"),
    ],
)
def test_every_rule_says_what_it_does(
    options: dict[str, str], caption: str, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = folder.rename(tmp_path_factory.mktemp("moved") / "10_my dogs")
    data = DataConfig(concepts=[Concept(folder=str(place), caption_extensions=[".txt"], **options)])
    found = scan(data, place.parent)
    found.raise_errors()
    assert found.items[3].captions == (caption,)
    assert any(f'"{options["missing_caption"]}"' in problem.what for problem in found.warnings)


def test_stop_means_stop_even_with_a_trigger(folder: Path) -> None:
    assert scanned(folder, trigger="zkw", missing_caption="stop").errors


def test_by_default_all_usual_endings_are_read(folder: Path) -> None:
    found = scan(DataConfig(concepts=[Concept(folder=".")]), folder)
    assert [item.caption_state for item in found.items] == ["found", "found", "empty", "missing"]


def test_a_caption_of_another_name_is_pointed_out(folder: Path) -> None:
    (folder / "dd.txt").write_text("a dog", encoding="utf-8")
    assert "dd.txt" in scanned(folder).errors[0].remedy


def test_class_pictures_never_hold_the_trigger(folder: Path) -> None:
    data = DataConfig(
        concepts=[
            Concept(folder=".", caption_extensions=[".txt"]),
            Concept(folder=".", caption_extensions=[".txt"], role="class", class_word="dog"),
        ],
        trigger="zkw",
    )
    found = scan(data, folder)
    found.raise_errors()
    captions = [item.captions[0] for item in found.items if item.role == "class"]
    assert captions == ["a dog on grass", "a photo of a dog", "a photo of a dog", "a photo of a dog"]
