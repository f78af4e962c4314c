"""TOML files as people edit them: read with clear errors, written back with every comment and space in place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import ParseError, TOMLKitError

from trainers.core import atomic
from trainers.core.errors import Problem, UserError

_BOM = "\ufeff"
_PLACE = re.compile(r" at line \d+ col \d+$")


def read_text(path: Path) -> str:
    """Read a preset file. It must be UTF-8; a byte order mark, as some editors write it, is dropped."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error
    try:
        return data.decode("utf-8").removeprefix(_BOM)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        remedy = "save the file as UTF-8 in your editor"
        raise UserError("is not UTF-8 text", where=f"{path}:{line}", remedy=remedy) from error


def parse(text: str, name: str) -> tomlkit.TOMLDocument:
    """Read TOML. A mistake in the syntax becomes a UserError with line, column and what to do."""
    try:
        document = tomlkit.parse(text)
        document.unwrap()  # some double keys are only noticed here
    except ParseError as error:
        raise UserError([_syntax_problem(text, name, error)]) from error
    except TOMLKitError as error:
        raise UserError(f"is not valid TOML: {_sentence(error)}", where=name) from error
    return document


def save(path: Path, document: tomlkit.TOMLDocument) -> None:
    """Write a document; what was not edited stays as it was, byte for byte."""
    text = tomlkit.dumps(document)
    marked = path.is_file() and path.read_bytes().startswith(_BOM.encode())
    atomic.write_bytes(path, ((_BOM if marked else "") + text).encode())


def dumps(values: dict[str, Any]) -> str:
    """Write plain values as a TOML text."""
    return tomlkit.dumps(values)


def _sentence(error: Exception) -> str:
    text = _PLACE.sub("", str(error))
    return text[:1].lower() + text[1:]


def _syntax_problem(text: str, name: str, error: ParseError) -> Problem:
    line, column = error.line, error.col + 1
    lines = text.splitlines()
    source = lines[line - 1] if 0 < line <= len(lines) else ""
    return Problem(f"{name}:{line}:{column}", f"is not valid TOML: {_sentence(error)}", _syntax_remedy(source, error))


def _syntax_remedy(source: str, error: ParseError) -> str:
    """Guess from the line what was meant; the commonest mistakes have a remedy of their own."""
    value = source.partition("=")[2].strip()
    if "already exists" in str(error):
        return "write each table and each key once; join the two"
    if "\\" in source and '"' in source:
        return "a \\ has a meaning inside \"double quotes\"; write the path in 'single quotes' or with /"
    if re.fullmatch(r"(True|False|yes|no|on|off)\b.*", value, re.IGNORECASE):
        return "write true or false, in small letters and without quotation marks"
    if re.fullmatch(r"(None|null|nil)\b.*", value, re.IGNORECASE):
        return "remove the key to get its default"
    if value.count('"') == 1 or value.count("'") == 1:
        return "close the text with the quotation mark it began with"
    if "=" in source and not value:
        return "write a value behind the ="
    if re.match(r"[^\W\d]|[0-9.]+ *[a-zA-Z%]", value):
        return f'put text in quotation marks: {source.partition("=")[0].strip()} = "{value.partition("#")[0].strip()}"'
    if "=" not in source and not source.lstrip().startswith("["):
        return 'a line is a [table], a comment after #, or key = value; lists end with "]"'
    return "see the presets that come with the suite: trainers presets list"
