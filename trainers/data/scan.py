"""Looks at every picture and caption before anything is loaded, and reports all that is wrong at once.

No file is trusted: each is read, digested and (once per content) fully decoded. One bad file is one entry in a list.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path

from trainers.core import random
from trainers.core.errors import Interrupted, Problem, nearest

from .config import Concept, DataConfig
from .decode_index import DecodeIndex, Look
from .gather import Findings, Job, gather
from .items import Item, LeftOut, Scan
from .listing import Listing, list_files, resolve
from .masks import Masks

__all__ = ["Item", "LeftOut", "Scan", "scan"]

_BLOCK = 64  # files between two questions whether to stop
_MAX_WORKERS = 8


def scan(
    config: DataConfig,
    base: Path,
    *,
    cache: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Scan:
    """Scan all concepts of a [data] section whose relative paths start at `base`.

    With `cache` (a folder) pictures decoded before are digested but not decoded again. `on_progress` gets (files done,
    files in all). `should_stop` is asked now and then; when it says so, Interrupted is raised. A bad file never raises.
    """
    found = Findings()
    jobs = []
    for number, concept in enumerate(config.concepts):
        listing = _list(number, concept, base, found)
        if listing is not None:
            masks = Masks(concept, listing, base)
            jobs.append(Job(number, concept, listing, masks, masks.without_masks(listing.pictures)))
    paths = [job.listing.path(name) for job in jobs for name in job.names]
    paths += [path for job in jobs for path in job.masks.files(job.names)]
    looks = _look_at(list(dict.fromkeys(paths)), DecodeIndex(cache), on_progress, should_stop)
    for job in jobs:
        gather(job, config, base, looks, found)
    items = _hold_out(_numbered(found.items), config.validation_share)
    found.warnings += _duplicates(items)
    return Scan(tuple(items), tuple(found.left_out), tuple(found.warnings), tuple(found.errors))


def _list(number: int, concept: Concept, base: Path, found: Findings) -> Listing | None:
    """List the files of a concept; a folder that is not there is an error, unless its pictures will be generated."""
    folder = resolve(base, concept.folder)
    where, field = str(folder), f"data.concepts[{number}].folder"
    if folder.is_file():
        found.errors.append(Problem(where, "is a file, not a folder", f"name its folder in {field}"))
        return None
    if not folder.exists():
        if not concept.generate:
            siblings = [one.name for one in folder.parent.iterdir()] if folder.parent.is_dir() else []
            hint = nearest(folder.name, siblings)
            remedy = f'did you mean "{hint}"? Correct {field}' if hint else f"correct {field}"
            found.errors.append(Problem(where, "this folder does not exist", remedy))
        return None
    try:
        return list_files(folder, recursive=concept.recursive)
    except OSError as error:
        found.errors.append(Problem(str(error.filename or folder), f"cannot be read: {error.strerror or error}"))
        return None


def _look_at(
    paths: Sequence[Path],
    index: DecodeIndex,
    on_progress: Callable[[int, int], None] | None,
    should_stop: Callable[[], bool] | None,
) -> dict[Path, Look]:
    """Read and decode files in threads (Pillow leaves Python's lock while it decodes)."""
    looks: dict[Path, Look] = {}
    waiting = iter(paths)
    try:
        with ThreadPoolExecutor(min(_MAX_WORKERS, os.cpu_count() or 1), thread_name_prefix="scan") as pool:
            while block := list(islice(waiting, _BLOCK)):
                if should_stop is not None and should_stop():
                    raise Interrupted("stopped while the pictures were read")
                looks.update(zip(block, pool.map(index.look, block), strict=True))
                if on_progress is not None:
                    on_progress(len(looks), len(paths))
    finally:
        index.save()
    return looks


def _numbered(items: Sequence[Item]) -> list[Item]:
    """Give each item its id: content, concept, and a number where the same content comes again."""
    counts: Counter[tuple[str, int]] = Counter()
    numbered = []
    for item in items:
        key = (item.digest, item.concept)
        counts[key] += 1
        again = f"~{counts[key]}" if counts[key] > 1 else ""
        numbered.append(replace(item, id=f"{item.digest}-{item.concept}{again}"))
    return numbered


def _hold_out(items: Sequence[Item], share: float) -> list[Item]:
    """Mark a share of the training pictures for validation, by content: equal pictures are never on both sides.

    The choice is a keyed one and does not change when the data are moved; at least one picture is left on each side.
    """
    contents = {item.digest for item in items if item.role == "train" and not item.validation}
    if share <= 0.0 or len(contents) < 2:
        return list(items)
    count = min(len(contents) - 1, max(1, round(share * len(contents))))
    ranked = sorted(contents, key=lambda digest: (random.uniform(0, "validation", digest), digest))
    held = set(ranked[:count])
    return [replace(item, validation=True) if item.role == "train" and item.digest in held else item for item in items]


def _duplicates(items: Sequence[Item]) -> list[Problem]:
    """Say which pictures are equal, and which are both trained on and held out. All are kept."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.digest, []).append(item)
    problems = []
    for group in groups.values():
        if len(group) < 2:
            continue
        names = ", ".join(item.name for item in group[1:])
        problems.append(Problem(str(group[0].path), f"has the same content as {names}; all are kept"))
        if len({item.validation for item in group}) == 2:
            problems.append(Problem(str(group[0].path), "is trained on and also used for validation", "remove one"))
    return problems
