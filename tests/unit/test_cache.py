"""The cache: whole entries or none, many processes, damage, kills; filling it encodes what is missing and no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests.fake_family import FakeFamily, FakeText, FakeVae, scanned
from tests.pictures import make_pictures
from trainers.core.errors import Interrupted, UserError
from trainers.data.cache import Cache
from trainers.data.encode import Filled, Watch, fill_latents, fill_text
from trainers.data.keys import LatentRule, TextRule, latent_rule
from trainers.data.pixels import shrink_mask

RULE = LatentRule("fake", "vae0")
TEXTS = TextRule("fake", "text0")


def fill(folder: Path, cache: Cache, vae: Any = None, rule: LatentRule = RULE, **settings: Any) -> Filled:
    _, items, fits = scanned(folder, **settings)
    return fill_latents(items, fits, rule, cache, FakeFamily(), vae or FakeVae())


def keys(folder: Path, rule: LatentRule = RULE, **settings: Any) -> list[str]:
    _, items, fits = scanned(folder, **settings)
    return [rule.key(item, fits[item.id], v) for item in items for v in rule.variants(item, fits[item.id])]


def files(cache: Cache) -> list[Path]:
    return sorted(path for path in cache.folder.rglob("*") if path.is_file())


def test_an_entry_comes_back_bit_for_bit(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    entry = {"x0": torch.randn(4, 1, 3, 5), "half": torch.randn(7).bfloat16().view(7), "ids": torch.arange(3)}
    assert cache.get("abcd") is None
    cache.put("abcd", entry)
    back = cache.get("abcd")
    assert back is not None
    assert back.keys() == entry.keys()
    assert all(torch.equal(back[name], entry[name]) and back[name].dtype == entry[name].dtype for name in entry)


@pytest.mark.parametrize("harm", ["empty", "cut", "zeros", "bit", "text"])
def test_a_damaged_entry_is_none_and_removed(tmp_path: Path, harm: str) -> None:
    cache = Cache(tmp_path)
    cache.put("abcd", {"x0": torch.ones(64)})
    path = cache.path("abcd")
    data = path.read_bytes()
    bad = {
        "empty": b"",
        "cut": data[:-5],
        "zeros": data[:-100] + b"\x00" * 100,
        "bit": data[:-1] + bytes([data[-1] ^ 1]),
        "text": b"\x05\x00\x00\x00\x00\x00\x00\x00[1,2]",
    }
    path.write_bytes(bad[harm])
    assert cache.get("abcd") is None
    assert not path.exists()


WRITER = """
import sys
from pathlib import Path
import torch
from trainers.data.cache import Cache

cache, value = Cache(Path(sys.argv[1])), float(sys.argv[2])
for turn in range(int(sys.argv[3])):
    for number in range(20):
        cache.put(f"{number:02d}", {"x0": torch.full((500, 100), float(number))})
        entry = cache.get(f"{number:02d}")
        assert entry is not None and bool((entry["x0"] == number).all())
    print(turn, flush=True)
"""


def writer(folder: Path, value: int, turns: int, root: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(value), str(turns)]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_at_once_and_a_kill_while_writing(tmp_path: Path, root: Path) -> None:
    cache = Cache(tmp_path)
    polite, killed = writer(tmp_path, 1, 4, root), writer(tmp_path, 2, 100_000, root)
    assert killed.stdout is not None
    killed.stdout.readline()
    killed.kill()
    killed.communicate()
    _, errors = polite.communicate()
    assert polite.returncode == 0, errors
    for number in range(20):
        entry = cache.get(f"{number:02d}")
        assert entry is not None
        assert bool((entry["x0"] == number).all())


def test_only_what_is_missing_is_encoded(tmp_path: Path) -> None:
    pictures, cache = tmp_path / "pictures", Cache(tmp_path / "cache")
    make_pictures(pictures, 5)
    vae = FakeVae()
    assert fill(pictures, cache, vae) == Filled(5, 0)
    assert fill(pictures, cache, vae) == Filled(0, 5)
    make_pictures(pictures, 1, first=5)
    assert fill(pictures, cache, vae) == Filled(1, 5)
    assert vae.seen == 6
    files(cache)[2].write_bytes(b"damaged")
    assert fill(pictures, cache, vae) == Filled(1, 5)


def test_nothing_is_loaded_when_nothing_is_missing(tmp_path: Path) -> None:
    pictures, cache = tmp_path / "pictures", Cache(tmp_path / "cache")
    make_pictures(pictures, 2)
    _, items, fits = scanned(pictures)
    loads: list[str] = []

    def load() -> FakeVae:
        loads.append("vae")
        return FakeVae()

    for _ in range(2):
        fill_latents(items, fits, RULE, cache, FakeFamily(), load)
    assert loads == ["vae"]


@pytest.mark.parametrize(
    "change",
    [{"vae": "vae1"}, {"family": "other"}, {"dtype": "bfloat16"}, {"background": "black"}, {"flip": True}],
    ids=lambda change: next(iter(change)),
)
def test_the_key_holds_all_that_changes_the_bytes(tmp_path: Path, change: dict[str, Any]) -> None:
    clear = Image.new("RGBA", (64, 64), (10, 20, 30, 99))
    clear.save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("a")
    before = keys(tmp_path)
    after = keys(tmp_path, LatentRule(**{"family": "fake", "vae": "vae0", **change}))
    if "flip" in change:
        assert len(after) == 2
        assert after[0] == before[0]
    else:
        assert not set(before) & set(after)


def test_the_key_holds_nothing_else(tmp_path: Path) -> None:
    make_pictures(tmp_path, 2)
    before = keys(tmp_path)
    assert keys(tmp_path, LatentRule("fake", "vae0", background="black")) == before, "opaque pictures have no ground"
    (tmp_path / "picture00.txt").write_text("another caption")
    assert keys(tmp_path, caption_dropout=0.5, batch=2) == before
    assert not set(keys(tmp_path, area="32px")) & set(before)


def test_bits_do_not_depend_on_who_was_encoded_before(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    make_pictures(pictures, 4)
    whole, parts = Cache(tmp_path / "whole"), Cache(tmp_path / "parts")
    fill(pictures, whole)
    _, items, fits = scanned(pictures)
    for item in reversed(items):
        fill_latents([item], fits, RULE, parts, FakeFamily(), FakeVae())
    assert [path.read_bytes() for path in files(whole)] == [path.read_bytes() for path in files(parts)]


def test_variants_are_bounded_shown_once_and_shared_by_seeds(tmp_path: Path) -> None:
    make_pictures(tmp_path, 1, (96, 64))
    config, items, fits = scanned(tmp_path, buckets=False, flip=True, crop="random", crop_variants=5)
    rule = latent_rule(config, family="fake", vae="vae0")
    variants = rule.variants(items[0], fits[items[0].id])
    assert len(variants) == len(set(variants))
    assert 2 <= len(variants) <= 10
    assert all(0 <= v.crop[1] <= 32 and v.crop[0] == 0 for v in variants)
    flipped = next(v for v in variants if v.flip)
    assert flipped.corner(fits[items[0].id]) == (0, 32 - flipped.crop[1])
    square = tmp_path / "square"
    make_pictures(square, 1, (64, 64))
    _, items, fits = scanned(square)
    assert len(rule.variants(items[0], fits[items[0].id])) == 2, "there is one way to cut what fits exactly"


def test_a_mirrored_latent_is_the_latent_of_the_mirrored_picture(tmp_path: Path) -> None:
    make_pictures(tmp_path, 1)
    cache = Cache(tmp_path / "cache")
    rule = LatentRule("fake", "vae0", flip=True)
    fill(tmp_path, cache, rule=rule, concepts=[{"folder": ".", "recursive": False}])
    plain, mirrored = (cache.get(key) for key in keys(tmp_path, rule, concepts=[{"folder": ".", "recursive": False}]))
    assert plain is not None
    assert mirrored is not None
    noise = (plain["x0"] - mirrored["x0"].flip(-1)).abs().max()
    assert 0 < noise < 1.0  # both carry the same sampling noise, not mirrored
    assert not torch.equal(plain["x0"], mirrored["x0"])


def test_masks_lie_beside_the_latent_and_follow_its_cut(tmp_path: Path) -> None:
    image = Image.new("RGBA", (64, 64), (200, 0, 0, 0))
    image.paste((0, 200, 0, 255), (0, 0, 20, 64))
    image.save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("a")
    concepts = [{"folder": ".", "mask": "alpha", "recursive": False}]
    cache, rule = Cache(tmp_path / "cache"), LatentRule("fake", "vae0", flip=True)
    fill(tmp_path, cache, rule=rule, concepts=concepts)
    plain, mirrored = (cache.get(key) for key in keys(tmp_path, rule, concepts=concepts))
    assert plain is not None
    assert mirrored is not None
    assert plain["mask"].shape == (1, 1, 8, 8)
    assert torch.allclose(plain["mask"][0, 0, 0], torch.tensor([1, 1, 0.5, 0, 0, 0, 0, 0]))
    assert torch.equal(mirrored["mask"], plain["mask"].flip(-1))


def test_shrunk_masks_keep_their_area() -> None:
    mask = torch.randint(0, 256, (24, 40), dtype=torch.uint8)
    small = shrink_mask(mask.numpy(), 8)
    assert small.shape == (1, 1, 3, 5)
    assert torch.allclose(small.mean(), mask.float().mean() / 255)


def test_stop_works_while_caching_and_keeps_what_is_made(tmp_path: Path) -> None:
    pictures, cache = tmp_path / "pictures", Cache(tmp_path / "cache")
    make_pictures(pictures, 6)
    _, items, fits = scanned(pictures)
    vae = FakeVae()
    with pytest.raises(Interrupted):
        fill_latents(items, fits, RULE, cache, FakeFamily(), vae, Watch(should_stop=lambda: vae.seen >= 2))
    assert vae.seen == 2
    assert fill(pictures, cache, vae) == Filled(4, 2)


def test_progress_is_told_to_the_end(tmp_path: Path) -> None:
    make_pictures(tmp_path, 3)
    _, items, fits = scanned(tmp_path)
    told: list[tuple[int, int, str]] = []
    watch = Watch(lambda done, total, name: told.append((done, total, name)))
    fill_latents(items, fits, RULE, Cache(tmp_path / "cache"), FakeFamily(), FakeVae(), watch)
    assert [done for done, _, name in told if name] == [0, 1, 2]
    assert told[-1][:2] == (3, 3)


def test_pictures_that_changed_since_the_scan_are_named_together(tmp_path: Path) -> None:
    paths = make_pictures(tmp_path, 4)
    _, items, fits = scanned(tmp_path)
    paths[0].write_bytes(paths[1].read_bytes())
    paths[2].unlink()
    cache = Cache(tmp_path / "cache")
    with pytest.raises(UserError) as caught:
        fill_latents(items, fits, RULE, cache, FakeFamily(), FakeVae())
    assert sorted(Path(problem.where).name for problem in caught.value.problems) == ["picture00.png", "picture02.png"]
    assert len(files(cache)) == 2, "the good ones are kept"


def test_captions_are_encoded_once_each_and_the_null_condition_apart(tmp_path: Path) -> None:
    cache, text = Cache(tmp_path), FakeText()
    assert fill_text(["b", "a", "b", ""], TEXTS, cache, FakeFamily(), text) == Filled(4, 0)
    assert text.seen == [None, "", "a", "b"]
    assert fill_text(["a", "c"], TEXTS, cache, FakeFamily(), text) == Filled(1, 2)
    assert text.seen[4:] == ["c"]
    null, empty = cache.get(TEXTS.key(None)), cache.get(TEXTS.key(""))
    assert null is not None
    assert empty is not None
    assert not torch.equal(null["text"], empty["text"])
    assert fill_text(["a"], TextRule("fake", "text1"), cache, FakeFamily(), text) == Filled(2, 0)
