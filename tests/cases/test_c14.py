"""C14: a picture is replaced by another of equal name, size and time: exactly this one is encoded again."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from PIL import Image

from tests.fake_family import FakeFamily, FakeVae, scanned
from trainers.data.cache import Cache
from trainers.data.encode import Filled, fill_latents
from trainers.data.keys import LatentRule

RULE = LatentRule("fake", "vae0")


def save_equal_in_size(path: Path, colour: tuple[int, int, int]) -> None:
    Image.new("RGB", (64, 64), colour).save(path, format="BMP")


def test_c14_an_edited_picture_is_encoded_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number, name in enumerate("abc"):
        save_equal_in_size(pictures / f"{name}.bmp", (80 * number, 10, 10))
        (pictures / f"{name}.txt").write_text(name)
    _, items, fits = scanned(pictures)
    assert fill_latents(items, fits, RULE, cache, FakeFamily(), FakeVae()) == Filled(3, 0)
    edited = pictures / "b.bmp"
    before = edited.stat()
    save_equal_in_size(edited, (10, 250, 10))
    os.utime(edited, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (edited.stat().st_size, edited.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    _, items, fits = scanned(pictures)
    vae = FakeVae()
    assert fill_latents(items, fits, RULE, cache, FakeFamily(), vae) == Filled(1, 2)
    item = next(item for item in items if item.path.name == "b.bmp")
    entry = cache.get(RULE.key(item, fits[item.id], RULE.variants(item, fits[item.id])[0]))
    assert entry is not None
    assert torch.allclose(entry["x0"][1].mean(), torch.tensor(250 / 127.5 - 1), atol=0.1)
