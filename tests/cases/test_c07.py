"""C07: small and near-square pictures: least crop within the budget, and a written rule for what is too small."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pictures import draw
from trainers.data.buckets import fit, make_buckets, plan_buckets
from trainers.data.config import Concept, DataConfig
from trainers.data.report import data_report
from trainers.data.scan import scan

BUDGET = 128 * 128
BUCKETS = make_buckets(BUDGET, 8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, size in enumerate(((131, 135), (40, 40), (300, 90))):
        draw(number, size)[0].save(tmp_path / f"{size[0]}x{size[1]}.png")
    return tmp_path


def config(**options: object) -> DataConfig:
    return DataConfig(concepts=[Concept(folder=".", captions="filename")], area="128px", bucket_step=8, **options)


@pytest.mark.parametrize("rule", ["upscale", "keep", "skip"])
def test_c07_each_picture_by_the_written_rule(folder: Path, rule: str) -> None:
    data = config(small=rule)
    found = scan(data, folder)
    plan = plan_buckets(data, native_area=512 * 512, size_multiple=8)
    fits, skipped = plan.fit_items(found.items)
    by_name = {item.name: fits[item.id] for item in found.items if item.id in fits}
    assert by_name["131x135.png"].bucket == (128, 128)
    assert by_name["300x90.png"].bucket == (88, 176)
    report = data_report(found, fits, left_out=skipped)
    if rule == "skip":
        assert [one.path.name for one in skipped] == ["40x40.png"]
        assert "40x40" in report.left_out[0][1]
        return
    assert not skipped
    assert by_name["40x40.png"].bucket == ((128, 128) if rule == "upscale" else (40, 40))
    changed = {one.picture: one for one in report.changed}
    assert changed["40x40.png"].note == ("upscaled" if rule == "upscale" else "kept small")
    assert changed["40x40.png"].scale == (3.2 if rule == "upscale" else 1.0)
    assert changed["300x90.png"].crop_share == pytest.approx(0.4)


@given(st.integers(64, 4096), st.integers(64, 4096))
def test_the_least_crop_is_chosen_and_the_picture_is_covered(height: int, width: int) -> None:
    found = fit((height, width), BUCKETS)
    assert found is not None
    assert found.bucket in BUCKETS
    assert found.bucket[0] * found.bucket[1] <= BUDGET
    assert min(found.slack) == 0
    assert 0.0 <= found.crop_share < 1.0
    for bucket in BUCKETS:
        scale = max(bucket[0] / height, bucket[1] / width)
        share = 1 - bucket[0] * bucket[1] / (height * width * scale**2)
        assert found.crop_share <= share + 1e-6


@given(st.integers(64, 2048), st.sampled_from([8, 16, 32, 64]), st.floats(1.0, 4.0))
def test_buckets_use_the_budget_and_come_in_pairs(side: int, step: int, ratio: float) -> None:
    buckets = make_buckets(side * side, step, ratio)
    assert set(buckets) == {(width, height) for height, width in buckets}
    for height, width in buckets:
        assert height % step == 0
        assert width % step == 0
        assert max(height, width) <= max(step, ratio * min(height, width))
        bigger = [(height + step, width), (height, width + step)]
        fitting = [(h, w) for h, w in bigger if h * w <= side * side and max(h, w) <= ratio * min(h, w)]
        assert not fitting or not (height * width <= side * side)


def test_one_shape_for_all_when_buckets_are_off() -> None:
    plan = plan_buckets(
        DataConfig(concepts=[Concept(folder=".")], area=(96, 64), buckets=False), native_area=1, size_multiple=8
    )
    assert plan.buckets == ((64, 96),)


def test_barely_too_small_is_not_small() -> None:
    found = fit((125, 125), [(128, 128)], "skip")
    assert found is not None
    assert found.note == ""
