"""Remembers what decoding a picture showed, by the digest of its bytes, so that a second scan need not decode it again.

Names and times are never trusted: every file's bytes are read and digested each time, only the decoding is saved.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import PIL

from trainers.core import atomic, digest

from .decode import DECODER, PictureError, decode, read_file

_LIMIT = 200_000
_NAME = "pictures.json"
_VERSION = f"{DECODER}/{PIL.__version__}"


@dataclass(frozen=True)
class Seen:
    """What a whole decode showed: (height, width) upright, whether any pixel is transparent, and what was noticed."""

    size: tuple[int, int]
    has_alpha: bool
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Look:
    """One file looked at: its digest, and either what was seen or why it cannot be used."""

    digest: str = ""
    seen: Seen | None = None
    error: str = ""


class DecodeIndex:
    """Results by digest, kept in one small file of the cache folder; without a folder it only lives in memory.

    A damaged or older file is as good as none. Failures are not kept: they are rare, and a newer Pillow may read them.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / _NAME
        self._seen = {} if self._path is None else _read(self._path)
        self._fresh: dict[str, Seen] = {}

    def look(self, path: Path) -> Look:
        """Read and digest a file, and decode it unless equal bytes were decoded before. Safe in threads."""
        try:
            data = read_file(path)
            name = digest.of_bytes(data)
            known = self._seen.get(name)
            if known is not None:
                return Look(name, known)
            picture = decode(data)
        except PictureError as error:
            return Look(error=str(error))
        height, width = picture.pixels.shape[:2]
        seen = Seen((height, width), picture.alpha is not None, picture.warnings)
        self._fresh[name] = seen
        self._seen[name] = seen
        return Look(name, seen)

    def save(self) -> None:
        """Write new results to the cache folder, beside those that another process wrote meanwhile."""
        if self._path is None or not self._fresh:
            return
        merged = {**_read(self._path), **self._fresh}
        kept = list(merged.items())[-_LIMIT:]
        document = {"version": _VERSION, "pictures": {name: asdict(seen) for name, seen in kept}}
        atomic.write_bytes(self._path, json.dumps(document, separators=(",", ":")).encode(), durable=False)
        self._fresh = {}


def _read(path: Path) -> dict[str, Seen]:
    """Read the index; anything unexpected in it makes it empty."""
    try:
        document = json.loads(path.read_bytes())
        if document["version"] != _VERSION:
            return {}
        return {
            name: Seen((int(one["size"][0]), int(one["size"][1])), bool(one["has_alpha"]), tuple(one["notes"]))
            for name, one in document["pictures"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return {}
