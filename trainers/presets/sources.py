"""Where the values of a preset come from: its file, the file it extends, the command line. Each keeps its place."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError

from trainers.core.errors import Problem, UserError
from trainers.core.places import expanded

from . import document as files
from . import edit, paths
from .lines import Path as KeyPath
from .lines import lines_of
from .migrate import migrate
from .preset import CURRENT_VERSION


@dataclass
class Sources:
    """Merged values, the place of each ("file:line" or "--set a.b"), notes and problems found so far."""

    path: Path
    text: str
    document: TOMLDocument
    values: dict[str, Any]
    places: dict[KeyPath, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    raw: dict[KeyPath, str] = field(default_factory=dict)
    parent: Path | None = None

    def where(self, path: KeyPath) -> str:
        """Name the place of a key: the nearest one known on the way to it, and its dotted name."""
        for length in range(len(path), -1, -1):
            place = self.places.get(path[:length])
            if place is not None:
                break
        else:
            place = str(self.path)
        if place.startswith("--set") or not path:
            return place
        return f"{place}: {edit.write_path(path)}"


def read(path: Path, _chain: tuple[Path, ...] = ()) -> Sources:
    """Read a preset file, and below it the file it extends. Raises UserError where a file is no TOML at all."""
    text = files.read_text(path)
    document = files.parse(text, str(path))
    lines = lines_of(text)
    found = Sources(path, text, document, {})
    found.document = _up_to_date(found, lines)
    found.values = found.document.unwrap()
    found.places = {key: f"{path}:{line}" for key, line in lines.items()}
    base = found.values.pop("extends", None)
    if base is not None:
        _extend(found, base, (*_chain, path.resolve()))
    return found


def _up_to_date(found: Sources, lines: dict[KeyPath, int]) -> TOMLDocument:
    """Check the version and migrate an older document; `lines` learns where moved keys stand."""
    version = found.document.get("version")
    if version is None:
        remedy = f"add version = {CURRENT_VERSION} as the first line"
        found.problems.append(Problem(str(found.path), "version is missing", remedy))
        return found.document
    place = f"{found.path}:{lines.get(('version',), 1)}: version"
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise UserError("must be a whole number", where=place, remedy=f"write version = {CURRENT_VERSION}")
    if version > CURRENT_VERSION:
        raise UserError(
            f"this preset is of version {version}, made for a newer release; this one reads up to {CURRENT_VERSION}",
            where=place, remedy="update the suite, or save the preset with the older release",
        )  # fmt: skip
    migrated = migrate(found.document)
    for new, old in migrated.moved.items():
        lines[new] = lines[old]
    places = [f"{found.path}:{lines[new]}" for new in migrated.moved]
    found.notes += [f"{place}: {note}" for place, note in zip(places, migrated.notes, strict=True)]
    return migrated.document


def _extend(found: Sources, base: Any, chain: tuple[Path, ...]) -> None:
    """Put the values of the extended file below those of this one; its relative paths are made to hold here."""
    place = found.where(("extends",))
    if not isinstance(base, str):
        raise UserError("must be the path of another preset in quotation marks", where=place)
    target = paths.absolute(base, found.path.parent)
    if target.resolve() in chain:
        raise UserError(f"{base} extends this file in turn", where=place, remedy="break the circle")
    if not target.is_file():
        raise UserError(f"there is no file {target}", where=place, remedy="the path starts at this preset's folder")
    below = read(target, chain)
    paths.rebase(below.values, target.parent, found.path.parent)
    found.values = _merged(below.values, found.values)
    found.places = {**below.places, **found.places}
    found.notes = [f"{found.path} extends {target}", *below.notes, *found.notes]
    found.problems = below.problems + found.problems
    found.parent = target


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge tables key by key; lists are replaced, and so is a table whose `kind` changes."""
    result = dict(below)
    for key, value in above.items():
        under = below.get(key)
        result[key] = _merged(under or {}, value) if _same_form(under, value) else value
    return result


def _same_form(below: Any, above: Any) -> bool:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return False
    return bool(above.get("kind", below.get("kind")) == below.get("kind"))


@dataclass(frozen=True)
class Override:
    """One `--set KEY=VALUE`: `value` as TOML reads it, else the text itself; `raw` is the text."""

    path: KeyPath
    value: Any
    raw: str


def parse_override(text: str) -> Override:
    """Read "a.b=c". Raises ValueError with a sentence for people."""
    key, equals, raw = text.partition("=")
    if not equals:
        raise ValueError("write it as KEY=VALUE, for example --set optimizer.lr=1e-4")
    raw = raw.strip()
    return Override(edit.parse_path(key.strip()), _toml_value(raw), raw)


def _toml_value(raw: str) -> Any:
    try:
        parsed = tomlkit.parse(f"x = {raw}\n").unwrap()
    except TOMLKitError:
        return raw
    plain = (str, int, float, bool, list, dict)
    return parsed["x"] if list(parsed) == ["x"] and isinstance(parsed["x"], plain) else raw


def override(found: Sources, overrides: Sequence[str]) -> None:
    """Apply `--set` values to the merged values; mistakes in them are collected with the others.

    Setting the `kind` of a table to another one keeps the table's other keys, which may then be refused by name.
    """
    for text in overrides:
        try:
            one = parse_override(text)
            value = _near_the_shell(found, one)
            edit.set_value(found.values, one.path, copy.deepcopy(value))
        except ValueError as error:
            found.problems.append(Problem(f"--set {text}", str(error)))
        except UserError as error:
            found.problems += [Problem(f"--set {text}", problem.what, problem.remedy) for problem in error.problems]
        else:
            found.places[one.path] = f"--set {text}"
            found.raw[one.path] = one.raw


def _near_the_shell(found: Sources, one: Override) -> Any:
    """Let a path on the command line start at the current folder, if it is only found from there."""
    is_path = any(
        len(pattern) == len(one.path) and all(want in ("*", part) for want, part in zip(pattern, one.path, strict=True))
        for pattern in paths.PATH_KEYS
    )  # fmt: skip
    if not is_path or not isinstance(one.value, str) or one.value.startswith(paths.BUILTIN):
        return one.value
    here, there = Path.cwd() / expanded(one.value), paths.absolute(one.value, found.path.parent)
    return here.as_posix() if here.exists() and not there.exists() else one.value
