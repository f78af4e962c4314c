"""Turns the looked-at files of one concept into items, and everything else into a list of what was left out and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainers.core.errors import Problem

from .caption_rules import ConceptCaptions
from .config import Concept, DataConfig
from .decode_index import Look
from .items import Item, LeftOut
from .listing import Listing, some, split
from .masks import Masks, same_shape

_FOREIGN_REMEDY = "convert it to JPEG or PNG, or move it away"
_BAD_REMEDY = "replace or remove it"


@dataclass(frozen=True)
class Job:
    """One concept to be scanned: its number, its files, and which of them are pictures."""

    number: int
    concept: Concept
    listing: Listing
    masks: Masks
    names: tuple[str, ...]


@dataclass
class Findings:
    """What is collected over the concepts. Items have their digest as id until duplicates are numbered."""

    items: list[Item] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    errors: list[Problem] = field(default_factory=list)


def gather(job: Job, config: DataConfig, base: Path, looks: Mapping[Path, Look], found: Findings) -> None:
    """Add the items, left-outs and problems of one concept to `found`."""
    good: list[tuple[str, Look]] = []
    for name in job.names:
        look = looks[job.listing.path(name)]
        if look.seen is None:
            _leave_out_bad(job, config, name, look.error, _BAD_REMEDY, found)
            continue
        good.append((name, look))
        found.warnings += [Problem(str(job.listing.path(name)), note) for note in look.seen.notes]
    for name in job.listing.foreign:
        reason = f"{split(name)[2].lstrip('.').upper()} pictures cannot be read"
        _leave_out_bad(job, config, name, reason, _FOREIGN_REMEDY, found)
    _leave_out_others(job, found)
    trigger = config.trigger_of(job.concept)
    captions = ConceptCaptions(job.concept, trigger, job.listing, base, config.encoding == "strict")
    found.items += [_item(job, name, look, captions, trigger, looks, found) for name, look in good]
    captions.conclude()
    found.warnings += captions.warnings
    found.errors += captions.errors + job.masks.problems
    _say_masks(job, found)
    if not good and not job.concept.generate:
        what = "holds no picture" if not job.names else "holds no picture that can be read"
        found.errors.append(Problem(str(job.listing.folder), what, f"check folder of concept {job.number + 1}"))


def _leave_out_bad(job: Job, config: DataConfig, name: str, reason: str, remedy: str, found: Findings) -> None:
    path = job.listing.path(name)
    found.left_out.append(LeftOut(path, job.number, reason, remedy, bad=True))
    if config.bad_files == "stop":
        found.errors.append(Problem(str(path), reason, f'{remedy}, or set bad_files = "skip"'))
    else:
        found.warnings.append(Problem(str(path), reason, remedy))


def _leave_out_others(job: Job, found: Findings) -> None:
    """List videos and masks that nobody asked for."""
    for name in job.listing.videos:
        found.left_out.append(LeftOut(job.listing.path(name), job.number, "it is a video; only pictures are used"))
    for name in job.masks.unused:
        remedy = 'set mask = "files" to use it, or rename it if it is a picture of its own'
        found.left_out.append(LeftOut(job.listing.path(name), job.number, "it is the mask of another picture", remedy))


def _item(
    job: Job,
    name: str,
    look: Look,
    captions: ConceptCaptions,
    trigger: str | None,
    looks: Mapping[Path, Look],
    found: Findings,
) -> Item:
    """Make the item of one good picture."""
    if look.seen is None:
        raise ValueError(f"{name} was not decoded")
    concept = job.concept
    captioned = captions.of(name)
    mask, mask_digest = _mask(job, name, look, looks, found)
    return Item(
        id=look.digest,
        path=job.listing.path(name),
        name=name,
        digest=look.digest,
        concept=job.number,
        role="class" if concept.role == "class" else "train",
        size=look.seen.size,
        captions=captioned.texts,
        has_alpha=look.seen.has_alpha,
        mask=mask,
        mask_digest=mask_digest,
        repeats=concept.repeats,
        weight=concept.weight,
        validation=concept.role == "validation",
        trigger=trigger,
        caption_state=captioned.state,
    )


def _mask(
    job: Job, name: str, look: Look, looks: Mapping[Path, Look], found: Findings
) -> tuple[Path | Literal["alpha"] | None, str]:
    """Find the mask of an item and the digest of its file; a broken or misshapen one is an error."""
    if job.concept.mask == "alpha" and look.seen is not None and look.seen.has_alpha:
        return "alpha", ""
    path = job.masks.of(name)
    if path is None or look.seen is None:
        return None, ""
    mask = looks[path]
    if mask.seen is None:
        found.errors.append(Problem(str(path), f"mask: {mask.error}", "replace or remove it"))
        return None, ""
    if not same_shape(look.seen.size, mask.seen.size):
        sizes = [f"{width}x{height}" for height, width in (mask.seen.size, look.seen.size)]
        what = f"the mask has another shape ({sizes[0]}) than its picture ({sizes[1]})"
        found.errors.append(Problem(str(path), what, "make both of one shape"))
    return path, mask.digest


def _say_masks(job: Job, found: Findings) -> None:
    """Warn where masks were asked for and some pictures have none."""
    if job.concept.mask == "none":
        return
    mine = [item for item in found.items if item.concept == job.number]
    bare = [item.name for item in mine if item.mask is None]
    if bare:
        kind = "no transparent part" if job.concept.mask == "alpha" else "no mask file"
        what = f"{len(bare)} of {len(mine)} pictures have {kind} and count everywhere ({some(bare)})"
        found.warnings.append(Problem(str(job.listing.folder), what))
