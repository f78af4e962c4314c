"""Linter, formatter and type checker agree with the source, with the settings of pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def outcome(root: Path, *command: str) -> tuple[int, str]:
    """Run a tool as a module of this environment; return its exit code and what it said."""
    result = subprocess.run([sys.executable, "-m", *command], cwd=root, capture_output=True, text=True, timeout=540)
    return result.returncode, result.stdout + result.stderr


def test_linter_is_content(root: Path) -> None:
    code, said = outcome(root, "ruff", "check", "--no-cache", "--output-format=concise", ".")
    assert code == 0, said


@pytest.mark.slow
def test_type_checker_is_content(root: Path) -> None:
    code, said = outcome(root, "mypy")
    assert code == 0, said
