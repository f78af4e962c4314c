"""The command line is a contract: every command and option is frozen in a golden file.

After an intended change: `python start.py test tests/policy/test_cli_options.py --update-golden`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from trainers.cli.app import app

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "cli.txt"


def lines(command: Any, path: str) -> Iterator[str]:
    """One line for a command, then one for each of its parameters, then its sub-commands."""
    yield path
    for parameter in command.params:
        names = " ".join([*parameter.opts, *parameter.secondary_opts])
        kind = parameter.param_type_name + (" required" if parameter.required else "")
        many = " repeatable" if parameter.multiple or parameter.nargs == -1 else ""
        yield f"    {names}: {kind}{many}"
    for name, child in sorted(getattr(command, "commands", {}).items()):
        yield from lines(child, f"{path} {name}")


def parameters(command: Any) -> Iterator[tuple[str, Any]]:
    """Every parameter of a command and its sub-commands, with the command's name."""
    for parameter in command.params:
        yield command.name, parameter
    for child in getattr(command, "commands", {}).values():
        yield from parameters(child)


def test_no_command_or_option_changes_unseen(request: pytest.FixtureRequest) -> None:
    text = "\n".join(lines(get_command(app), "trainers")) + "\n"
    if request.config.getoption("--update-golden"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_every_option_has_help() -> None:
    silent = [
        f"{command} {parameter.name}" for command, parameter in parameters(get_command(app)) if not parameter.help
    ]
    assert not silent
