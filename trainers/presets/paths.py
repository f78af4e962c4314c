"""Paths in a preset: relative ones start at the folder of its file; "builtin:NAME" and hub ids are no paths."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainers.core.places import expanded

from . import edit
from .lines import Path as KeyPath

PATH_KEYS = (
    ("run", "out"),
    ("model", "weights"),
    ("model", "vae"),
    ("train", "init_from"),
    ("data", "concepts", "*", "folder"),
    ("data", "concepts", "*", "mask_folder"),
    ("data", "concepts", "*", "metadata_file"),
)
"""Keys whose value is, or may be, a path; "*" is every entry of a list."""

_HUB_KEYS: tuple[KeyPath, ...] = (("model", "weights"), ("model", "vae"))
"""Those whose value may be a hub id or a built-in model as well."""

BUILTIN = "builtin:"


def absolute(text: str, base: Path) -> Path:
    """Return the path that `text` means in a preset of folder `base`. "~" is the user's home."""
    return base / expanded(text)


def is_local(text: str, base: Path) -> bool:
    """Tell whether `text` names something on this machine rather than a built-in model or a hub id."""
    if text.startswith(BUILTIN):
        return False
    explicit = text.startswith((".", "~", "/", "\\")) or Path(text).is_absolute()
    return explicit or absolute(text, base).exists()


def rebase(document: Any, old: Path, new: Path, *, absent: bool = False) -> None:
    """Rewrite the relative paths of a document (or plain dicts) of folder `old`, so that they hold in folder `new`.

    Paths to what does not exist stay as they are, since they may be meant for the new place; `absent` moves them too.
    """
    for path in list(_paths_in(document, PATH_KEYS)):
        text = edit.get(document, path)
        if not isinstance(text, str) or expanded(text).is_absolute():
            continue
        if not is_local(text, old) and (path in _HUB_KEYS or not absent):
            continue
        edit.set_value(document, path, between(absolute(text, old), new))


def between(target: Path, folder: Path) -> str:
    """Write `target` as seen from `folder`, with "/" on every system; absolute where there is no relative way."""
    try:
        return Path(os.path.relpath(target, folder)).as_posix()
    except ValueError:  # another drive on Windows
        return target.resolve().as_posix()


def _paths_in(document: Any, patterns: tuple[tuple[str, ...], ...]) -> Iterator[KeyPath]:
    for pattern in patterns:
        yield from _expand(document, pattern, ())


def _expand(document: Any, pattern: tuple[str, ...], done: KeyPath) -> Iterator[KeyPath]:
    if not pattern:
        if edit.has(document, done):
            yield done
        return
    if pattern[0] != "*":
        yield from _expand(document, pattern[1:], (*done, pattern[0]))
        return
    entries = edit.get(document, done) if edit.has(document, done) else ()
    for number in range(len(entries) if isinstance(entries, list) else 0):
        yield from _expand(document, pattern[1:], (*done, number))
