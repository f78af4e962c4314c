"""What the documents say can be typed and followed: commands, options and links exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from trainers.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "models").rglob("*.md")),
]
PRESETS = sorted((ROOT / "presets").rglob("*.toml"))
SPANS = re.compile(r"`((?:trainers|python3? start\.py|python -m trainers)(?: [^`]*)?)`")
LINES = re.compile(r"^\s*#?\s*((?:trainers|python3? start\.py|python -m trainers) .*)$", re.MULTILINE)
LINKS = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
STARTS_OWN = {"test", "install", "--help-all"}


def commands(text: str) -> Iterator[list[str]]:
    """Every call in a document as a list of words after the program's name; comments and placeholders are left out."""
    for call in {*SPANS.findall(text), *LINES.findall(text)}:
        words = shlex.split(call.split("  ")[0], comments=True)
        yield (
            words[1:]
            if words[0] == "trainers"
            else words[words.index("start.py" if "start.py" in words else "trainers") + 1 :]
        )


def problem(words: list[str]) -> str | None:
    """Say what is wrong with a call, or None."""
    if not words or words[0] in STARTS_OWN or words[0].startswith("-"):
        return None
    command: Any = get_command(app)
    while words and hasattr(command, "commands"):
        name = words.pop(0)
        if name in ("...", "…") or name.isupper():
            return None
        if name not in command.commands:
            return f'no command "{name}"'
        command = command.commands[name]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-v", "--verbose"}
    unknown = [word for word in words if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known]
    return f"{command.name} has no {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize("path", [*DOCUMENTS, *PRESETS], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_exist(path: Path) -> None:
    wrong = [
        f"{' '.join(words)}: {what}"
        for words in commands(path.read_text(encoding="utf-8"))
        if (what := problem(list(words)))
    ]
    assert not wrong


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    targets = [target for target in LINKS.findall(path.read_text(encoding="utf-8")) if "://" not in target]
    assert not [target for target in targets if not (path.parent / target).exists()]


def test_a_wrong_command_would_be_found() -> None:
    text = "`trainers nonsense x`\n  trainers run quickstart --nonsense 3\n  python start.py presets lits  # why\n"
    assert sorted(filter(None, (problem(words) for words in commands(text)))) == [
        'no command "lits"', 'no command "nonsense"', "run has no --nonsense",
    ]  # fmt: skip
