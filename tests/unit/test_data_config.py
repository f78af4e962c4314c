"""The [data] section: sizes and colours are read, and an option that would do nothing is refused by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from trainers.data.config import Concept, DataConfig, parse_area, parse_colour


@pytest.mark.parametrize(
    ("text", "pixels"),
    [("1.0 MP", 1024**2), ("0.25mp", 512**2), ("512px", 512**2), (" 512 ", 512**2), ((1024, 768), 1024 * 768)],
)
def test_sizes(text: str | tuple[int, int], pixels: int) -> None:
    assert parse_area(text) == pixels


@pytest.mark.parametrize("text", ["big", "0px", "12.5px", "-1 MP", (0, 512), "5 GB"])
def test_what_is_no_size_is_refused_with_an_example(text: str | tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"write|size|small"):
        parse_area(text)


def test_colours() -> None:
    assert parse_colour("White") == (255, 255, 255)
    assert parse_colour("#0080fF") == (0, 128, 255)
    with pytest.raises(ValueError, match="#rrggbb"):
        parse_colour("#12345")


def config(concept: dict[str, Any] | None = None, **options: Any) -> DataConfig:
    return DataConfig.model_validate({"concepts": [{"folder": "x", **(concept or {})}], **options})


@pytest.mark.parametrize(
    ("concept", "options", "named"),
    [
        ({"mask_folder": "m"}, {}, "mask_folder"),
        ({"generate": 5}, {}, "generate"),
        ({"prompt": "a dog"}, {}, "prompt"),
        ({"missing_caption": "class"}, {}, "class_word"),
        ({"missing_caption": "trigger"}, {}, "trigger"),
        ({"captions": "template"}, {}, "template"),
        ({"captions": "template", "template": "a {trigger}"}, {}, "trigger"),
        ({"captions": "template", "template": "a {class}"}, {}, "class_word"),
        ({"template": "a {wrong}"}, {}, "wrong"),
        ({"template": "a {"}, {}, "template"),
        ({}, {"keep_tags": 1}, "keep_tags"),
        ({}, {"crop_variants": 3}, "crop_variants"),
        ({}, {"prior_weight": 0.5}, "prior_weight"),
        ({"role": "class"}, {}, "nothing to learn"),
        ({"role": "class", "trigger": "zkw"}, {}, "trigger"),
        ({}, {"area": "huge"}, "huge"),
        ({}, {"background": "beige"}, "beige"),
        ({}, {"validation_share": 0.9}, "validation_share"),
        ({"wrong": 1}, {}, "wrong"),
    ],
)
def test_what_has_no_effect_or_no_sense_is_refused_by_name(
    concept: dict[str, Any], options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValidationError, match=named):
        config(concept, **options)


def test_the_trigger_of_all_concepts_and_of_one() -> None:
    data = DataConfig(
        concepts=[Concept(folder="a"), Concept(folder="b", trigger="own"), Concept(folder="c", role="class")],
        trigger="zkw",
    )
    assert [data.trigger_of(concept) for concept in data.concepts] == ["zkw", "own", None]


def test_a_size_may_be_a_bare_number_or_a_pair() -> None:
    assert config(area=512).area == "512px"
    assert config(area=[1024, 768]).area == (1024, 768)


def test_endings_are_written_with_or_without_dot() -> None:
    assert Concept(folder="x", caption_extensions=["TXT", ".cap"]).caption_extensions == (".txt", ".cap")


def test_every_field_explains_itself() -> None:
    for model in (Concept, DataConfig):
        assert [name for name, field in model.model_fields.items() if not field.description] == []


def test_settings_need_neither_torch_nor_numpy_nor_pillow(root: Path) -> None:
    code = "import sys, trainers.data.config; print([n for n in ('torch', 'numpy', 'PIL') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_whole_scan_needs_no_torch(root: Path) -> None:
    code = "import sys, trainers.data.scan, trainers.data.report_view; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
