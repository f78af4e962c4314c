"""Who may import whom, and what may not be imported before it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter import cli as import_linter

LIBRARIES = {"torch", "diffusers", "transformers", "peft", "accelerate", "safetensors", "tensorboard", "bitsandbytes"}
ALSO_TOO_HEAVY_FOR_HELP = {"numpy", "PIL", "tomlkit", "psutil"}  # typer itself brings pydantic
PROBE = """
import json, sys
from trainers.cli.app import main
code = main(json.loads(sys.argv[1]))
sys.stdout.flush()
sys.stderr.write("\\nPROBE" + json.dumps([code, sorted(name for name in sys.modules if "." not in name)]))
"""


def modules_after(arguments: list[str], cwd: Path) -> tuple[int, set[str]]:
    """Run a command in a fresh process; return its exit code and the top-level modules it imported."""
    result = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(arguments)], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    code, names = json.loads(result.stderr.rpartition("PROBE")[2])
    return code, set(names)


def test_import_contracts_are_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    code = import_linter.lint_imports(config_filename="pyproject.toml", no_cache=True)
    assert code == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["run", "--help"], ["presets", "--help"], ["nonsense"]]
)
def test_help_imports_next_to_nothing(root: Path, arguments: list[str]) -> None:
    code, names = modules_after(arguments, root)
    assert code in (0, 64)
    assert not names & (LIBRARIES | ALSO_TOO_HEAVY_FOR_HELP)


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "quickstart"],
        ["check", "quickstart", "--data", "--json"],
        ["check", "quickstart", "--set", "optimizer.learning-rate=1"],
        ["plan", "quickstart"],
        ["plan", "quickstart", "--json"],
        ["presets", "list"],
        ["presets", "explain", "optimizer.lr"],
        ["models", "--json"],
    ],
)
def test_questions_are_answered_without_torch(root: Path, arguments: list[str]) -> None:
    code, names = modules_after(arguments, root)
    assert code == (64 if "--set" in arguments else 0)
    assert not names & LIBRARIES


@pytest.mark.parametrize("command", [["check", "--data"], ["plan"]], ids=["check", "plan"])
@pytest.mark.parametrize(
    "model",
    [[], ["--set", "model.family=sdxl", "--set", "model.weights=owner/name", "--set", "data.area=64px"]],
    ids=["embedded", "hub"],
)
def test_tokens_are_counted_without_torch(root: Path, command: list[str], model: list[str]) -> None:
    code, names = modules_after([command[0], "quickstart", *command[1:], *model], root)
    assert code == 0
    assert "tokenizers" in names
    assert not names & {*LIBRARIES, "huggingface_hub"}


@pytest.mark.parametrize(
    "package", ["trainers.core", "trainers.rundir", "trainers.presets.preset", "trainers.data.scan"]
)
def test_vocabulary_and_shared_layers_import_without_torch(root: Path, package: str) -> None:
    script = f"""
import importlib, pkgutil, sys
found = importlib.import_module({package!r})
for module in pkgutil.iter_modules(getattr(found, "__path__", [])):
    importlib.import_module(found.__name__ + "." + module.name)
sys.exit(", ".join({LIBRARIES!r} & set(sys.modules)) or None)
"""
    result = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
