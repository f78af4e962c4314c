"""The data report: what it counts, how it reads, and that it is plain data."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from tests.pictures import draw, make_pictures
from trainers.data.buckets import plan_buckets
from trainers.data.captions import CaptionSettings
from trainers.data.config import Concept, DataConfig
from trainers.data.items import Scan
from trainers.data.order import Order, OrderItem
from trainers.data.report import DataReport, data_report
from trainers.data.report_view import render
from trainers.data.scan import scan


class Words:
    """Counts words."""

    def __init__(self, fits: int) -> None:
        self.fits = fits

    def __call__(self, caption: str) -> tuple[int, int]:
        return len(caption.split()), self.fits

    def shown(self, caption: str) -> tuple[str, str]:
        starts = [found.start() for found in re.finditer(r"\S+", caption)]
        place = starts[self.fits] if len(starts) > self.fits else len(caption)
        return caption[:place], caption[place:]


def report_of(folder: Path, data: DataConfig, **options: object) -> tuple[Scan, DataReport]:
    found = scan(data, folder)
    fits, skipped = plan_buckets(data, native_area=64 * 64, size_multiple=8).fit_items(found.items)
    used = [item for item in found.training if item.id in fits]
    items = [OrderItem(item.id, fits[item.id].bucket, item.repeats, item.weight, item.role) for item in used]
    order = Order(items, batch=data.batch, seed=1, prior_weight=data.prior_weight)
    return found, data_report(found, fits, order, left_out=skipped, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_pictures(tmp_path / "a", 3)
    for number, size in enumerate(((80, 48), (48, 80), (96, 40), (40, 96)), start=3):
        draw(number, size)[0].save(tmp_path / "a" / f"picture{number:02d}.png")
        (tmp_path / "a" / f"picture{number:02d}.txt").write_text(draw(number)[1] + " [wide]", encoding="utf-8")
    return tmp_path


def printed(report: DataReport) -> str:
    console = Console(width=110, file=io.StringIO(), color_system=None)
    console.print(render(report))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_c18_the_table_shows_all_seven_and_the_short_groups(folder: Path) -> None:
    _, report = report_of(folder, DataConfig(concepts=[Concept(folder="a")], batch=2, max_ratio=3))
    assert (report.training, report.samples_per_epoch, report.steps_per_epoch) == (7, 7, 4)
    assert sum(row.pictures for row in report.buckets) == 7
    assert sum(row.samples or 0 for row in report.buckets) == 7
    assert len(report.buckets) == 5
    assert sum(row.short or 0 for row in report.buckets) == 5
    assert sum(row.groups or 0 for row in report.buckets) == 6
    text = printed(report)
    assert "7 training pictures" in text
    assert "7 samples in 4 steps of 2" in text
    assert "64 x 64" in text


def test_captions_cut_per_encoder_and_examples_as_encoded(folder: Path) -> None:
    data = DataConfig(concepts=[Concept(folder="a")], trigger="zkw", shuffle_tags=True, keep_tags=1)
    captions = [item.captions[0] for item in scan(data, folder).items]
    first, longest = captions[0], max(len(caption.split()) for caption in captions if "[wide]" not in caption)
    settings = CaptionSettings(shuffle=True, keep=1)
    _, report = report_of(folder, data, counters={"text_encoder": Words(longest)}, settings=settings)
    assert report.captions[0].cut == {"text_encoder": 4}
    assert len(report.examples) == 3
    assert report.examples[0].caption == first
    assert report.examples[0].tokens == {"text_encoder": (len(first.split()), longest)}
    text = printed(report)
    assert "cut by text_encoder" in text
    assert f"{len(first.split())}/{longest}" in text


def test_each_cut_caption_is_named_with_what_is_never_seen(folder: Path) -> None:
    (folder / "a" / "picture01.txt").write_text("one two [three] four", encoding="utf-8")
    (folder / "a" / "picture02.txt").write_text("one\ntwo three", encoding="utf-8")
    for number in (0, *range(3, 7)):
        (folder / "a" / f"picture{number:02d}.txt").write_text("one", encoding="utf-8")
    data = DataConfig(concepts=[Concept(folder="a")])
    _, report = report_of(folder, data, counters={"text_encoder": Words(2), "text_encoder_2": Words(3)})
    rows = {row.encoder: (row.fits, row.captions, row.least, row.median, row.most, row.cut) for row in report.tokens}
    assert rows == {"text_encoder": (2, 7, 1, 1, 4, 2), "text_encoder_2": (3, 7, 1, 1, 4, 1)}
    assert [(one.picture, one.encoder, one.has, one.fits, one.cut) for one in report.cut] == [
        ("picture01.png", "text_encoder", 4, 2, "[three] four"),
        ("picture01.png", "text_encoder_2", 4, 3, "four"),
        ("picture02.png", "text_encoder", 3, 2, "three"),
    ]
    text = printed(report)
    for word in ("Captions that are cut (3)", "one two | [three] four", "4/2", "text_encoder_2 1/3"):
        assert word in text
    document = json.loads(json.dumps(report.as_json()))
    assert document["cut"][0]["kept"] == "one two "
    assert document["tokens"][1]["fits"] == 3


def test_everything_left_out_doubtful_or_wrong_is_in_it(folder: Path) -> None:
    (folder / "a" / "bad.png").write_bytes(b"")
    make_pictures(folder / "a", 1, captions=False)
    (folder / "a" / "copy.png").write_bytes((folder / "a" / "picture00.png").read_bytes())
    draw(9, (20, 20))[0].save(folder / "a" / "tiny.png")
    data = DataConfig(concepts=[Concept(folder="a", missing_caption="empty")], small="skip", max_ratio=3)
    _, report = report_of(folder, data)
    assert report.duplicates == (("copy.png", "picture00.png"),)
    assert sorted(Path(path).name for path, _, _ in report.left_out) == ["bad.png", "tiny.png"]
    text = " ".join(printed(report).split())  # wherever the lines break
    for word in (
        "0 bytes",
        "smaller than the training size",
        "all are kept",
        "Errors (1)",
        "2 missing",
        "(empty)",
    ):
        assert word in text


def test_it_is_plain_data(folder: Path) -> None:
    _, report = report_of(folder, DataConfig(concepts=[Concept(folder="a")], batch=2, max_ratio=3))
    document = json.loads(json.dumps(report.as_json()))
    assert document["buckets"][0]["pictures"] == 3
    assert document["captions"][0]["found"] == 7


def test_square_brackets_are_shown_as_they_are(folder: Path) -> None:
    for path in (folder / "a").glob("*.txt"):
        path.write_text("a [bold]dog[/bold]", encoding="utf-8")
    assert "a [bold]dog[/bold]" in printed(report_of(folder, DataConfig(concepts=[Concept(folder="a")]))[1])


def test_nothing_at_all_can_be_reported(tmp_path: Path) -> None:
    found = scan(DataConfig(concepts=[Concept(folder="none")]), tmp_path)
    assert "does not exist" in printed(data_report(found, {}))
