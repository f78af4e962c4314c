"""Read a preset: TOML in, one checked `Preset` out, or every problem at once with file, line, key and remedy."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from tomlkit import TOMLDocument

from trainers.core import digest
from trainers.core.errors import Problem, UserError, nearest
from trainers.core.facts import Facts

from . import checks, edit, library, sources
from . import problems as wording
from .lines import Path as KeyPath
from .plugins import OBJECTIVE_OF_PATH, PLUGIN_PACKAGES, configs, facts_of, families
from .preset import Preset
from .sources import Sources


@dataclass(frozen=True)
class Loaded:
    """A checked preset and where it came from.

    `document` is the file's own, migrated; `text` is the file as it was read. `digest` names the values after every
    default, extension and override, so comments and order do not change it. `notes` are for people to read.
    """

    preset: Preset
    path: Path
    text: str
    document: TOMLDocument
    digest: str
    notes: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where relative paths of the preset start."""
        return self.path.parent


class PresetError(UserError):
    """A preset with problems; `notes` tells what was migrated before they were found."""

    def __init__(self, problems: Sequence[Problem], notes: Sequence[str] = ()) -> None:
        super().__init__(problems)
        self.notes = tuple(notes)


def load_preset(path: str | Path, overrides: Sequence[str] = ()) -> Loaded:
    """Read and check a preset file, or one that comes with the suite by its name ("sd15/lora-12gb").

    `overrides` are "a.b=c" texts as given by --set. Raises UserError (PresetError) with all problems.
    """
    found = sources.read(library.locate(path))
    sources.override(found, overrides)
    _complete(found.values, found.path)
    preset, problems = _validate(found)
    if preset is not None:
        facts = facts_of(preset.model.family)
        problems += checks.problems(preset, facts, found.where)
        found.notes += checks.notes(preset)
    problems = found.problems + problems
    if preset is None or problems:
        raise PresetError(sorted(problems, key=_reading_order), found.notes)
    return Loaded(preset, found.path, found.text, found.document, digest_of(preset), tuple(found.notes))


def digest_of(preset: Preset) -> str:
    """Name a preset by its values."""
    return digest.of_json(preset.values())


def from_values(values: dict[str, Any]) -> Preset:
    """Check plain values, as a form gives them. Raises UserError with all problems, named by key."""
    found = Sources(Path("preset"), "", TOMLDocument(), edit.copied(values))
    _complete(found.values, None)
    preset, problems = _validate(found)
    if preset is not None:
        problems += checks.problems(preset, facts_of(preset.model.family), found.where)
    if preset is None or problems:
        raise PresetError(problems)
    return preset


def _complete(values: dict[str, Any], path: Path | None) -> None:
    """Fill in what can be known from the place of the file and the family: name, kind of optimizer and objective."""
    run, optimizer, objective = values.get("run"), values.get("optimizer"), values.get("objective")
    if path is not None and isinstance(run, dict):
        run.setdefault("name", re.sub(r'[<>:"/\\|?*\x00-\x1f]', "-", path.stem).strip(" .") or "run")
    if isinstance(optimizer, dict) and "adamw" in configs(PLUGIN_PACKAGES["optimizer"]):
        values["optimizer"] = {"kind": "adamw", **optimizer}
    facts = _facts_in(values)
    if isinstance(objective, dict) and facts is not None:
        values["objective"] = {"kind": OBJECTIVE_OF_PATH[facts.path], **objective}


def _facts_in(values: dict[str, Any]) -> Facts | None:
    model = values.get("model")
    family = model.get("family") if isinstance(model, dict) else None
    return facts_of(family) if family in families() else None


def _validate(found: Sources) -> tuple[Preset | None, list[Problem]]:
    """Check the values against the schema; give the preset, or what is wrong with it."""
    preset, errors = _check(found.values)
    if any(error["type"] == "string_type" and path in found.raw for path, error in errors.items()):
        for path, raw in found.raw.items():  # --set run.name=2024 means the text, since a name is wanted
            if errors.get(path, {}).get("type") == "string_type":
                edit.set_value(found.values, path, raw)
        preset, errors = _check(found.values)
    problems = [wording.problem(path, error, found.values, found.where) for path, error in errors.items()]
    problems += [
        Problem(found.where(path), "must be a finite number, not inf or nan")
        for path, value in _leaves(found.values)
        if isinstance(value, float) and not math.isfinite(value) and path not in errors
    ]  # fmt: skip
    problems += _family_problem(found)
    return (None if problems else preset), problems


def _check(values: dict[str, Any]) -> tuple[Preset | None, dict[KeyPath, Any]]:
    """Validate twice: as pydantic does, and strictly, to find texts in the place of numbers."""
    preset = lax = strict = None
    try:
        preset = Preset.model_validate(values)
    except ValidationError as error:
        lax = error
    try:
        Preset.model_validate(values, strict=True)
    except ValidationError as error:
        strict = error
    return preset, wording.collect(lax, strict) if lax or strict else {}


def _family_problem(found: Sources) -> list[Problem]:
    model = found.values.get("model")
    family = model.get("family") if isinstance(model, dict) else None
    if not isinstance(family, str) or family in families():
        return []
    hint = nearest(family, families())
    remedy = (f'did you mean "{hint}"? ' if hint else "") + f"families are {', '.join(families())}"
    return [Problem(found.where(("model", "family")), f'there is no model family "{family}"', remedy)]


def _leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _leaves(inner, (*path, number))
    else:
        yield path, value


def _reading_order(problem: Problem) -> tuple[bool, str, int]:
    """Sort by file and line; what came by --set is last."""
    match = re.match(r"(.*?):(\d+)(?::|$)", problem.where)
    name, line = (match.group(1), int(match.group(2))) if match else (problem.where, 0)
    return problem.where.startswith("--set"), name, line
