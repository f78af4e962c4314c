"""C10: a caption of several lines is one text; as several captions each line is drawn equally, blanks never."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.pictures import make_pictures
from trainers.data.captions import CaptionSettings, runtime_caption
from trainers.data.config import Concept, DataConfig
from trainers.data.items import Item
from trainers.data.scan import scan


def item_of(folder: Path, text: str, **options: object) -> Item:
    make_pictures(folder, 1, captions=False)
    (folder / "picture00.txt").write_text(text, encoding="utf-8", newline="")
    return scan(DataConfig(concepts=[Concept(folder=".", **options)]), folder).items[0]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_c10_lines_are_joined_by_default(end: str, tmp_path: Path) -> None:
    item = item_of(tmp_path, f"line one{end}{end}line two{end}")
    assert item.captions == ("line one line two",)


def test_c10_each_line_is_drawn_equally_and_a_blank_never(tmp_path: Path) -> None:
    item = item_of(tmp_path, "line one\n\n   \nline two\nline three\n\n", multi_line="choose")
    assert item.captions == ("line one", "line two", "line three")
    settings = CaptionSettings()
    drawn = [runtime_caption(item, 7, visit, settings) for visit in range(300)]
    assert Counter(drawn) == {"line one": 100, "line two": 100, "line three": 100}
    assert drawn[:3] != drawn[3:6] or drawn[3:6] != drawn[6:9] or drawn[6:9] != drawn[9:12]
    assert drawn == [runtime_caption(item, 7, visit, settings) for visit in range(300)]
    assert drawn != [runtime_caption(item, 8, visit, settings) for visit in range(300)]


def test_the_trigger_is_in_every_line(tmp_path: Path) -> None:
    item = item_of(tmp_path, "a dog\nzkw on grass", multi_line="choose", trigger="zkw")
    assert item.captions == ("zkw, a dog", "zkw on grass")


def test_nothing_of_a_caption_is_lost(tmp_path: Path) -> None:
    text = 'Wide shot (35mm), 1.5:1 -- "OPEN", [neon], ünïcode 猫; blue_eyes, :3, a,b'
    assert item_of(tmp_path, text).captions == (text,)
