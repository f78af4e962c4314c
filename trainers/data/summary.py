"""The data report in a few numbers and names, as a plan holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .buckets import Fit
from .items import Item
from .report import DataReport

_NAMED = 12


@dataclass(frozen=True)
class CutGroup:
    """Pictures whose captions are too long for these encoders: how many, and the names of the first ones."""

    encoders: tuple[str, ...]
    fits: int
    count: int
    pictures: tuple[str, ...]


@dataclass(frozen=True)
class DataSummary:
    """What a person should know about the data before a run.

    `found`, `empty`, `missing` and `made` count pictures by how they came to their captions. `cut` is None where tokens
    could not be counted. Of (picture, number) pairs the picture is "" where nothing is cropped or enlarged:
    `crop_most` has the share that is cut off, `scale_most` the factor.
    """

    found: int
    empty: int
    missing: int
    made: int
    cut: tuple[CutGroup, ...] | None
    crop_most: tuple[str, float]
    enlarged: int
    scale_most: tuple[str, float]
    kept_small: int
    duplicates: int


def summarize(report: DataReport, items: Sequence[Item], fits: Mapping[str, Fit]) -> DataSummary:
    """Sum up a report on these items, whose shapes are in `fits` by id."""
    shapes = [(item.name, fits[item.id]) for item in items if item.id in fits]
    enlarged = [(name, fit.scale) for name, fit in shapes if fit.note == "upscaled"]
    cropped = [(name, fit.crop_share) for name, fit in shapes if fit.crop_share > 0.0]
    return DataSummary(
        found=sum(row.found for row in report.captions),
        empty=sum(row.empty for row in report.captions),
        missing=sum(row.missing for row in report.captions),
        made=sum(row.made for row in report.captions),
        cut=_cut_groups(report) if report.tokens else None,
        crop_most=_most(cropped, ("", 0.0)),
        enlarged=len(enlarged),
        scale_most=_most(enlarged, ("", 1.0)),
        kept_small=sum(fit.note == "kept small" for _, fit in shapes),
        duplicates=sum(len(names) - 1 for names in report.duplicates),
    )


def _most(entries: Sequence[tuple[str, float]], none: tuple[str, float]) -> tuple[str, float]:
    return max(entries, key=lambda entry: entry[1], default=none)


def _cut_groups(report: DataReport) -> tuple[CutGroup, ...]:
    """Put encoders that cut the same pictures at the same length together: those of SDXL mostly do."""
    pictures: dict[tuple[str, int], list[str]] = {}
    for one in report.cut:
        pictures.setdefault((one.encoder, one.fits), []).append(one.picture)
    encoders: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for (encoder, fits), names in pictures.items():
        encoders.setdefault((fits, tuple(dict.fromkeys(names))), []).append(encoder)
    return tuple(CutGroup(tuple(group), fits, len(names), names[:_NAMED]) for (fits, names), group in encoders.items())
