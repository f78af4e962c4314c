"""The loader: what a sample gets depends on its id and visit only, never on micro-batch, ranks or reading ahead."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.fake_family import FACTS, FakeFamily, FakeText, FakeVae, scanned
from tests.pictures import make_pictures
from trainers.core.batch import MicroBatch
from trainers.core.errors import UserError
from trainers.data.cache import Cache
from trainers.data.captions import caption_settings
from trainers.data.encode import fill_latents, fill_text
from trainers.data.keys import TextRule, latent_rule
from trainers.data.loader import Draws, Loader, Normal
from trainers.data.order import Order, OrderItem
from trainers.data.samples import Samples

TEXTS = TextRule("fake", "text0")
SampleKey = tuple[str, int]


def extra_noise(normal: Normal, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {"offset": normal("offset", (shape[0], 1, 1, 1))}


class World:
    """Pictures, filled caches and an order; makes loaders."""

    def __init__(self, folder: Path, *, batch: int = 4, memory_bytes: int = 1 << 30, **settings: Any) -> None:
        self.config, self.items, fits = scanned(folder, batch=batch, **settings)
        self.cache = Cache(folder.parent / "cache")
        rule = latent_rule(self.config, family="fake", vae="vae0")
        fill_latents(self.items, fits, rule, self.cache, FakeFamily(), FakeVae())
        captions = [caption for item in self.items for caption in item.captions]
        fill_text(captions, TEXTS, self.cache, FakeFamily(), FakeText())
        self.order = Order(
            [OrderItem(i.id, fits[i.id].bucket, i.repeats, i.weight, i.role) for i in self.items], batch=batch, seed=1
        )
        self.samples = Samples(self.items, fits, self.cache, rule, TEXTS, memory_bytes=memory_bytes)

    @contextmanager
    def loader(
        self, micro: int = 4, rank: int = 0, world: int = 1, prefetch: int = 2, **draws: Any
    ) -> Iterator[Loader]:
        settings = {"seed": 1, "dropout": 0.3, "extra_noise": extra_noise, "captions": caption_settings(self.config)}
        loader = Loader(
            self.order,
            self.samples,
            FakeFamily(),
            Draws(**{**settings, **draws}),
            micro_batch=micro,
            rank=rank,
            world=world,
            prefetch=prefetch,
        )
        try:
            yield loader
        finally:
            loader.close()


@pytest.fixture
def world(tmp_path: Path) -> World:
    pictures = tmp_path / "pictures"
    for number, size in enumerate([(64, 64), (96, 64), (64, 96)]):
        make_pictures(pictures, 3, size, first=3 * number)
    return World(pictures, flip=True)


def singles(batches: Iterator[MicroBatch] | tuple[MicroBatch, ...]) -> dict[str, list[torch.Tensor]]:
    """Every sample of some micro-batches on its own: all its tensors by id."""
    found: dict[str, list[torch.Tensor]] = {}
    for micro in batches:
        for place, name in enumerate(micro.ids):
            if micro.weight[place] == 0:
                continue
            values = [micro.x0, micro.draw.eps, micro.draw.u, micro.draw.extra["offset"], micro.dropped, micro.weight]
            values += [] if micro.condition is None else list(micro.condition.values())
            found[name] = [value[place] for value in values]
    return found


def assert_same(left: dict[str, list[torch.Tensor]], right: dict[str, list[torch.Tensor]]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        assert all(torch.equal(a, b) for a, b in zip(left[name], right[name], strict=True)), name


@pytest.mark.parametrize(("micro", "ranks", "prefetch"), [(1, 1, 0), (2, 1, 2), (3, 2, 3), (4, 3, 1)])
def test_samples_do_not_depend_on_micro_batch_ranks_or_threads(
    world: World, micro: int, ranks: int, prefetch: int
) -> None:
    with world.loader() as reference:
        expected = [reference.step(step) for step in range(7)]
    loaded: list[dict[str, list[torch.Tensor]]] = [{} for _ in range(7)]
    for rank in range(ranks):
        with world.loader(micro, rank, ranks, prefetch) as loader:
            for step in range(7):
                batch = loader.step(step)
                assert (batch.total_weight, batch.samples) == (expected[step].total_weight, expected[step].samples)
                assert all(len(one.ids) <= micro for one in batch.micro)
                loaded[step] |= singles(batch.micro)
    for step in range(7):
        assert_same(loaded[step], singles(expected[step].micro))


def test_any_step_can_be_asked_for_at_any_time(world: World) -> None:
    with world.loader() as straight, world.loader(prefetch=1) as jumping:
        expected = {step: singles(straight.step(step).micro) for step in range(9)}
        for step in (8, 0, 1, 5, 4, 4, 5, 6, 2):
            assert_same(singles(jumping.step(step).micro), expected[step])


def test_a_smaller_micro_batch_keeps_the_step(world: World) -> None:
    with world.loader(4) as loader:
        before = singles(loader.step(0).micro)
        loader.set_micro_batch(1)
        again = loader.step(0)
        assert all(len(micro.ids) == 1 for micro in again.micro)
        assert_same(singles(again.micro), before)
        assert all(len(micro.ids) == 1 for micro in loader.step(1).micro), "a step read ahead kept the old size"


def test_visits_differ_and_seeds_differ(world: World) -> None:
    with world.loader() as loader, world.loader(seed=2) as other:
        epochs = world.order.steps_per_epoch
        first = {n: s for step in range(epochs) for n, s in singles(loader.step(step).micro).items()}
        second = {n: s for step in range(epochs, 2 * epochs) for n, s in singles(loader.step(step).micro).items()}
        foreign = singles(other.step(0).micro)
    name = next(iter(foreign))
    for values in (second[name], foreign[name]):
        assert not torch.equal(first[name][1], values[1])
        assert first[name][2] != values[2]


def test_all_variants_are_shown(world: World) -> None:
    with world.loader() as loader:
        shown: dict[str, set[bytes]] = {}
        for step in range(40):
            for name, values in singles(loader.step(step).micro).items():
                shown.setdefault(name, set()).add(values[0].numpy().tobytes())
    assert {len(variants) for variants in shown.values()} == {2}


def test_shapes_and_ranges(world: World) -> None:
    with world.loader() as loader:
        for step in range(4):
            for micro in loader.step(step).micro:
                count = len(micro.ids)
                height, width = micro.geometry[0].target
                assert micro.x0.shape == micro.draw.eps.shape == (count, 4, 1, height // 8, width // 8)
                assert micro.draw.extra["offset"].shape == (count, 4, 1, 1, 1)
                assert micro.draw.u.dtype == torch.float32
                assert bool(((micro.draw.u > 0) & (micro.draw.u < 1)).all())
                assert micro.mask is None
                assert len({place.target for place in micro.geometry}) == 1


def test_masks_of_some_pictures_become_ones_for_the_others(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    first, *_ = make_pictures(pictures, 2)
    mask = torch.zeros(64, 64, dtype=torch.uint8)
    mask[:16] = 255
    from PIL import Image

    Image.fromarray(mask.numpy()).save(pictures / f"{first.stem}-mask.png")
    made = World(pictures, batch=2, concepts=[{"folder": ".", "mask": "files"}])
    with made.loader() as loader:
        (micro,) = loader.step(0).micro
    assert micro.mask is not None
    assert micro.mask.shape == (2, 1, 1, 8, 8)
    assert sorted(micro.mask.mean((1, 2, 3, 4)).tolist()) == [0.25, 1.0]


def test_captions_travel_where_the_text_encoder_is_trained(world: World) -> None:
    with world.loader(text_in_step=True, dropout=1.0) as loader:
        micro = loader.step(0).micro[0]
    assert micro.condition is None
    assert all(caption.startswith("a ") for caption in micro.captions)
    assert bool(micro.dropped.all())


def test_little_memory_changes_nothing(world: World, tmp_path: Path) -> None:
    small = World(tmp_path / "pictures", flip=True, memory_bytes=1)
    with world.loader() as roomy, small.loader() as tight:
        for step in range(4):
            assert_same(singles(roomy.step(step).micro), singles(tight.step(step).micro))


def test_every_held_out_sample_once(world: World) -> None:
    with world.loader(2) as loader:
        names = [name for micro in loader.epoch() for name in micro.ids]
    assert sorted(names) == sorted(item.id for item in world.items)


def test_a_lost_entry_is_named(world: World) -> None:
    for path in list(world.cache.folder.rglob("*.safetensors")):
        path.write_bytes(b"")
    with world.loader() as loader, pytest.raises(UserError, match="the cache has lost its entry for"):
        loader.step(0)


def test_steps_cost_little(tmp_path: Path) -> None:
    """Far below what a step computes. The best of several rounds counts, so that a busy machine does not."""
    pictures = tmp_path / "pictures"
    make_pictures(pictures, 16, (128, 128))
    made = World(pictures, batch=8, area="128px", buckets=False)
    assert FACTS.stride_xy == 8
    with made.loader(8, prefetch=0) as loader:
        for step in range(4):
            loader.step(step)
        rounds = []
        for first in range(4, 84, 10):
            start = time.perf_counter()
            for step in range(first, first + 10):
                loader.step(step)
            rounds.append((time.perf_counter() - start) / 10)
    print(f"{min(rounds) * 1000:.2f} ms a step")
    assert min(rounds) < 0.006
