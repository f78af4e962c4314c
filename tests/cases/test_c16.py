"""C16: a cache of captions and dropping them at run time: both work together, and switching encodes nothing again."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.fake_family import FakeFamily, FakeText, FakeVae, scanned
from tests.pictures import make_pictures
from trainers.data.cache import Cache
from trainers.data.captions import caption_settings
from trainers.data.encode import Filled, fill_latents, fill_text
from trainers.data.keys import TextRule, latent_rule
from trainers.data.loader import Draws, Loader
from trainers.data.order import Order, OrderItem
from trainers.data.samples import Samples

TEXTS = TextRule("fake", "text0")


def conditions(folder: Path, cache: Cache, text: FakeText, **settings: float) -> tuple[Filled, torch.Tensor]:
    """Fill the caches and return all conditions of one epoch."""
    config, items, fits = scanned(folder, batch=2, **settings)
    rule = latent_rule(config, family="fake", vae="vae0")
    fill_latents(items, fits, rule, cache, FakeFamily(), FakeVae())
    filled = fill_text([caption for item in items for caption in item.captions], TEXTS, cache, FakeFamily(), text)
    order = Order([OrderItem(item.id, fits[item.id].bucket) for item in items], batch=2, seed=1)
    draws = Draws(1, caption_settings(config), config.caption_dropout)
    loader = Loader(order, Samples(items, fits, cache, rule, TEXTS), FakeFamily(), draws, micro_batch=2)
    batches = loader.epoch()
    loader.close()
    assert all(micro.condition is not None for micro in batches)
    share = torch.cat([micro.dropped for micro in batches]).float().mean()
    assert share == settings["caption_dropout"]
    return filled, torch.cat([micro.condition["text"] for micro in batches if micro.condition is not None])


def test_c16_dropout_works_on_cached_captions(tmp_path: Path) -> None:
    pictures, cache, text = tmp_path / "pictures", Cache(tmp_path / "cache"), FakeText()
    make_pictures(pictures, 4)
    filled, with_captions = conditions(pictures, cache, text, caption_dropout=0.0)
    assert filled == Filled(5, 0), "four captions and the empty one"
    null = FakeFamily().null_condition(FakeText())["text"]
    assert not any(torch.equal(condition, null) for condition in with_captions)
    filled, without = conditions(pictures, cache, text, caption_dropout=1.0)
    assert filled == Filled(0, 5), "switching encodes nothing again"
    assert all(torch.equal(condition, null) for condition in without)
