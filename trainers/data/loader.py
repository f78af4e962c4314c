"""Micro-batches for each step, with every random number in them drawn by key.

What a step holds is a pure function of (order, samples, draws, step): the micro-batch, ranks, threads and how far it
reads ahead change nothing, and any step can be asked for at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.core import random
from trainers.core.batch import Draw, MicroBatch
from trainers.core.family import Family

from .captions import CaptionSettings, runtime_caption
from .order import Order, SampleRef
from .samples import Latent, Samples

Normal = Callable[[str, tuple[int, ...]], NDArray[np.float32]]
ExtraNoise = Callable[[Normal, tuple[int, ...]], Mapping[str, NDArray[np.float32]]]
"""(normal, shape (C, F, H, W)) -> further noise of one sample by name, drawn with normal(stream, shape)."""

_SMALLEST_U = 2.0**-24  # u stays inside (0, 1) in float32


@dataclass(frozen=True)
class Draws:
    """What is drawn for each sample, by the run's seed: noise, time, caption and whether the caption is dropped.

    With `text_in_step` micro-batches carry captions instead of conditions: text encoders are trained, or captions vary
    too much to be cached. `extra_noise` is the objective's; `dropout` the share of visits without caption.
    """

    seed: int
    captions: CaptionSettings = field(default_factory=CaptionSettings)
    dropout: float = 0.0
    extra_noise: ExtraNoise | None = None
    text_in_step: bool = False


@dataclass(frozen=True)
class StepBatch:
    """This rank's share of one step, with `total_weight` and `samples` of the whole step over all ranks."""

    step: int
    micro: tuple[MicroBatch, ...]
    total_weight: float
    samples: int


class Loader:
    """Gives the batch of any step; the next `prefetch` steps are made ready by threads meanwhile."""

    def __init__(
        self,
        order: Order,
        samples: Samples,
        family: Family,
        draws: Draws,
        *,
        micro_batch: int,
        rank: int = 0,
        world: int = 1,
        prefetch: int = 2,
    ) -> None:
        self._order = order
        self._samples = samples
        self._family = family
        self._draws = draws
        self._micro_batch = micro_batch
        self._rank, self._world = rank, world
        self._prefetch = prefetch
        self._pool = ThreadPoolExecutor(max(1, min(2, prefetch)), "load")
        self._ready: dict[int, Future[StepBatch]] = {}
        self._lock = threading.Lock()

    def step(self, step: int) -> StepBatch:
        """The batch of step `step` (from 0)."""
        with self._lock:
            future = self._ready.pop(step, None)
            wanted = range(step + 1, step + 1 + self._prefetch)
            for stale in [number for number in self._ready if number not in wanted]:
                self._ready.pop(stale).cancel()
            for number in wanted:
                if number not in self._ready:
                    self._ready[number] = self._pool.submit(self._make, number)
        return self._make(step) if future is None else future.result()

    def set_micro_batch(self, micro_batch: int) -> None:
        """Cut the coming steps smaller or larger; their samples and random numbers stay what they are."""
        with self._lock:
            self._micro_batch = micro_batch
            for future in self._ready.values():
                future.cancel()
            self._ready.clear()

    def epoch(self, epoch: int = 0) -> list[MicroBatch]:
        """All micro-batches of one epoch of this rank, such as every held-out sample once."""
        first = epoch * self._order.steps_per_epoch
        return [micro for step in range(first, first + self._order.steps_per_epoch) for micro in self._make(step).micro]

    def close(self) -> None:
        """Stop reading ahead."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _make(self, step: int) -> StepBatch:
        refs = self._order.step(step)
        groups = self._order.micro_batches(refs, self._micro_batch, self._rank, self._world)
        # A step of weight 0 throughout (class pictures under prior_weight 0) divides 0 by 1, not by 0.
        total = sum(ref.weight for ref in refs) or 1.0
        return StepBatch(step, tuple(self._micro(group) for group in groups), total, len(refs))

    def _micro(self, refs: Sequence[SampleRef]) -> MicroBatch:
        draws, samples = self._draws, self._samples
        items = [samples.items[ref.index] for ref in refs]
        latents = [self._latent(ref) for ref in refs]
        geometry = tuple(latent.geometry for latent in latents)
        visits = [(item, ref.visit) for item, ref in zip(items, refs, strict=True)]
        captions = tuple(runtime_caption(item, draws.seed, visit, draws.captions) for item, visit in visits)
        dropped = [
            draws.dropout > 0.0 and random.uniform(draws.seed, "drop", item.id, visit) < draws.dropout
            for item, visit in visits
        ]
        x0 = torch.stack([latent.x0 for latent in latents])
        condition = None
        if not draws.text_in_step:
            known = [
                samples.condition(None if drop else caption) for drop, caption in zip(dropped, captions, strict=True)
            ]
            condition = self._family.collate(known, (x0.shape[2], x0.shape[3], x0.shape[4]), geometry)
        keys = [(item.id, visit) for item, visit in visits]
        return MicroBatch(
            ids=tuple(item.id for item in items),
            x0=x0,
            condition=condition,
            captions=captions,
            geometry=geometry,
            dropped=torch.tensor(dropped, dtype=torch.bool),
            mask=_masks(latents),
            weight=torch.tensor([ref.weight for ref in refs], dtype=torch.float32),
            draw=_draw(draws, keys, tuple(x0.shape[1:])),
        )

    def _latent(self, ref: SampleRef) -> Latent:
        """The latent of a sample in the variant drawn for this visit."""
        count = self._samples.variant_count(ref.index)
        item = self._samples.items[ref.index]
        number = random.integer(self._draws.seed, "variant", item.id, ref.visit, count) if count > 1 else 0
        return self._samples.latent(ref.index, number)


def _draw(draws: Draws, keys: Sequence[tuple[str, int]], shape: tuple[int, ...]) -> Draw:
    """Draw the numbers of samples named by (item id, visit), each of latent `shape` (C, F, H, W)."""
    eps = np.stack([random.normal(draws.seed, "eps", name, visit, shape) for name, visit in keys])
    u = np.array([random.uniform(draws.seed, "u", name, visit) for name, visit in keys])
    extra: dict[str, Tensor] = {}
    if draws.extra_noise is not None:
        single = [draws.extra_noise(partial(_stream, draws.seed, name, visit), shape) for name, visit in keys]
        extra = {kind: torch.from_numpy(np.stack([noise[kind] for noise in single])) for kind in single[0]}
    inside = np.clip(u, _SMALLEST_U, 1.0 - _SMALLEST_U).astype(np.float32)
    return Draw(torch.from_numpy(eps), torch.from_numpy(inside), extra)


def _stream(seed: int, name: str, visit: int, stream: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return random.normal(seed, stream, name, visit, shape)


def _masks(latents: Sequence[Latent]) -> Tensor | None:
    """Masks [B, 1, F, H, W] when any sample has one; the loss of the others counts everywhere."""
    if all(latent.mask is None for latent in latents):
        return None
    return torch.stack([torch.ones_like(latent.x0[:1]) if latent.mask is None else latent.mask for latent in latents])
