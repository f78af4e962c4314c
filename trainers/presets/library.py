"""The presets that come with the suite: list, show, find by name, copy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.core import places
from trainers.core.errors import UserError, nearest

from . import document as files
from . import paths

_FIELD = re.compile(r"^#\s*(goal|machine|time|result)\s*:\s*(.*)$", re.IGNORECASE)


@dataclass(frozen=True)
class Card:
    """One preset of the library: its name ("sd15/lora-12gb") and what the comment at its top says."""

    name: str
    path: Path
    family: str
    method: str
    goal: str
    machine: str
    time: str
    result: str


def list_presets(folder: Path | None = None) -> list[Card]:
    """List the presets of a folder, the suite's own one by default, sorted by name."""
    root = folder or places.presets_folder()
    return [_card(path, root) for path in sorted(root.rglob("*.toml"))]


def find(name: str, folder: Path | None = None) -> Path:
    """Return the file of a preset by name. Raises UserError with the nearest name."""
    root = folder or places.presets_folder()
    names = {_name(path, root): path for path in sorted(root.rglob("*.toml"))}
    key = name.replace("\\", "/").removesuffix(".toml")
    if key in names:
        return names[key]
    by_last = [known for known in names if known.rpartition("/")[2] == key]
    if len(by_last) == 1:
        return names[by_last[0]]
    near = by_last or [hit for hit in [nearest(key, list(names))] if hit]
    remedy = f"did you mean {' or '.join(near)}?" if near else "see `trainers presets list`"
    raise UserError(f'there is no preset "{name}"', remedy=remedy)


def locate(path: str | Path) -> Path:
    """Return the file that is meant: a path, or else the name of a preset of the suite."""
    file = places.expanded(path)
    if file.is_file():
        return file
    if file.is_dir():
        raise UserError("is a folder, not a preset file", where=str(path))
    try:
        return find(str(path))
    except UserError as error:
        raise UserError("there is no such file", where=str(path), remedy=error.problems[0].remedy) from error


def show(name: str, folder: Path | None = None) -> str:
    """Return the text of a preset."""
    return files.read_text(find(name, folder))


def copy(name: str, target: Path, folder: Path | None = None, *, overwrite: bool = False) -> Path:
    """Copy a preset to a file, or into a folder; paths in it still lead to the same files. Comments stay."""
    source = find(name, folder)
    is_folder = target.is_dir() or not target.suffix
    file = target / source.name if is_folder else target
    if file.exists() and not overwrite:
        raise UserError("exists already", where=str(file), remedy="choose another name")
    document = files.parse(files.read_text(source), str(source))
    paths.rebase(document, source.parent, file.parent)
    files.save(file, document)
    return file


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).with_suffix("").as_posix()


def _card(path: Path, root: Path) -> Card:
    text = files.read_text(path)
    values = files.parse(text, str(path)).unwrap()
    header = header_of(text)
    return Card(
        name=_name(path, root), path=path, family=_text_at(values, "model", "family"),
        method=_text_at(values, "train", "kind"),
        goal=header.get("goal", ""), machine=header.get("machine", ""), time=header.get("time", ""),
        result=header.get("result", ""),
    )  # fmt: skip


def _text_at(values: dict[str, Any], table: str, key: str) -> str:
    inner = values.get(table)
    return str(inner.get(key, "")) if isinstance(inner, dict) else ""


def header_of(text: str) -> dict[str, str]:
    """Read "# Goal: ...", "# Machine: ...", "# Time: ...", "# Result: ..." at the top; indented lines go on."""
    found: dict[str, str] = {}
    current = ""
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        match = _FIELD.match(line)
        if match:
            current = match.group(1).lower()
            found[current] = match.group(2).strip()
        elif current and re.match(r"^#\s{2,}\S", line):
            found[current] += " " + line[1:].strip()
        else:
            current = ""
    return found
