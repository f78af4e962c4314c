"""Sizes, leftovers and documentation of the source text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60
# Each exception says why it reads better long than cut up.
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
# Written in pieces, so that this file does not find itself.
LEFTOVERS = re.compile("|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X\\b", "raise NotImplemented" + "Error"]))
SKIPS = re.compile(
    "|".join([r"mark\.sk" + r"ip\b", r"pytest\.sk" + r"ip\(", r"pytest\.importor" + "skip", r"mark\.x" + "fail"])
)
MACHINE_PATHS = re.compile(r"[\"'` (](/ro" + r"ot/|/ho" + r"me/|/wo" + r"rk/|/Us" + r"ers/|[A-Z]:\\Us" + r"ers)")


def sources(*folders: str) -> list[Path]:
    """All Python files of some folders, and start.py."""
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [*found, ROOT / "start.py"]


def texts() -> list[Path]:
    """All files that people write: code, documents, presets, settings."""
    endings = {".py", ".md", ".toml", ".yml", ".yaml", ".sh"}
    folders = ("trainers", "models", "tests", "docs", "presets", ".ci")
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in endings]
    return [*found, *sorted(ROOT.glob("*.md")), ROOT / "pyproject.toml", ROOT / "start.py", ROOT / ".ci" / "run"]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of a file with its dotted name; functions inside functions belong to the outer one."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield prefix + child.name, child
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, f"{prefix}{child.name}.")
            elif isinstance(child, (ast.If, ast.Try)):
                yield from walk(child, prefix)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), "")


def test_files_are_short() -> None:
    long = {
        name_of(path): count
        for path in sources("trainers", "models", "tests")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > MAX_FILE_LINES
    }
    assert long.keys() == LONG_FILES.keys(), long


def test_functions_are_short() -> None:
    long = {
        f"{name_of(path)}:{name}": count
        for path in sources("trainers", "models")
        for name, function in functions(path)
        if (count := (function.end_lineno or 0) - function.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert long.keys() == LONG_FUNCTIONS.keys(), long


def test_every_public_function_has_a_docstring() -> None:
    silent = [
        f"{name_of(path)}:{name}"
        for path in sources("trainers", "models")
        if not path.name.startswith("_")
        for name, function in functions(path)
        if not any(part.startswith("_") for part in name.split(".")) and ast.get_docstring(function) is None
    ]
    assert not silent


def test_every_module_says_what_it_is() -> None:
    silent = [
        name_of(path)
        for path in sources("trainers", "models", "tests")
        if path.read_text(encoding="utf-8").strip()
        and ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) is None
    ]
    assert not silent


@pytest.mark.parametrize(
    ("pattern", "what"),
    [(LEFTOVERS, "unfinished work"), (SKIPS, "a test that does not run"), (MACHINE_PATHS, "a path of one machine")],
    ids=["leftovers", "skips", "paths"],
)
def test_nothing_is_left_lying_about(pattern: re.Pattern[str], what: str) -> None:
    found = [
        f"{name_of(path)}:{number}: {line.strip()[:80]}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]
    assert not found, what


def test_checks_of_users_input_survive_optimised_python() -> None:
    """`python -O` drops assert, so it may only state what cannot be otherwise."""
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in sources("trainers")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert)
    ]
    assert not found


def test_no_large_file_outside_the_starter_model() -> None:
    big = [
        name_of(path)
        for folder in ("trainers", "models", "tests", "docs", "presets", "datasets")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and path.stat().st_size > 2_000_000 and "weights" not in path.parts
    ]
    assert not big
