"""What `trainers check --data` says about the pictures, as plain data; `report_view` shows it on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import Any

from trainers.core.errors import Problem

from .buckets import Fit
from .captions import CaptionSettings, runtime_caption
from .items import Item, LeftOut, Scan
from .order import Order, SampleRef
from .tokens import Counters, CutCaption, TokenCounts, TokenRow

MUCH_CROPPED = 0.2
_EXAMPLES = 3


@dataclass(frozen=True)
class BucketRow:
    """One shape: its training pictures, their samples in one epoch, and how they come in groups of one shape.

    `groups` counts the parts of steps that hold this shape, `short` those of them with fewer samples than a step has.
    Shares and scales are 0..1 and factors, over the pictures of the bucket.
    """

    height: int
    width: int
    pictures: int
    samples: int | None
    groups: int | None
    short: int | None
    crop_mean: float
    crop_most: float
    scale_least: float
    scale_most: float


@dataclass(frozen=True)
class CaptionRow:
    """The captions of one concept: how many pictures have what, and how many are cut by each text encoder."""

    folder: str
    role: str
    pictures: int
    found: int
    empty: int
    missing: int
    made: int
    several: int
    cut: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Example:
    """One caption exactly as it is encoded at the first visit, with tokens (has, fits) per encoder."""

    picture: str
    caption: str
    tokens: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Changed:
    """A picture that is changed more than one may expect: enlarged, kept small, or much of it cut off."""

    picture: str
    size: tuple[int, int]
    bucket: tuple[int, int]
    scale: float
    crop_share: float
    note: str


@dataclass(frozen=True)
class DataReport:
    """Everything worth knowing about the data before a run. Sizes are (height, width)."""

    pictures: int
    training: int
    class_pictures: int
    validation: int
    samples_per_epoch: int | None
    steps_per_epoch: int | None
    batch: int | None
    buckets: tuple[BucketRow, ...]
    captions: tuple[CaptionRow, ...]
    tokens: tuple[TokenRow, ...]
    cut: tuple[CutCaption, ...]
    examples: tuple[Example, ...]
    changed: tuple[Changed, ...]
    duplicates: tuple[tuple[str, ...], ...]
    left_out: tuple[tuple[str, str, str], ...]
    """(file, reason, remedy)"""
    warnings: tuple[Problem, ...]
    errors: tuple[Problem, ...]

    def as_json(self) -> dict[str, Any]:
        """Return plain data for a JSON document."""
        return asdict(self)


def data_report(
    scan: Scan,
    fits: Mapping[str, Fit],
    order: Order | None = None,
    counters: Counters | None = None,
    *,
    left_out: Sequence[LeftOut] = (),
    settings: CaptionSettings | None = None,
    seed: int = 0,
) -> DataReport:
    """Put together what is known.

    `fits` holds the shape of each item by id and `left_out` what its rules left out; `order` adds epochs and groups;
    `counters` tell which captions are cut, and where; `settings` and `seed` are those of the run, for the examples.
    """
    used = [item for item in scan.training if item.id in fits]
    tokens = TokenCounts(counters)
    return DataReport(
        pictures=len(scan.items),
        training=sum(item.role == "train" for item in used),
        class_pictures=sum(item.role == "class" for item in used),
        validation=len(scan.validation),
        samples_per_epoch=None if order is None else order.samples_per_epoch,
        steps_per_epoch=None if order is None else order.steps_per_epoch,
        batch=None if order is None else order.batch,
        buckets=_buckets(used, fits, order),
        captions=_captions(scan.items, tokens),
        tokens=tokens.rows(scan.items),
        cut=tokens.cut(scan.items),
        examples=_examples(scan.items, tokens, settings or CaptionSettings(), seed),
        changed=_changed(scan.items, fits),
        duplicates=_duplicates(scan.items),
        left_out=tuple((str(one.path), one.reason, one.remedy) for one in (*scan.left_out, *left_out)),
        warnings=scan.warnings,
        errors=scan.errors,
    )


def _buckets(items: Sequence[Item], fits: Mapping[str, Fit], order: Order | None) -> tuple[BucketRow, ...]:
    """Make the rows of the bucket table, the fullest first."""
    by_bucket: dict[tuple[int, int], list[Fit]] = {}
    for item in items:
        by_bucket.setdefault(fits[item.id].bucket, []).append(fits[item.id])
    samples, groups, short = (None, None, None) if order is None else _groups(order, fits)
    rows = []
    for bucket, mine in by_bucket.items():
        crops, scales = [one.crop_share for one in mine], [one.scale for one in mine]
        rows.append(
            BucketRow(
                *bucket,
                pictures=len(mine),
                samples=None if samples is None else samples[bucket],
                groups=None if groups is None else groups[bucket],
                short=None if short is None else short[bucket],
                crop_mean=sum(crops) / len(crops),
                crop_most=max(crops),
                scale_least=min(scales),
                scale_most=max(scales),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.pictures, row.height, row.width)))


_PerBucket = Counter[tuple[int, int]]


def _groups(order: Order, fits: Mapping[str, Fit]) -> tuple[_PerBucket, _PerBucket, _PerBucket]:
    """Count samples, groups and short groups of each bucket over the first epoch."""
    samples: _PerBucket = Counter()
    groups: _PerBucket = Counter()
    short: _PerBucket = Counter()
    for step in range(order.steps_per_epoch):
        shapes = Counter(_bucket(order, fits, ref) for ref in order.step(step))
        samples.update(shapes)
        groups.update(shapes.keys())
        short.update(bucket for bucket, count in shapes.items() if count < order.batch)
    return samples, groups, short


def _bucket(order: Order, fits: Mapping[str, Fit], ref: SampleRef) -> tuple[int, int]:
    return fits[order.items[ref.index].id].bucket


def _captions(items: Sequence[Item], tokens: TokenCounts) -> tuple[CaptionRow, ...]:
    """Count captions per concept."""
    rows = []
    for concept in sorted({item.concept for item in items}):
        mine = [item for item in items if item.concept == concept]
        states = Counter(item.caption_state for item in mine)
        cut: Counter[str] = Counter()
        for item in mine:
            names = [name for text in item.captions for name in tokens.too_short(text)]
            cut.update(list(dict.fromkeys(names)))  # a picture counts once, however many of its captions are too long
        role = "validation" if all(item.validation for item in mine) else mine[0].role
        several = sum(len(item.captions) > 1 for item in mine)
        counts = (states["found"], states["empty"], states["missing"], states["made"])
        folder = PurePath(str(mine[0].path).removesuffix(mine[0].name)).name
        rows.append(CaptionRow(folder, role, len(mine), *counts, several, dict(cut)))
    return tuple(rows)


def _examples(items: Sequence[Item], tokens: TokenCounts, settings: CaptionSettings, seed: int) -> tuple[Example, ...]:
    """Show a few captions as they are encoded: of each concept and kind one, then more until there are enough."""
    firsts = {(item.concept, item.caption_state): item for item in reversed(items)}
    chosen = {item.id: item for item in (*reversed(firsts.values()), *items)}
    examples = []
    for item in list(chosen.values())[: max(_EXAMPLES, len(firsts))]:
        caption = runtime_caption(item, seed, 0, settings)
        examples.append(Example(item.name, caption, tokens.of(caption)))
    return tuple(examples)


def _changed(items: Sequence[Item], fits: Mapping[str, Fit]) -> tuple[Changed, ...]:
    """List pictures that are enlarged, kept small or cropped by much, the most changed first."""
    changed = []
    for item in items:
        fit = fits.get(item.id)
        if fit is not None and (fit.note or fit.crop_share >= MUCH_CROPPED):
            note = fit.note or "much is cut off"
            changed.append(Changed(item.name, item.size, fit.bucket, fit.scale, fit.crop_share, note))
    return tuple(sorted(changed, key=lambda one: (-one.crop_share, -one.scale, one.picture)))


def _duplicates(items: Sequence[Item]) -> tuple[tuple[str, ...], ...]:
    """Name the pictures that have the same content."""
    groups: dict[str, list[str]] = {}
    for item in items:
        groups.setdefault(item.digest, []).append(item.name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)
