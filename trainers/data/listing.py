"""Lists the files of a concept: what is a picture, what is not our business, and in which order they come."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from trainers.core.places import expanded

PICTURES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".gif", ".avif", ".jp2"}
    | {".ppm", ".pgm", ".pbm", ".tga", ".mpo", ".apng", ".qoi"}
)
FOREIGN = frozenset({".heic", ".heif", ".jxl", ".psd", ".dng", ".cr2", ".nef", ".arw", ".raw", ".svg"})
"""Pictures that need another program first; to pass over them in silence would lose half of a phone's photos."""
VIDEOS = frozenset({".mp4", ".mov", ".mkv", ".webm", ".avi", ".m4v"})
_SYSTEM_FILES = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r"})
_SYSTEM_FOLDERS = frozenset(
    {"__macosx", "__pycache__", "@eadir", "$recycle.bin", "system volume information", "lost+found", "#recycle"}
)


def fold(name: str) -> str:
    """Make names comparable over file systems: composed Unicode, no case, forward slashes."""
    return unicodedata.normalize("NFC", name).replace("\\", "/").casefold()


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort "2.png" before "10.png", the same on every system; the name itself decides between equals."""
    pieces = re.split(r"([0-9]+)", fold(name))
    # Every other piece is a number; `isdigit` would take "²" for one, too.
    key = [(0, int(piece), "") if at % 2 else (1, 0, piece) for at, piece in enumerate(pieces) if piece]
    return (*key, (2, 0, name))


@dataclass(frozen=True)
class Listing:
    """The files of one concept folder, by place. `pictures` are relative names in natural order."""

    folder: Path
    pictures: tuple[str, ...]
    foreign: tuple[str, ...]
    videos: tuple[str, ...]
    names: dict[str, dict[str, str]] = field(repr=False)
    """Per relative folder ("" is the top): folded file name -> file name as written.

    Of names that differ in case only, as Linux allows, the first in order has the folded one, the others their own.
    """

    def path(self, name: str) -> Path:
        """Return the full path of a relative name."""
        return self.folder / name

    def find(self, folder: str, name: str) -> Path | None:
        """Find a file by name in a relative folder: the one of just this name, else whatever its case."""
        names = self.names.get(folder, {})
        written = names.get(name) or names.get(fold(name))
        return None if written is None else self.folder / folder / written


def split(name: str) -> tuple[str, str, str]:
    """Split a relative name: (folder, stem, ending in lower case); "a/B.JPG" -> ("a", "B", ".jpg")."""
    pure = PurePosixPath(name)
    folder = "" if pure.parent == PurePosixPath(".") else str(pure.parent)
    return folder, pure.stem, pure.suffix.lower()


def list_files(folder: Path, *, recursive: bool = True) -> Listing:
    """List a concept folder; hidden and system names are passed over. Raises OSError when it cannot be read."""
    names: dict[str, dict[str, str]] = {}
    found: dict[str, list[str]] = {"pictures": [], "foreign": [], "videos": []}
    for place, name in sorted(_walk(folder, recursive), key=lambda one: (one[0], one[1] != fold(one[1]), one[1])):
        known = names.setdefault(place, {})
        if known.setdefault(fold(name), name) != name:
            known[name] = name
        ending = os.path.splitext(name)[1].lower()
        for kind, endings in (("pictures", PICTURES), ("foreign", FOREIGN), ("videos", VIDEOS)):
            if ending in endings:
                found[kind].append(f"{place}/{name}" if place else name)
    ordered = {kind: tuple(sorted(values, key=natural_key)) for kind, values in found.items()}
    return Listing(folder, ordered["pictures"], ordered["foreign"], ordered["videos"], names)


def _walk(top: Path, recursive: bool) -> Iterator[tuple[str, str]]:
    """Give (relative folder, file name); linked folders are entered once."""
    seen = {os.path.realpath(top)}
    waiting = [""]
    while waiting:
        place = waiting.pop()
        with os.scandir(top / place) as entries:
            for entry in entries:
                if entry.name.startswith(".") or fold(entry.name) in _SYSTEM_FILES:
                    continue
                if not entry.is_dir():
                    yield place, entry.name
                elif recursive and fold(entry.name) not in _SYSTEM_FOLDERS:
                    real = os.path.realpath(entry.path)
                    if real not in seen:
                        seen.add(real)
                        waiting.append(f"{place}/{entry.name}" if place else entry.name)


def resolve(base: Path, text: str) -> Path:
    """Find a folder or file named in a preset: "~" and paths relative to `base`; backslashes work everywhere."""
    path = base / expanded(text)
    if not path.exists() and os.sep == "/" and "\\" in text:
        path = base / expanded(text.replace("\\", "/"))
    return Path(os.path.abspath(path))


def some(names: Sequence[str], count: int = 8) -> str:
    """Name the first few files and count the rest."""
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more
