"""How many tokens the captions have for each text encoder, and what of them an encoder never sees."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .items import Item


class Counter(Protocol):
    """Counts for one text encoder; a model family's `tokens.py` gives them."""

    def __call__(self, caption: str) -> tuple[int, int]:
        """Return (tokens the caption has, tokens that fit)."""

    def shown(self, caption: str) -> tuple[str, str]:
        """Return (what the encoder sees, what it never sees) of a caption."""


Counters = Mapping[str, Counter]
"""Text encoder -> its counter."""


@dataclass(frozen=True)
class TokenRow:
    """Tokens of all captions for one encoder: the least, the median, the most, and how many captions are too long."""

    encoder: str
    fits: int
    captions: int
    least: int
    median: int
    most: int
    cut: int


@dataclass(frozen=True)
class CutCaption:
    """A caption that is too long for an encoder: what is encoded (`kept`) and what is lost (`cut`)."""

    picture: str
    encoder: str
    has: int
    fits: int
    kept: str
    cut: str


class TokenCounts:
    """Counts captions, each once, however many pictures have it. Without counters there is nothing to tell."""

    def __init__(self, counters: Counters | None) -> None:
        self.counters = dict(counters or {})
        self._known: dict[str, dict[str, tuple[int, int]]] = {}

    def of(self, caption: str) -> dict[str, tuple[int, int]]:
        """Return encoder -> (tokens the caption has, tokens that fit)."""
        if caption not in self._known:
            self._known[caption] = {name: counter(caption) for name, counter in self.counters.items()}
        return self._known[caption]

    def too_short(self, caption: str) -> list[str]:
        """Name the encoders that cut a caption."""
        return [name for name, (has, fits) in self.of(caption).items() if has > fits]

    def rows(self, items: Sequence[Item]) -> tuple[TokenRow, ...]:
        """Sum up the captions of all items, a row for each encoder."""
        captions = [caption for item in items for caption in item.captions]
        rows = []
        for name in self.counters if captions else ():
            counts = [self.of(caption)[name] for caption in captions]
            numbers = sorted(has for has, _ in counts)
            cut = sum(has > fits for has, fits in counts)
            middle = statistics.median_low(numbers)
            rows.append(TokenRow(name, counts[0][1], len(numbers), numbers[0], middle, numbers[-1], cut))
        return tuple(rows)

    def cut(self, items: Sequence[Item]) -> tuple[CutCaption, ...]:
        """List every caption that is cut, with what is kept and what is lost, in the order of the items."""
        return tuple(
            CutCaption(item.name, name, *self.of(caption)[name], *self.counters[name].shown(caption))
            for item in items
            for caption in item.captions
            for name in self.too_short(caption)
        )
