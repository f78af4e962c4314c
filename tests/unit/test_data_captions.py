"""Captions: the trigger exactly once, templates, tags that vary per visit, metadata in every usual form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pictures import make_pictures
from trainers.data.captions import (
    CaptionSettings,
    count_trigger,
    ensure_trigger,
    fill_template,
    one_line,
    runtime_caption,
    words_of_folder,
    words_of_name,
)
from trainers.data.config import Concept, DataConfig
from trainers.data.items import Item, Scan
from trainers.data.scan import scan


def item(*captions: str, trigger: str | None = None, id: str = "x") -> Item:
    return Item(id, Path("x.png"), "x.png", "00", 0, "train", (8, 8), captions, trigger=trigger)


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("", "zkw"),
        ("a dog", "zkw, a dog"),
        ("a zkw dog", "a zkw dog"),
        ("ZKW dog", "zkw dog"),
        ("zkw dog, zkw, red", "zkw dog, red"),
        ("a Zkw next to a zkw", "a zkw next to a"),
        ("zkwx and xzkw", "zkw, zkwx and xzkw"),
        ("my_zkw", "zkw, my_zkw"),
        ("zkw-style, (zkw:1.2)", "zkw-style, (:1.2)"),
        ("photo of [trigger] at home", "photo of zkw at home"),
        ("photo of {Trigger}, zkw", "photo of zkw"),
    ],
)
def test_the_trigger_is_there_exactly_once(caption: str, expected: str) -> None:
    assert ensure_trigger(caption, "zkw") == expected
    assert count_trigger(expected, "zkw") == 1


@pytest.mark.parametrize(
    ("trigger", "caption", "expected"),
    [
        ("jane doe", "Jane  Doe smiles", "jane doe smiles"),
        ("猫ちゃん", "黒い猫ちゃんです", "黒い猫ちゃんです"),
        ("猫", "犬です", "猫, 犬です"),
        ("café", "the cafe\u0301 at night", "the café at night"),
        ("<zkw>", "a <ZKW> dog", "a <zkw> dog"),
        ("c++", "c++ and c+++", "c++ and +"),
    ],
)
def test_triggers_of_every_script(trigger: str, caption: str, expected: str) -> None:
    assert ensure_trigger(one_line(caption), trigger) == expected


@given(st.text(alphabet="zkw ZKW,ab-_\n[].", max_size=40))
def test_any_caption_ends_with_one_trigger(caption: str) -> None:
    once = ensure_trigger(caption, "zkw")
    assert count_trigger(once, "zkw") == 1
    assert ensure_trigger(once, "zkw") == once


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a_red-cat (3)", "a red cat"),
        ("blue dog 12", "blue dog"),
        ("IMG_0012", "IMG"),
        ("2024", "2024"),
        ("猫_01", "猫"),
    ],
)
def test_words_of_a_file_name(name: str, words: str) -> None:
    assert words_of_name(name) == words


def test_words_of_a_folder_leave_the_repeats_out() -> None:
    assert words_of_folder("10_jane doe") == "jane doe"


def test_an_empty_part_of_a_template_leaves_no_gap() -> None:
    assert fill_template("a photo of {trigger} {class}, {filename}", {"class": "dog"}) == "a photo of dog"


TAGS = "zkw, one, two, three, four, five"


def test_tags_shuffle_by_key_and_keep_the_first() -> None:
    settings = CaptionSettings(shuffle=True, keep=2)
    one = item(TAGS, trigger="zkw")
    seen = [runtime_caption(one, 1, visit, settings) for visit in range(30)]
    assert all(caption.startswith("zkw, one, ") for caption in seen)
    assert all(sorted(caption.split(", ")) == sorted(TAGS.split(", ")) for caption in seen)
    assert len(set(seen)) > 10
    assert seen == [runtime_caption(one, 1, visit, settings) for visit in range(30)]
    assert seen != [runtime_caption(item(TAGS, trigger="zkw", id="y"), 1, visit, settings) for visit in range(30)]


def test_tags_are_dropped_at_the_asked_rate_but_never_the_trigger_or_the_kept() -> None:
    settings = CaptionSettings(dropout=0.5)
    one = item("one, two, ZKW dog, three, four", trigger="zkw")
    seen = [runtime_caption(one, 1, visit, settings).split(", ") for visit in range(400)]
    assert all("ZKW dog" in tags for tags in seen)
    share = sum(len(tags) - 1 for tags in seen) / (400 * 4)
    assert 0.45 < share < 0.55
    kept = CaptionSettings(dropout=1.0, keep=2)
    assert runtime_caption(item(TAGS), 1, 0, kept) == "zkw, one"


def test_another_separator() -> None:
    settings = CaptionSettings(shuffle=True, separator=";")
    assert sorted(runtime_caption(item("a, b; c"), 1, 0, settings).split("; ")) == ["a, b", "c"]


def test_without_settings_the_caption_is_left_as_it_is() -> None:
    assert runtime_caption(item("a,b ,  c"), 1, 5, CaptionSettings()) == "a,b ,  c"


def scan_with(folder: Path, files: dict[str, str], **options: object) -> Scan:
    make_pictures(folder, 2, captions=False)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return scan(DataConfig(concepts=[Concept(folder=".", **options)]), folder)


ROWS = [{"file_name": "picture00.png", "text": "one, with comma"}, {"file_name": "picture01.png", "text": "two"}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metadata.jsonl", "\n".join(map(json.dumps, ROWS))),
        ("metadata.csv", 'file_name,text\npicture00.png,"one, with comma"\npicture01.png,two\n'),
        ("captions.csv", "image;caption\npicture00.png;one, with comma\npicture01.png;two\n"),
        ("captions.json", json.dumps({row["file_name"]: row["text"] for row in ROWS})),
        ("metadata.json", json.dumps(ROWS)),
        (
            "meta_cap.json",
            json.dumps({"picture00": {"caption": "one", "tags": "with comma"}, "picture01": {"tags": "two"}}),
        ),
        (
            "METADATA.JSONL",
            json.dumps({"image": "PICTURE00.PNG", "caption": "one, with comma"}) + "\n" + json.dumps(ROWS[1]),
        ),
        (
            "metadata.jsonl",
            "\n".join(json.dumps({**row, "file_name": "C:\\data\\" + row["file_name"]}) for row in ROWS),
        ),
    ],
)
@pytest.mark.parametrize("source", ["files", "metadata"])
def test_metadata_in_every_usual_form(name: str, text: str, source: str, tmp_path: Path) -> None:
    found = scan_with(tmp_path, {name: text}, captions=source)
    found.raise_errors()
    assert [item.captions for item in found.items] == [("one, with comma",), ("two",)]


def test_a_file_beside_the_picture_wins_over_metadata(tmp_path: Path) -> None:
    files = {"metadata.jsonl": "\n".join(map(json.dumps, ROWS)), "picture01.txt": "mine"}
    assert [item.captions[0] for item in scan_with(tmp_path, files).items] == ["one, with comma", "mine"]


def test_metadata_of_the_top_names_pictures_of_folders_inside(tmp_path: Path) -> None:
    for place in ("cats", "dogs"):
        make_pictures(tmp_path / place, 1, captions=False)
    rows = [{"file_name": f"{place}/picture00.png", "text": place} for place in ("cats", "dogs")]
    (tmp_path / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = scan(DataConfig(concepts=[Concept(folder=".")]), tmp_path)
    assert [item.captions for item in found.items] == [("cats",), ("dogs",)]


@pytest.mark.parametrize(
    ("text", "captions"),
    [
        ('{"caption": "a dog"}', ("a dog",)),
        ('{"tags": ["a dog", "grass"]}', ("a dog, grass",)),
        ('["a dog", "a hound"]', ("a dog", "a hound")),
        ('"a dog"', ("a dog",)),
    ],
)
def test_a_json_file_beside_a_picture(text: str, captions: tuple[str, ...], tmp_path: Path) -> None:
    found = scan_with(tmp_path, {"picture00.json": text, "picture01.png.txt": "two"})
    assert [item.captions for item in found.items] == [captions, ("two",)]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("metadata.jsonl", '{"file_name": "a.png"\n', "line 1 is no JSON"),
        ("metadata.jsonl", '{"text": "a dog"}', "line 1 names no picture"),
        ("metadata.csv", "a,b\n1,2\n", "heading"),
        ("captions.json", "{", "cannot be used"),
        ("picture00.json", "{", "is no JSON"),
        ("picture00.json", '{"width": 3}', "has no caption"),
    ],
)
def test_a_broken_caption_file_is_named(name: str, text: str, said: str, tmp_path: Path) -> None:
    errors = scan_with(tmp_path, {name: text}).errors
    assert any(name in problem.where and said in problem.what for problem in errors)


def test_a_place_for_a_trigger_that_is_not_set_is_named(tmp_path: Path) -> None:
    found = scan_with(tmp_path, {"picture00.txt": "a [trigger] dog", "picture01.txt": "two"})
    assert found.items[0].captions == ("a dog",)
    assert ["picture00.png" in problem.where for problem in found.warnings] == [True]


def test_prefix_and_suffix(tmp_path: Path) -> None:
    files = {"picture00.txt": "a dog", "picture01.txt": "two"}
    found = scan_with(tmp_path, files, prefix="best,", suffix=", sharp", trigger="zkw")
    assert found.items[0].captions == ("zkw, best, a dog, sharp",)


@pytest.mark.parametrize(
    ("source", "caption"), [("filename", "picture00"), ("folder", "jane doe"), ("template", "zkw!")]
)
def test_captions_made_from_names(source: str, caption: str, tmp_path: Path) -> None:
    make_pictures(tmp_path / "10_jane doe", 1)
    options = {"trigger": "zkw", "template": "{trigger}!"} if source == "template" else {}
    found = scan(DataConfig(concepts=[Concept(folder="10_jane doe", captions=source, **options)]), tmp_path)
    assert found.items[0].captions == (caption,)
    assert found.items[0].caption_state == "made"
