"""How the command line speaks: JSON documents, tables and numbered lists of problems."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import typer

from trainers.core.errors import Problem


def make_printable() -> None:
    """Let every letter be printed: a pipe on Windows knows only those of one language and would raise.

    Not even UTF-8 has a word for every file name of an old disk; those are shown with their bytes as numbers.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            is_utf8 = stream.encoding.lower().replace("-", "") == "utf8"
            old_screen = not is_utf8 and stream.isatty()  # shows only the letters of its own encoding
            stream.reconfigure(encoding=None if old_screen else "utf-8", errors="backslashreplace")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def document(value: Any) -> None:
    """Print one JSON document, in ASCII so that no pipe can spoil it."""
    typer.echo(json.dumps(value, indent=2, default=_plain))


def problems(found: Sequence[Problem], as_json: bool) -> None:
    """Print problems: as a JSON document on standard output, or numbered for people on standard error."""
    if as_json:
        document({"ok": False, "problems": [dataclasses.asdict(problem) for problem in found]})
        return
    typer.echo(f"{len(found)} problems:" if len(found) > 1 else "1 problem:", err=True)
    for number, problem in enumerate(found, start=1):
        lines = str(problem).splitlines()
        typer.echo("\n".join([f"{number:3}. {lines[0]}", *(f"     {line.strip()}" for line in lines[1:])]), err=True)


def notes(found: Iterable[Any], heading: str) -> None:
    """Print things worth knowing that are no errors; nothing at all when there are none."""
    lines = [str(note) for note in found]
    if lines:
        typer.echo(heading)
        for line in lines:
            typer.echo(f"  - {line}")


def rich(thing: Any) -> None:
    """Print a table or anything else that rich can render."""
    from rich.console import Console

    Console(soft_wrap=False, highlight=False).print(thing)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Print a table for people; each cell is literal text."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    result = Table(*columns, title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for row in rows:
        result.add_row(*(Text(cell) for cell in row))
    rich(result)
