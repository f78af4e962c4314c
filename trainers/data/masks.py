"""Finds the mask of each picture: "cat-mask.png" or "cat-masklabel.png" beside "cat.jpg", or from a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainers.core.errors import Problem

from .config import Concept
from .listing import Listing, fold, list_files, resolve, split

_OTHER_SUFFIX = "-masklabel"
_SHAPE_TOLERANCE = 0.02


class Masks:
    """The masks of one concept. Mask files are never training pictures, whether they are used or not."""

    def __init__(self, concept: Concept, listing: Listing, base: Path) -> None:
        self.problems: list[Problem] = []
        self._concept = concept
        self._listing = listing
        self._suffixes = tuple(dict.fromkeys((concept.mask_suffix, _OTHER_SUFFIX)))
        self._folder = None if concept.mask_folder is None else resolve(base, concept.mask_folder)
        self._beside = self._masks_beside()
        self._in_folder = {} if self._folder is None else self._masks_in(self._folder)

    def without_masks(self, names: Sequence[str]) -> tuple[str, ...]:
        """Take mask files out of a list of pictures."""
        masks = set(self._beside.values())
        inside = self._places_in_folder()
        return tuple(name for name in names if name not in masks and split(name)[0] not in inside)

    def _places_in_folder(self) -> set[str]:
        """Find the relative folders that lie in the mask folder, however that is spelled: "Masks" may be "masks"."""
        if self._folder is None or not self._folder.is_dir():
            return set()
        top = self._folder.resolve()
        places = {split(name)[0] for name in self._listing.pictures}
        return {place for place in places if _lies_in(self._listing.path(place).resolve(), top)}

    @property
    def unused(self) -> tuple[str, ...]:
        """Mask files beside pictures although no masks are asked for."""
        return () if self._concept.mask == "files" else tuple(sorted(self._beside.values()))

    def of(self, name: str) -> Path | None:
        """Return the mask file of a picture."""
        if self._concept.mask != "files":
            return None
        folder, stem, _ = split(name)
        if self._folder is not None:
            return self._in_folder.get(fold(f"{folder}/{stem}")) or self._in_folder.get(fold(f"/{stem}"))
        mask = self._beside.get(name)
        return None if mask is None else self._listing.path(mask)

    def files(self, names: Sequence[str]) -> tuple[Path, ...]:
        """List the mask files of these pictures."""
        return tuple(path for path in map(self.of, names) if path is not None)

    def _masks_beside(self) -> dict[str, str]:
        """Map relative picture names to relative names of masks beside them."""
        masks: dict[str, str] = {}
        for name in self._listing.pictures:
            bare = fold(name.rpartition(".")[0])
            for suffix in map(fold, self._suffixes):
                if bare.endswith(suffix):
                    masks.setdefault(bare.removesuffix(suffix), name)
        bares = {name: fold(name.rpartition(".")[0]) for name in self._listing.pictures} if masks else {}
        return {name: masks[bare] for name, bare in bares.items() if bare in masks and masks[bare] != name}

    def _masks_in(self, folder: Path) -> dict[str, Path]:
        """Map "folder/stem" of the masks in the mask folder to their files, with and without a mask suffix."""
        try:
            listing = list_files(folder)
        except OSError as error:
            what = f"the mask folder cannot be read: {error.strerror or error}"
            self.problems.append(Problem(str(folder), what, "correct mask_folder"))
            return {}
        found: dict[str, Path] = {}
        for name in listing.pictures:
            place, stem, _ = split(name)
            bare = fold(f"{place}/{stem}")
            for suffix in map(fold, ("", *self._suffixes)):
                if bare.endswith(suffix):
                    found.setdefault(bare.removesuffix(suffix), listing.path(name))
        return found


def _lies_in(folder: Path, top: Path) -> bool:
    """Tell whether a folder is `top` or below it; the system decides whether names of another case are the same."""
    return any(one == top or (one.name.casefold() == top.name.casefold() and one.samefile(top)) for one in _up(folder))


def _up(folder: Path) -> tuple[Path, ...]:
    return (folder, *folder.parents)


def same_shape(picture: tuple[int, int], mask: tuple[int, int]) -> bool:
    """Tell whether a mask has the shape of its picture; its resolution may differ."""
    return abs(picture[0] * mask[1] / (picture[1] * mask[0]) - 1.0) <= _SHAPE_TOLERANCE
