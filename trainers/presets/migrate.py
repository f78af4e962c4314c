"""Presets of older versions, brought up to date: one list of changes per version, applied to the document itself.

Comments and order stay; each change leaves a note. A file that has no `version` is not guessed at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tomlkit import TOMLDocument
from tomlkit.items import Item

from . import edit
from .lines import Path
from .preset import CURRENT_VERSION


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Moved:
    """A key that has another name since, and how its value is written now."""

    old: str
    new: str
    convert: Callable[[Any], Any] = _same


def _steps(value: Any) -> Any:
    return f"{value} steps" if isinstance(value, int) else value


CHANGES: dict[int, tuple[Moved, ...]] = {
    0: (
        Moved("run.steps", "run.length", _steps),
        Moved("model.kind", "model.family"),
        Moved("train.dim", "train.rank"),
        Moved("optimizer.learning_rate", "optimizer.lr"),
        Moved("memory.device", "compute.memory_limit"),
    ),
}
"""What changed from a version to the next one."""


@dataclass(frozen=True)
class Migrated:
    """What `migrate` made: the document, notes for people, and where each moved key stood."""

    document: TOMLDocument
    notes: tuple[str, ...]
    moved: dict[Path, Path]


def migrate(document: TOMLDocument) -> Migrated:
    """Return a document brought up to the current version. It must have a `version` of at most that."""
    first = int(document["version"])
    notes: list[str] = []
    moved: dict[Path, Path] = {}
    for version in range(first, CURRENT_VERSION):
        for change in CHANGES[version]:
            old, new = tuple(change.old.split(".")), tuple(change.new.split("."))
            if edit.has(document, old) and not edit.has(document, new):
                value = edit.get(document, old)
                plain = value.unwrap() if isinstance(value, Item) else value
                document = edit.move(document, old, new, change.convert(plain))
                moved[new] = old
                notes.append(f"{change.old} is called {change.new} since version {version + 1}")
    if first < CURRENT_VERSION:
        document["version"] = CURRENT_VERSION
    return Migrated(document, tuple(notes), moved)


def renamed(path: str) -> str | None:
    """Return the present name of a key that an older version had."""
    for changes in CHANGES.values():
        for change in changes:
            if change.old == path:
                return change.new
    return None
