"""C35, first half: a VAE overflows on one picture. It is encoded in float32 or named; all that is cached is finite."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.fake_family import FakeFamily, FakeVae, scanned
from trainers.core.errors import UserError
from trainers.data.cache import Cache
from trainers.data.encode import Filled, fill_latents
from trainers.data.keys import LatentRule

RULE = LatentRule("fake", "vae0", dtype="float16")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name, level in (("dark", 20), ("bright", 250), ("grey", 120)):
        Image.new("RGB", (64, 64), (level, level, level)).save(folder / f"{name}.png")
        (folder / f"{name}.txt").write_text(name)
    return folder


@pytest.mark.parametrize("batch", [1, 3])
def test_c35_overflow_in_half_precision_is_encoded_in_float32(pictures: Path, tmp_path: Path, batch: int) -> None:
    cache, vae = Cache(tmp_path / "cache"), FakeVae(limit=0.5).half()
    _, items, fits = scanned(pictures)
    assert fill_latents(items, fits, RULE, cache, FakeFamily(), vae, None, batch) == Filled(3, 0)
    assert vae.weight.dtype == torch.float16, "the VAE keeps its precision for the others"
    assert vae.seen == 4, "only the one that failed is encoded twice"
    for item in items:
        entry = cache.get(RULE.key(item, fits[item.id], RULE.variants(item, fits[item.id])[0]))
        assert entry is not None
        assert bool(torch.isfinite(entry["x0"]).all())


def test_c35_overflow_in_float32_names_the_file(pictures: Path, tmp_path: Path) -> None:
    cache, vae = Cache(tmp_path / "cache"), FakeVae(limit=0.5, always=True)
    _, items, fits = scanned(pictures)
    with pytest.raises(UserError, match="not finite") as caught:
        fill_latents(items, fits, RULE, cache, FakeFamily(), vae)
    assert [Path(problem.where).name for problem in caught.value.problems] == ["bright.png"]
    assert len([path for path in cache.folder.rglob("*") if path.is_file()]) == 2
