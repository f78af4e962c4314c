"""The preset of a run as it is kept with the run: complete in itself, overrides and extensions written in."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomlkit

from . import edit, paths

if TYPE_CHECKING:
    from .load import Loaded


def frozen_text(loaded: Loaded, folder: Path) -> str:
    """The preset as TOML that means the same from `folder`: comments kept, `--set` and `extends` worked in."""
    document = copy.deepcopy(loaded.document)
    edit.remove(document, "extends")
    given = loaded.preset.model_dump(mode="json", exclude_unset=True)
    for path, value in _leaves(given):
        edit.set_value(document, path, value)
    _prune(document, given, document)
    paths.rebase(document, loaded.folder, folder, absent=True)  # class pictures may be still to be made
    return tomlkit.dumps(document)


def _prune(node: Any, given: Any, document: Any, path: tuple[str | int, ...] = ()) -> None:
    """Remove what an override has replaced: keys of `node`, the part of the document at `path`, that are not given."""
    if isinstance(node, Mapping) and isinstance(given, Mapping):
        for key in list(node):
            if key not in given:
                edit.remove(document, (*path, key))
            else:
                _prune(node[key], given[key], document, (*path, key))
    elif isinstance(node, list) and isinstance(given, list):
        for number, (inner, value) in enumerate(zip(node, given, strict=False)):
            _prune(inner, value, document, (*path, number))


def _leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every value that is no table, and lists whole; what is None is absent in TOML."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, (*path, number))
    elif value is not None:
        yield path, value
