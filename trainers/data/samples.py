"""Cached latents and conditions of a run's items, kept in memory up to a limit. Safe to use from many threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from trainers.core.batch import Condition, Geometry
from trainers.core.errors import UserError
from trainers.core.units import GIB

from .buckets import Fit
from .cache import Cache
from .items import Item
from .keys import LatentRule, TextRule, Variant

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Latent:
    """A picture in one variant: x0 [C, F, H, W] float32, mask [1, F, H, W] in [0, 1] or None, and its geometry."""

    x0: Tensor
    mask: Tensor | None
    geometry: Geometry


class Samples:
    """Items by their number, as the order counts them, with what the cache holds for them."""

    def __init__(
        self,
        items: Sequence[Item],
        fits: Mapping[str, Fit],
        cache: Cache,
        latents: LatentRule,
        texts: TextRule,
        *,
        memory_bytes: int = 2 * GIB,
    ) -> None:
        self.items = tuple(items)
        self._fits = [fits[item.id] for item in self.items]
        self._cache = cache
        self._texts = texts
        self._variants = [
            tuple((variant, latents.key(item, fit, variant)) for variant in latents.variants(item, fit))
            for item, fit in zip(self.items, self._fits, strict=True)
        ]
        self._memory = _Memory(memory_bytes)

    def variant_count(self, index: int) -> int:
        """How many variants item `index` has, at least one."""
        return len(self._variants[index])

    def latent(self, index: int, variant: int) -> Latent:
        """The latent of item `index` in variant number `variant`."""
        shown, key = self._variants[index][variant]
        entry = self._read(key, self.items[index].path.name)
        return Latent(entry["x0"], entry.get("mask"), self._geometry(index, shown))

    def condition(self, caption: str | None) -> Condition:
        """The condition of one caption; None is the null condition."""
        return self._read(self._texts.key(caption), "no caption" if caption is None else f'the caption "{caption}"')

    def _geometry(self, index: int, shown: Variant) -> Geometry:
        fit = self._fits[index]
        return Geometry(self.items[index].size, shown.corner(fit), fit.bucket)

    def _read(self, key: str, what: str) -> Tensors:
        def load() -> Tensors:
            entry = self._cache.get(key)
            if entry is None:
                raise UserError(
                    f"the cache has lost its entry for {what}",
                    where=str(self._cache.path(key)),
                    remedy="resume the run: what is missing is made again",
                )
            return entry

        return self._memory.get(key, load)


class _Memory:
    """The most recently used entries, up to a number of bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._entries: OrderedDict[str, Tensors] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str, load: Callable[[], Tensors]) -> Tensors:
        """Return an entry, loading it (outside the lock) when it is not here."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        entry = load()
        with self._lock:
            if key not in self._entries:
                self._entries[key] = entry
                self._used += _bytes(entry)
            while self._used > self._limit and len(self._entries) > 1:
                _, oldest = self._entries.popitem(last=False)
                self._used -= _bytes(oldest)
        return entry


def _bytes(entry: Tensors) -> int:
    return sum(tensor.nbytes for tensor in entry.values())
