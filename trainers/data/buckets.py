"""Shapes: which bucket a picture goes to, and how it is scaled and cut for it. Sizes are (height, width) in pixels.

Written rules:
- Buckets are the largest rectangles of whole steps within the pixel budget, one for each width and each height.
- A picture goes to the bucket that cuts off the smallest share of it; among equals to the largest one.
- It is scaled to cover the bucket, and only what sticks out on one axis is cut.
- A picture is small when covering its bucket would enlarge it by more than 5 %. The rule "upscale" does so, "keep"
  gives it a bucket of its own size instead, "skip" leaves it out. All of them are listed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .config import DataConfig, SmallRule, parse_area
from .items import Item, LeftOut

Size = tuple[int, int]
SMALL_FROM = 1.05
"""Enlarging by less than this factor is not worth a rule."""


@dataclass(frozen=True)
class Fit:
    """How one picture becomes one of `bucket` size.

    `resized` is the whole picture after scaling, `crop` the (top, left) of the centred cut in it, `scale` resized over
    original, `crop_share` the share of the picture's area that is cut off, `note` is "", "upscaled" or "kept small".
    """

    bucket: Size
    resized: Size
    crop: tuple[int, int]
    scale: float
    crop_share: float
    note: str = ""

    @property
    def slack(self) -> tuple[int, int]:
        """How far (top, left) of a cut may go."""
        return (self.resized[0] - self.bucket[0], self.resized[1] - self.bucket[1])


@dataclass(frozen=True)
class BucketPlan:
    """The buckets of a run, the step they are made of, and the rule for small pictures."""

    buckets: tuple[Size, ...]
    step: int
    small: SmallRule

    def fit(self, size: Size) -> Fit | None:
        """Fit one picture; None when the rule says to skip it."""
        return fit(size, self.buckets, self.small, step=self.step)

    def fit_items(self, items: Iterable[Item]) -> tuple[dict[str, Fit], tuple[LeftOut, ...]]:
        """Fit all items: (fit by item id, items left out because they are small)."""
        fits: dict[str, Fit] = {}
        skipped: list[LeftOut] = []
        for item in items:
            found = self.fit(item.size)
            if found is not None:
                fits[item.id] = found
                continue
            height, width = item.size
            reason = f'{width}x{height} pixels: smaller than the training size, and small = "skip"'
            skipped.append(LeftOut(item.path, item.concept, reason, 'set small = "upscale" or "keep" to use it'))
        return fits, tuple(skipped)


def plan_buckets(config: DataConfig, *, native_area: int, size_multiple: int) -> BucketPlan:
    """Make the buckets of a [data] section for a family that was made for `native_area` pixels."""
    step = config.bucket_step or size_multiple
    step = math.lcm(step, size_multiple)
    if config.buckets:
        area = native_area if config.area is None else parse_area(config.area)
        return BucketPlan(tuple(make_buckets(area, step, config.max_ratio)), step, config.small)
    if config.area is None or isinstance(config.area, str):
        side = math.isqrt(native_area if config.area is None else parse_area(config.area))
        height = width = side
    else:
        width, height = config.area
    single = (max(step, height // step * step), max(step, width // step * step))
    return BucketPlan((single,), step, config.small)


def make_buckets(area: int, step: int, max_ratio: float = 2.0) -> list[Size]:
    """List the largest (height, width) in multiples of `step` with at most `area` pixels and `max_ratio` between sides.

    >>> make_buckets(128 * 128, 32, 2.0)
    [(96, 160), (128, 128), (160, 96)]
    """
    found: set[Size] = set()
    for count in range(1, math.isqrt(area) // step + 1):
        short = count * step
        long = min(area // short, int(short * max_ratio)) // step * step
        if long >= short:
            found |= {(short, long), (long, short)}
    largest = {size for size in found if not any(_inside(size, other) for other in found)}
    return sorted(largest) or [(step, step)]


def _inside(size: Size, other: Size) -> bool:
    """Tell whether another bucket holds this one and more."""
    return size != other and size[0] <= other[0] and size[1] <= other[1]


def fit(size: Size, buckets: Sequence[Size], small: SmallRule = "upscale", *, step: int = 8) -> Fit | None:
    """Choose the bucket of a picture of `size` by the rules above; None when it is small and the rule is "skip".

    >>> fit((135, 131), [(96, 160), (128, 128), (160, 96)]).bucket
    (128, 128)
    """
    best = min((_cover(size, bucket) for bucket in buckets), key=_badness)
    if best.scale <= SMALL_FROM:
        return best
    if small == "skip":
        return None
    if small == "keep":
        own = (max(step, size[0] // step * step), max(step, size[1] // step * step))
        return _cover(size, own, note="kept small")
    return _cover(size, best.bucket, note="upscaled")


def _badness(candidate: Fit) -> tuple[float, int, Size]:
    """Order candidates: least crop, then largest, then a fixed order."""
    height, width = candidate.bucket
    return (round(candidate.crop_share, 6), -height * width, candidate.bucket)


def _cover(size: Size, bucket: Size, *, note: str = "") -> Fit:
    """Scale a picture so that it just covers `bucket`, and cut the middle."""
    height, width = size
    scale = max(bucket[0] / height, bucket[1] / width)
    resized = (max(bucket[0], round(height * scale)), max(bucket[1], round(width * scale)))
    crop = ((resized[0] - bucket[0]) // 2, (resized[1] - bucket[1]) // 2)
    share = max(0.0, 1.0 - bucket[0] * bucket[1] / (height * scale * width * scale))
    return Fit(bucket, resized, crop, scale, 0.0 if share < 1e-9 else share, note)
