"""Fills the cache before training: pictures -> latents, captions -> conditions.

Files are read, decoded and scaled by threads while the encoder works. On the CPU pictures and captions are encoded one
by one: a batch brings no speed there, and the bits of an entry then depend on nothing but its key, also after a stop.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from trainers.core.errors import Interrupted, Problem, UserError
from trainers.core.family import Family

from .buckets import Fit
from .cache import Cache
from .items import Item
from .keys import LatentRule, TextRule, Variant
from .pixels import Picture, encode_pictures, prepare_pictures

In = TypeVar("In")
Out = TypeVar("Out")
Loadable = nn.Module | Callable[[], nn.Module]
"""A network, or a function that loads it: called only when something must be encoded."""

_GPU_BATCH = 4
_CAPTION_BATCH = 32


@dataclass(frozen=True)
class Watch:
    """Who looks on: `on_progress` (done, total, name), and `should_stop`, asked before each forward pass.

    A true answer ends the filling by Interrupted; what is made so far stays in the cache.
    """

    on_progress: Callable[[int, int, str], object] | None = None
    should_stop: Callable[[], object] | None = None

    def step(self, done: int, total: int, name: str) -> None:
        """Tell how far it is, and leave when asked to."""
        if self.should_stop is not None and self.should_stop():
            raise Interrupted("stopped while filling the cache; what was made is kept")
        if self.on_progress is not None:
            self.on_progress(done, total, name)


@dataclass(frozen=True)
class Filled:
    """How many cache entries were `made` and how many were there already."""

    made: int
    reused: int


@dataclass(frozen=True)
class _Job:
    """One picture and the cut-outs of it that must be encoded, with their keys."""

    item: Item
    fit: Fit
    wanted: tuple[tuple[str, Variant], ...]


def fill_latents(
    items: Iterable[Item],
    fits: Mapping[str, Fit],
    rule: LatentRule,
    cache: Cache,
    family: Family,
    vae: Loadable,
    watch: Watch | None = None,
    batch_size: int | None = None,
) -> Filled:
    """Make every latent of `items` that the cache lacks, in all variants of `rule`.

    Entries hold "x0" [C, F, H, W] float32 and, for masked pictures, "mask" [1, F, H, W] in [0, 1]. Raises one UserError
    naming every picture that could not be read or whose latents are not finite even in float32.
    """
    watch = watch or Watch()
    threads = min(8, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads, "decode") as pool:
        jobs, total = _missing(items, fits, rule, cache, pool, watch)
        missing = sum(len(job.wanted) for job in jobs)
        if not jobs:
            return Filled(0, total)
        module = vae if isinstance(vae, nn.Module) else vae()
        size = batch_size or (1 if _device(module).type == "cpu" else _GPU_BATCH)
        done = total - missing
        problems: list[Problem] = []
        writes: list[Future[None]] = []
        read = _ahead(
            pool, lambda job: prepare_pictures(job.item, job.fit, job.wanted, rule.background), jobs, 2 * threads
        )
        for group in _groups(read, size, problems):
            watch.step(done, total, group[0].item.name)
            for picture, entry in zip(group, encode_pictures(family, module, group), strict=True):
                if isinstance(entry, Problem):
                    problems.append(entry)
                else:
                    writes.append(pool.submit(cache.put, picture.key, entry))
            done += len(group)
        for write in writes:
            write.result()
    watch.step(done, total, "")
    if problems:
        raise UserError(problems)
    return Filled(missing, total - missing)


def fill_text(
    captions: Iterable[str],
    rule: TextRule,
    cache: Cache,
    family: Family,
    text: Loadable,
    watch: Watch | None = None,
    batch_size: int | None = None,
) -> Filled:
    """Make the condition of every caption that the cache lacks, and the null condition."""
    watch = watch or Watch()
    texts: list[str | None] = [None, *sorted(set(captions))]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1), "read") as pool:
        found = list(pool.map(lambda caption: cache.get(rule.key(caption)) is not None, texts))
    missing = [caption for caption, there in zip(texts, found, strict=True) if not there]
    if not missing:
        return Filled(0, len(texts))
    module = text if isinstance(text, nn.Module) else text()
    size = batch_size or (1 if _device(module).type == "cpu" else _CAPTION_BATCH)
    done, problems = len(texts) - len(missing), []
    groups: list[list[str | None]] = [[None]] if missing[0] is None else []
    rest = missing[len(groups) :]
    groups += [rest[start : start + size] for start in range(0, len(rest), size)]
    for group in groups:
        watch.step(done, len(texts), group[0] or "")
        for caption, condition in zip(group, _conditions(family, module, group), strict=True):
            if all(bool(torch.isfinite(value).all()) for value in condition.values()):
                cache.put(rule.key(caption), condition)
            else:
                problems.append(
                    Problem("text encoder", f'not finite for the caption "{caption or ""}"', "use fp32 for it")
                )
        done += len(group)
    watch.step(done, len(texts), "")
    if problems:
        raise UserError(problems)
    return Filled(len(missing), len(texts) - len(missing))


def _conditions(family: Family, text: nn.Module, group: Sequence[str | None]) -> list[Mapping[str, Tensor]]:
    """Encode captions; the null condition comes alone."""
    with torch.no_grad():
        if group[0] is None:
            return [family.null_condition(text)]
        return list(family.encode_text(text, [caption for caption in group if caption is not None]))


def _missing(
    items: Iterable[Item], fits: Mapping[str, Fit], rule: LatentRule, cache: Cache, pool: Executor, watch: Watch
) -> tuple[list[_Job], int]:
    """Read every entry there is, so that a damaged one is found now: (what must be made by shape, how many in all)."""
    wanted: dict[str, tuple[Item, Variant]] = {}  # equal pictures share their entries
    for item in items:
        for variant in rule.variants(item, fits[item.id]):
            wanted.setdefault(rule.key(item, fits[item.id], variant), (item, variant))
    jobs: dict[str, list[tuple[str, Variant]]] = {}
    by_id: dict[str, Item] = {}
    for key, there in _ahead(pool, lambda key: (key, cache.get(key) is not None), wanted, 64):
        watch.step(0, len(wanted), "")
        if not there:
            item, variant = wanted[key]
            by_id[item.id] = item
            jobs.setdefault(item.id, []).append((key, variant))
    made = [_Job(by_id[name], fits[name], tuple(pairs)) for name, pairs in jobs.items()]
    return sorted(made, key=lambda job: (job.fit.bucket, job.item.id)), len(wanted)


def _groups(read: Iterable[list[Picture] | Problem], size: int, problems: list[Problem]) -> Iterator[list[Picture]]:
    """Collect pictures of one shape into groups of up to `size`; pictures that could not be read go to `problems`."""
    group: list[Picture] = []
    for result in read:
        if isinstance(result, Problem):
            problems.append(result)
            continue
        for picture in result:
            if group and (len(group) == size or group[0].pixels.shape != picture.pixels.shape):
                yield group
                group = []
            group.append(picture)
    if group:
        yield group


def _ahead(pool: Executor, work: Callable[[In], Out], jobs: Iterable[In], depth: int) -> Iterator[Out]:
    """Results of `work` in order, with at most `depth` of them under way, so that memory stays small."""
    waiting: deque[Future[Out]] = deque()
    try:
        for job in jobs:
            waiting.append(pool.submit(work, job))
            if len(waiting) >= depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device
