"""Captions of many pictures in one file: metadata.jsonl and .csv (Hugging Face imagefolder), .json (kohya, others)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from trainers.core.errors import Problem

from .listing import fold
from .text import TextError, read_text

METADATA_NAMES = tuple(
    stem + ending for ending in (".jsonl", ".csv", ".json") for stem in ("metadata", "captions", "meta_cap", "dataset")
)
NAME_FIELDS = ("file_name", "filename", "file", "image", "image_path", "path", "image_file", "name")
TEXT_FIELDS = ("text", "caption", "prompt", "description")


@dataclass
class Metadata:
    """Captions by picture, found by relative path, by path without ending, or by name alone where that is unique."""

    where: str = ""
    rows: dict[str, list[str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _short: dict[str, set[str]] = field(default_factory=dict)

    def add(self, name: str, texts: list[str]) -> None:
        """Add the captions of one row; a picture may have several rows."""
        key = fold(name).removeprefix("./")
        self.rows.setdefault(key, []).extend(texts)
        pure = PurePosixPath(key)
        for short in {str(pure.with_suffix("")), pure.name, pure.stem}:
            self._short.setdefault(short, set()).add(key)

    def of(self, name: str) -> list[str] | None:
        """Return the captions of a picture by its name relative to the metadata file; None when it has no row."""
        key = fold(name)
        pure = PurePosixPath(key)
        if key in self.rows:
            return self.rows[key]
        for short in (key, str(pure.with_suffix("")), pure.name, pure.stem):
            keys = self._short.get(short, set())
            if len(keys) == 1:
                return self.rows[next(iter(keys))]
        return None


def texts_of(value: Any) -> list[str] | None:
    """Take the captions out of a JSON value: a text, a list of texts, or an object with a caption and tags."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return value if all(isinstance(one, str) for one in value) else None
    if not isinstance(value, dict):
        return None
    texts = next((texts_of(value[name]) for name in TEXT_FIELDS if value.get(name) is not None), None)
    tags = value.get("tags")
    if tags is None:
        return texts
    joined = ", ".join(str(tag) for tag in tags) if isinstance(tags, list) else str(tags)
    return [f"{text}, {joined}" if joined else text for text in texts] if texts else [joined]


def read_metadata(path: Path, *, strict: bool = False) -> Metadata:
    """Read a metadata file; what is wrong in it is kept in `problems`, each with its line."""
    found = Metadata(path.name)
    try:
        text, warning = read_text(path, strict=strict)
        if warning is not None:
            found.problems.append(warning)
        for line, name, value in _rows(path, text):
            texts = texts_of(value)
            if name is None:
                raise TextError(f"line {line} names no picture; it needs one of {', '.join(NAME_FIELDS[:4])}")
            if texts is None:
                raise TextError(f"line {line} has no caption; it needs one of {', '.join(TEXT_FIELDS)} or tags")
            found.add(name, texts)
    except (TextError, json.JSONDecodeError, csv.Error) as error:
        found.problems.append(
            Problem(str(path), f"cannot be used: {error}", "correct it, or take it out of the folder")
        )
        found.rows.clear()
    return found


def _rows(path: Path, text: str) -> Iterator[tuple[int, str | None, Any]]:
    """Give (line, name of the picture, JSON value with its captions)."""
    kind = path.suffix.lower()
    if kind == ".jsonl":
        for number, line in enumerate(text.split("\n"), start=1):  # `splitlines` would cut at rare letters of captions
            if line.strip():
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise TextError(f"line {number} is no JSON: {error.msg}") from error
                yield number, _name_of(row), row
    elif kind == ".csv":
        yield from _csv_rows(text)
    else:
        document = json.loads(text)
        if isinstance(document, dict):
            yield from ((number, name, value) for number, (name, value) in enumerate(document.items(), start=1))
        elif isinstance(document, list):
            yield from ((number, _name_of(row), row) for number, row in enumerate(document, start=1))
        else:
            raise TextError("it is neither an object by picture names nor a list of rows")


def _csv_rows(text: str) -> Iterator[tuple[int, str | None, Any]]:
    """Read comma, semicolon or tab separated rows with a heading."""
    heading = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=heading.count)
    reader = csv.DictReader(io.StringIO(text), delimiter=delimiter)
    columns = {(name or "").strip().lower(): name for name in reader.fieldnames or ()}
    if not any(name in columns for name in NAME_FIELDS) or not any(name in columns for name in (*TEXT_FIELDS, "tags")):
        raise TextError(f"its heading must name the columns file_name and text; it has {', '.join(columns) or 'none'}")
    for row in reader:
        lowered = {name: (row.get(written) or "") for name, written in columns.items()}
        yield reader.line_num, _name_of(lowered), lowered


def _name_of(row: Any) -> str | None:
    """Find the picture's name in a row."""
    if not isinstance(row, dict):
        return None
    return next((str(row[name]) for name in NAME_FIELDS if isinstance(row.get(name), str) and row[name]), None)
